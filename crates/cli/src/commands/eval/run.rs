//! Running a suite once, or whenever its files change.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Error, Result, bail};
use sandcove_client::Client;
use sandcove_eval::config::{self, ConfigError, Suite};
use sandcove_eval::model::Evaluation;
use sandcove_eval::output as results;
use sandcove_eval::reading::{Findings, Severity};
use sandcove_eval::run::{self, Control, End, Outcome, Start};
use sandcove_eval::sandboxes::Fallback;
use sandcove_eval::store;
use sandcove_eval::store::recording::Storage;
use serde_json::json;
use tokio::sync::mpsc;

use super::args::RunArgs;
use super::report::{self, RunProgress, Shown};
use super::suggest;
use super::watch::WatchedFiles;
use crate::commands::count;
use crate::commands::share::share;
use crate::output::{note, out};
use crate::report::described;

/// Usage, configuration or files are wrong.
const TROUBLE: u8 = 1;
/// There was nothing to run.
const NOTHING: u8 = 2;
/// Tests did not pass, unless `PROMPTFOO_FAILED_TEST_EXIT_CODE` says otherwise.
const FAILED: u8 = 100;
/// Exit code after Ctrl-C.
const INTERRUPTED: u8 = 130;

/// A stored run to go back to.
#[derive(Debug, Clone)]
pub struct Again {
    /// The id; none for the newest run.
    pub id: Option<String>,
    /// The part of it to run.
    pub part: Part,
}

/// The part of a stored run that is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The rows that it has not run yet.
    Rest,
    /// The rows that it has not run yet, and those that ended with an error.
    Errors,
    /// All rows, as a new run of the suite as it is now.
    All,
}

/// Work to do with a suite.
#[derive(Debug, Clone)]
pub enum Task {
    /// Check it without running it.
    Validate,
    /// Run it, or a stored run.
    Run(Option<Again>),
}

/// Runs an evaluation and returns the exit code of the process.
///
/// With `team`, finished runs are shared there.
pub async fn evaluate(args: &RunArgs, task: &Task, server: &Fallback, team: Option<&Client>) -> ExitCode {
    let mut sources = sources(args);
    loop {
        let code = once(args.clone(), task, server, team, &mut sources).await.unwrap_or_else(|error| {
            note!("error: {error:#}");
            TROUBLE
        });
        if !args.watch {
            return ExitCode::from(code);
        }
        note!("\nWaiting for changes; press Ctrl-C to stop.");
        for path in sources.changed().await {
            let own = path.strip_prefix(&args.load.directory).unwrap_or(&path);
            note!("\n=== {} changed", own.display());
        }
    }
}

/// The files and directories that the command line names.
fn sources(args: &RunArgs) -> WatchedFiles {
    let load = &args.load;
    let texts = load
        .prompts
        .iter()
        .chain(&load.providers)
        .chain(&load.tests)
        .chain(&load.dataset)
        .chain(&load.assertions);
    let texts = texts.chain(&load.model_outputs).map(PathBuf::from);
    let paths = load.configs.iter().chain(&load.env_files).cloned();
    let mut sources = WatchedFiles::new(&load.directory, texts.chain(paths));
    sources.leave_out(&args.outputs);
    sources.remember();
    sources
}

