//! `sandcove redteam run` and `eval`: attacks the targets and reports.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use sandcove_eval::config::{Suite, attacks};
use sandcove_eval::generate::GenerateError;
use sandcove_eval::home;
use sandcove_eval::output as results;
use sandcove_eval::redteam::{WallProvider, host};
use sandcove_eval::run::{self, Control, End, Outcome, Start};
use sandcove_eval::sandboxes::Fallback;
use sandcove_eval::store::recording::Storage;
use sandcove_eval::view::Library;
use sandcove_redteam::category::Severity;
use serde_json::{Value, json};

use super::report::{self, Format};
use super::{AttackArgs, generate};
use crate::commands::count;
use crate::commands::eval::args::RunArgs as EvalArgs;
use crate::commands::eval::report::{RunProgress, Shown};
use crate::commands::eval::{run as eval, server};
use crate::commands::reach::{Place, Reach};
use crate::output::note;

/// Configuration, files or targets are wrong.
const TROUBLE: u8 = 1;

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    attacks: AttackArgs,
    /// result files; the extension decides the format: .json, .jsonl, .csv, .yaml, .xml, .junit.xml or .html
    #[arg(short, long = "output", num_args = 1.., value_name = "FILE")]
    outputs: Vec<String>,
    /// file for the generated attacks [default: redteam.yaml beside the configuration]
    #[arg(long, value_name = "FILE")]
    attacks_file: Option<PathBuf>,
    /// format of the printed report
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// severity from which a breach fails the run: critical, high, medium, low or informational [default: high]
    #[arg(long, value_parser = severity, value_name = "SEVERITY")]
    fail_on: Option<Severity>,
    /// most attacks at a time [default: 4]
    #[arg(short = 'j', long = "max-concurrency", value_name = "N")]
    concurrency: Option<usize>,
    /// pause after each call, in milliseconds
    #[arg(long, value_name = "MS")]
    delay: Option<f64>,
    /// do not use cached answers
    #[arg(long)]
    no_cache: bool,
    /// do not store the results
    #[arg(long)]
    no_write: bool,
    /// do not show progress
    #[arg(long = "no-progress-bar")]
    no_progress: bool,
    /// only attacks whose description matches a regular expression
    #[arg(long, value_name = "REGEX")]
    filter_pattern: Option<String>,
    /// only targets whose id or label matches a regular expression
    #[arg(long, alias = "filter-providers", value_name = "REGEX")]
    filter_targets: Option<String>,
    /// only prompts whose id or label matches a regular expression
    #[arg(long, value_name = "REGEX")]
    filter_prompts: Option<String>,
    /// only attacks that did not pass in this result file or run
    #[arg(long, value_name = "RESULTS")]
    filter_failing: Option<String>,
    /// model that grades, where no rule can
    #[arg(long, value_name = "PROVIDER")]
    grader: Option<String>,
    /// files of environment variables, separated by commas
    #[arg(long = "env-file", alias = "env-path", value_delimiter = ',', value_name = "FILE")]
    env_files: Vec<PathBuf>,
    /// label of the run: name=value
    #[arg(long = "tag", value_parser = crate::commands::variable, value_name = "NAME=VALUE")]
    tags: Vec<(String, String)>,
    /// description of the run
    #[arg(short = 'd', long, value_name = "TEXT")]
    description: Option<String>,
    /// allow probes that may harm the host on servers of other hosts too
    #[arg(long, requires = "allow_destructive")]
    allow_destructive_remote: bool,
    #[command(flatten)]
    reach: Reach,
}

pub(super) fn severity(text: &str) -> Result<Severity, String> {
    Severity::named(text)
        .ok_or_else(|| format!("unknown severity `{text}`; use critical, high, medium, low or informational"))
}

impl RunArgs {
    fn for_evaluator(&self, file: PathBuf) -> Result<EvalArgs> {
        let mut args = EvalArgs::default();
        args.load.configs = vec![file];
        args.load.directory = std::env::current_dir()?;
        args.load.env_files.clone_from(&self.env_files);
        args.load.tags.clone_from(&self.tags);
        args.load.description.clone_from(&self.description);
        args.filters.pattern.clone_from(&self.filter_pattern);
        args.filters.providers.clone_from(&self.filter_targets);
        args.filters.prompts.clone_from(&self.filter_prompts);
        args.filters.failing.clone_from(&self.filter_failing);
        args.grader.clone_from(&self.grader);
        args.concurrency = self.concurrency;
        args.delay = self.delay;
        args.no_cache = self.no_cache;
        args.no_write = self.no_write;
        args.no_progress = self.no_progress;
        args.outputs.clone_from(&self.outputs);
        Ok(args)
    }
}

