//! `sandcove redteam generate`: writes the attacks to a file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use sandcove_eval::config::attacks::{self, Attacks};
use sandcove_eval::config::repeated;
use sandcove_eval::generate::{self as authors, AuthorOptions};
use sandcove_eval::output::document_as_yaml;
use sandcove_eval::reading::{Findings, Severity};
use serde_json::Value;

use super::AttackArgs;
use crate::commands::count;
use crate::output::{note, out, plain};

#[derive(Debug, Args)]
pub(super) struct GenerateArgs {
    #[command(flatten)]
    attacks: AttackArgs,
    /// file to write [default: redteam.yaml beside the configuration]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// write the attacks into the configuration
    #[arg(short, long, conflicts_with = "output")]
    write: bool,
    /// most questions to the model at a time [default: 4]
    #[arg(short = 'j', long = "max-concurrency", value_name = "N")]
    concurrency: Option<usize>,
    /// do not use cached answers of the model
    #[arg(long)]
    no_cache: bool,
    /// files of environment variables for the model, separated by commas
    #[arg(long = "env-file", alias = "env-path", value_delimiter = ',', value_name = "FILE")]
    env_files: Vec<PathBuf>,
    #[command(flatten)]
    ignored: Ignored,
}

// Options of promptfoo without an effect.
#[derive(Debug, Args)]
struct Ignored {
    /// accepted for compatibility; questions to a model are not delayed
    #[arg(long, hide = true)]
    delay: Option<f64>,
    /// accepted for compatibility; there is no progress bar
    #[arg(long, hide = true)]
    no_progress_bar: bool,
    /// accepted for compatibility; the configuration has the description
    #[arg(short, long, hide = true)]
    description: Option<String>,
}

/// The name of the generated file.
pub(super) const NAME: &str = "redteam.yaml";

/// Generates the attacks.
pub(super) async fn generate(args: &GenerateArgs) -> Result<ExitCode> {
    let output = match args.write {
        true => {
            let options = args.attacks.options(&[])?;
            Some(
                options
                    .config
                    .or_else(|| attacks::configuration(&options.directory))
                    .context("there is no configuration to write to")?,
            )
        }
        false => args.output.clone(),
    };
    let author = author(&args.attacks, args.concurrency, args.no_cache);
    let written = write(&args.attacks, &author, &args.env_files, output).await?;
    out!("run them with: sandcove redteam eval -c {}", written.display());
    Ok(ExitCode::SUCCESS)
}

/// How a model is asked for attacks. Those that are written anew are not the ones that it has written before.
pub(super) fn author(args: &AttackArgs, concurrency: Option<usize>, no_cache: bool) -> AuthorOptions {
    AuthorOptions { cache: !no_cache && !args.force, concurrency: concurrency.unwrap_or(4) }
}

/// Writes the attacks, unless the file has them already, says what was skipped, and returns the path.
pub(super) async fn write(
    args: &AttackArgs,
    author: &AuthorOptions,
    env_files: &[PathBuf],
    output: Option<PathBuf>,
) -> Result<PathBuf> {
    let mut findings = Findings::default();
    let plan = attacks::read(&args.options(env_files)?, &mut findings);
    for finding in findings.all().iter().filter(|finding| finding.severity > Severity::Notice) {
        note!("{finding}");
    }
    let plan = plan?;
    if findings.failed() {
        bail!("the configuration is wrong");
    }
    let path = output.unwrap_or_else(|| plan.base.join(NAME));
    let repeats = plan.section.strategies.iter().any(|strategy| strategy.id == "retry");
    if plan.section.provider.is_some() && !repeats && !args.force && is_current(&path, plan.hash()) {
        // A model is not asked again.
        note!("{} is up to date; --force writes it anew", path.display());
        return Ok(path);
    }
    let mut planned = authors::red_team(&plan, author, &|step| note!("{}", plain(&step))).await?;
    if planned.retry.is_some() {
        let repeated =
            repeated::repeat(&mut planned).await.context("failed to look for attacks of earlier runs")?;
        note!("repeating {} of earlier runs", count(repeated, "attack"));
    }
    let Attacks { document, hash, skipped, .. } = planned;
    for skip in &skipped {
        note!("skipped {}: {}", skip.what, plain(&skip.why));
    }
    if args.strict && !skipped.is_empty() {
        bail!(
            "{} skipped; leave them out of the configuration, or run without --strict",
            count(skipped.len(), "thing")
        );
    }
    let tests = document["tests"].as_array().map_or(0, Vec::len);
    if !args.force && is_current(&path, &hash) {
        note!("{} is up to date: {}; --force writes it anew", path.display(), count(tests, "attack"));
    } else {
        let text = format!("{}{}", header(&document, tests), document_as_yaml(&document));
        std::fs::write(&path, text).with_context(|| format!("failed to write `{}`", path.display()))?;
        note!("wrote {} to {}", count(tests, "attack"), path.display());
    }
    Ok(path)
}

/// Whether a file was generated from the same things.
fn is_current(path: &Path, hash: &str) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| text.contains(&format!("configHash: \"{hash}\"")))
}

fn header(document: &Value, tests: usize) -> String {
    let layers = ["gate", "wall", "model"].map(|layer| {
        let all = document["tests"].as_array().into_iter().flatten();
        (layer, all.filter(|test| test["metadata"]["layer"] == layer).count())
    });
    let layers: Vec<String> = layers
        .iter()
        .filter(|(_, number)| *number > 0)
        .map(|(layer, number)| format!("{number} at the {layer}"))
        .collect();
    format!(
        "# Attacks of a red team, generated by sandcove {}: {tests}, {}.\n# Run them with `sandcove redteam eval -c` and this file; `sandcove redteam generate` writes it.\n",
        env!("CARGO_PKG_VERSION"),
        layers.join(", ")
    )
}