/// Runs an evaluation once and returns its exit code.
async fn once(
    mut args: RunArgs,
    task: &Task,
    server: &Fallback,
    team: Option<&Client>,
    sources: &mut WatchedFiles,
) -> Result<u8> {
    let again = match task {
        Task::Run(Some(again)) => go_back(&mut args, again).await?,
        Task::Run(None) | Task::Validate => None,
    };
    let validate = matches!(task, Task::Validate);
    let filters = args.filters();
    let Some(mut suite) = load(&args, server, validate).await? else { return Ok(TROUBLE) };
    if matches!(task, Task::Run(Some(Again { part: Part::All, .. }))) && suite.raw.contains_key("redteam") {
        bail!("the run is a red team\nhint: `sandcove redteam eval -c FILE` repeats its attacks");
    }
    suite.override_defaults(args.prefix.as_deref(), args.suffix.as_deref(), args.grader.as_deref());
    filters.apply(&mut suite).await?;
    if let Some(count) = args.suggest_prompts.filter(|_| !validate) {
        args.suggested = suggest::chosen(&suite, count.into(), !args.no_cache).await?;
        if args.suggested.is_empty() {
            note!("error: no suggested prompt was chosen");
            return Ok(TROUBLE);
        }
    }
    let suggested = args.suggested.iter().map(|text| config::Prompt {
        raw: text.clone(),
        label: text.clone(),
        ..config::Prompt::default()
    });
    suite.prompts.extend(suggested);
    let outputs = outputs(&args, &suite)?;
    if !args.outputs.is_empty() {
        suite.raw.insert("outputPath".to_owned(), json!(args.outputs));
    }
    if args.watch {
        sources.leave_out(&outputs);
        suite.raw.values().for_each(|value| sources.refer(suite.workers.base(), value));
        sources.remember();
    }
    let options = args.run_options(&suite.options)?;
    let (tests, providers, prompts) = (suite.tests.len(), suite.providers.len(), suite.prompts.len());
    if validate {
        let sizes = [count(tests, "test"), count(providers, "provider"), count(prompts, "prompt")];
        out!("the configuration is valid: {}", sizes.join(", "));
        return Ok(0);
    }
    if tests == 0 || providers == 0 || prompts == 0 {
        if args.allow_empty {
            return Ok(0);
        }
        note!("error: nothing to run: the filters leave no tests, providers or prompts");
        note!("hint: --allow-empty makes this a success");
        return Ok(NOTHING);
    }
    if !options.cache {
        note!("Cache is disabled.");
    }
    let write = !args.no_write && suite.options.get("write") != Some(&json!(false));
    let storage = if write { Storage::Permanent } else { Storage::Temporary };
    let shown = Shown::new(&args);
    let control = Control {
        start: again.unwrap_or_else(|| Start::New { storage, invocation: json!(args) }),
        interrupts: interrupts(storage),
        observer: Arc::new(RunProgress::new(shown)),
    };
    let Outcome { evaluation, mut rows, end, after } = run::run(suite, options, control).await?;
    if end != End::Finished {
        if write {
            let done = count(evaluation.stats.total(), "row");
            note!("Paused with {done} done. Resume with: sandcove eval --resume {}", evaluation.id);
        }
        // Code that does not stop by itself must not keep the process.
        std::process::exit(i32::from(INTERRUPTED));
    }
    report::report(&evaluation, &mut rows, &shown).await?;
    for path in &outputs {
        results::write(&evaluation, &mut rows, path).await?;
        note!("Writing output to {path}");
    }
    match team {
        Some(_) if !write => note!("not shared: a run that is not stored has no page"),
        Some(client) => match share(client, Some(&evaluation.id)).await {
            Ok((_, page)) => note!("Shared: {page}"),
            Err(error) => {
                note!("not shared: {}", described(&error));
                note!("hint: try again with `sandcove eval share {}`", evaluation.id);
            }
        },
        None if write && shown.for_people() => note!("See the answers in a browser: sandcove view"),
        None => {}
    }
    after?;
    Ok(exit_code(&evaluation))
}

/// Loads the suite and prints what was found about it; none when it has errors, which are printed then.
pub async fn load(args: &RunArgs, server: &Fallback, validate: bool) -> Result<Option<Suite>> {
    let mut findings = Findings::default();
    let loaded = config::load(&args.load_options(server.clone()), &mut findings).await;
    let notices = args.verbose || validate;
    for finding in findings.all().iter().filter(|finding| notices || finding.severity > Severity::Notice) {
        note!("{finding}");
    }
    match loaded {
        Ok(suite) => Ok(Some(suite)),
        Err(ConfigError::Invalid) => Ok(None),
        Err(error) => Err(Error::new(error)),
    }
}

/// The result files: those of the command line, else those of the configuration.
pub fn outputs(args: &RunArgs, suite: &Suite) -> Result<Vec<String>> {
    let mut outputs = args.outputs.clone();
    if outputs.is_empty() {
        let base = suite.workers.base();
        outputs.extend(suite.outputs.iter().map(|path| base.join(path).to_string_lossy().into_owned()));
    }
    for path in &outputs {
        results::format_of(path)?;
    }
    Ok(outputs)
}

/// Makes `args` those that a stored run was started with, and enters the directory it was started in. Returns how it is resumed; none
/// for a new run.
async fn go_back(args: &mut RunArgs, again: &Again) -> Result<Option<Start>> {
    if !args.load.configs.is_empty() {
        note!("-c has no effect: the configuration is the one that the run was started with");
    }
    let (id, invocation) = store::invocation(again.id.as_deref()).await?;
    let first: RunArgs = serde_json::from_value(invocation)
        .with_context(|| format!("`{id}` cannot be run again: its options cannot be read"))?;
    let directory = first.load.directory.clone();
    *args = args.resuming(first)?;
    // The directory of stored runs, which may be relative, is known by now, and stays.
    std::env::set_current_dir(&directory)
        .with_context(|| format!("failed to enter `{}`", directory.display()))?;
    Ok((again.part != Part::All).then(|| Start::Again { id, errors: again.part == Part::Errors }))
}

/// Sends a message for every Ctrl-C from now on. A run that is not stored cannot pause, so it is given up at once.
pub fn interrupts(storage: Storage) -> mpsc::Receiver<()> {
    let (send, receive) = mpsc::channel(2);
    tokio::spawn(async move {
        while tokio::signal::ctrl_c().await.is_ok() {
            let mut heard = send.send(()).await.is_ok();
            if storage == Storage::Temporary {
                heard = send.send(()).await.is_ok();
            }
            if !heard {
                std::process::exit(i32::from(INTERRUPTED));
            }
        }
    });
    receive
}

/// 0 if enough rows passed.
fn exit_code(evaluation: &Evaluation) -> u8 {
    let env = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<f64>().ok());
    let wanted = env("PROMPTFOO_PASS_RATE_THRESHOLD").unwrap_or(100.0);
    if evaluation.stats.pass_rate() >= wanted {
        return 0;
    }
    env("PROMPTFOO_FAILED_TEST_EXIT_CODE").map_or(FAILED, |code| code as u8)
}