/// Attacks the targets; `generates` says whether the attacks are written before.
pub(super) async fn run(args: Box<RunArgs>, generates: bool, place: &Place) -> Result<ExitCode> {
    let server = server(&args.reach, place);
    Ok(ExitCode::from(attack(&args, generates, &server).await?))
}

async fn attack(args: &RunArgs, generates: bool, server: &Fallback) -> Result<u8> {
    let file = match generates {
        true => {
            let author = generate::author(&args.attacks, args.concurrency, args.no_cache);
            let output = args.attacks_file.clone();
            match generate::write(&args.attacks, &author, &args.env_files, output).await {
                // Without attacks nothing is known about the targets.
                Err(error) if is_of_model(&error) => {
                    crate::report::report(&error);
                    return Ok(report::INCONCLUSIVE);
                }
                written => written?,
            }
        }
        false => match args.attacks.configs.as_slice() {
            [] => PathBuf::from(generate::NAME),
            [file] => file.clone(),
            _ => bail!("a red team has one file of attacks; name one with -c"),
        },
    };
    let mut eval_args = args.for_evaluator(file.clone())?;
    let filters = eval_args.filters();
    let Some(mut suite) = eval::load(&eval_args, server, false).await? else { return Ok(TROUBLE) };
    suite.override_defaults(None, None, args.grader.as_deref());
    filters.apply(&mut suite).await?;
    let outputs = eval::outputs(&eval_args, &suite)?;
    reach_wall(args, &mut suite).await?;
    let fail_on = args.fail_on.unwrap_or_else(|| attacks::fail_on(&Value::Object(suite.raw.clone())));
    let options = eval_args.run_options(&suite.options)?;
    if suite.tests.is_empty() || suite.providers.is_empty() {
        note!("error: nothing to attack is left");
        return Ok(report::INCONCLUSIVE);
    }
    let storage = if args.no_write { Storage::Temporary } else { Storage::Permanent };
    let shown = Shown::new(&eval_args);
    let control = Control {
        start: Start::New { storage, invocation: json!(eval_args) },
        interrupts: eval::interrupts(storage),
        observer: Arc::new(RunProgress::new(shown)),
    };
    let Outcome { evaluation, mut rows, end, after } = run::run(suite, options, control).await?;
    if end != End::Finished {
        note!("Interrupted with {} done.", count(evaluation.stats.total(), "attack"));
        std::process::exit(130);
    }
    let library = Library::new(home::directory());
    let report = library.red_team_of(&evaluation, &mut rows, !args.no_write).await?;
    report::print(&report, args.format, &file.to_string_lossy(), None)?;
    for path in &outputs {
        results::write(&evaluation, &mut rows, path).await?;
        note!("Writing output to {path}");
    }
    if !args.no_write && shown.for_people() {
        note!("See it again: sandcove redteam report. See the answers in a browser: sandcove view");
    }
    after.context("a hook failed after the run")?;
    Ok(report::exit_code(&report, fail_on))
}

/// Whether there are no attacks because the model that writes them failed.
fn is_of_model(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(GenerateError::Failed { .. }))
}

/// Leaves the sandbox out if there is none, and says so.
async fn reach_wall(args: &RunArgs, suite: &mut Suite) -> Result<()> {
    if !suite.providers.iter().any(|spec| spec.id == WallProvider::ID) {
        return Ok(());
    }
    match suite.sandboxes.reach().await {
        Ok(url) => {
            let is_allowed = host::is_here(&url) || args.allow_destructive_remote;
            if args.attacks.allow_destructive && !is_allowed {
                bail!(
                    "{url} is another host, which the probes may harm; --allow-destructive-remote attacks it all the same"
                );
            }
            note!("attacking sandboxes of {url}");
        }
        Err(error) => {
            note!("skipped wall probes: {error}");
            suite.providers.retain(|spec| spec.id != WallProvider::ID);
            suite
                .tests
                .retain(|test| test.get("metadata").is_none_or(|metadata| metadata["layer"] != "wall"));
            let skip = json!({"what": "wall probes", "why": error.to_string()});
            let section = suite.raw.entry("redteam").or_insert_with(|| json!({}));
            if let Some(skipped) =
                section.as_object_mut().map(|map| map.entry("skipped").or_insert_with(|| json!([])))
                && let Some(list) = skipped.as_array_mut()
            {
                list.push(skip);
            }
        }
    }
    Ok(())
}
