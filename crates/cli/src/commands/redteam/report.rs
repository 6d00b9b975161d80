//! `sandcove redteam report`: what a run came to.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use sandcove_eval::home;
use sandcove_eval::view::Library;
use sandcove_redteam::category::Severity;
use sandcove_redteam::report::{Outcome, Report, csv, sarif, text};
use serde_json::Value;

use crate::commands::candidates;
use crate::output::{note, plain, write};

/// A breach at or above the severity asked for.
const BREACHED: u8 = 100;
/// No attack has a verdict.
pub(super) const INCONCLUSIVE: u8 = 3;

/// The format of a report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// for a terminal
    #[default]
    Text,
    /// all of it, with every attack
    Json,
    /// the table of categories
    Csv,
    /// breaches, for code hosts
    Sarif,
}

#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// id of the run [default: the newest red team]
    #[arg(add = candidates::runs())]
    id: Option<String>,
    /// format of the report
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// file to write it to [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// accepted for compatibility; `sandcove view` opens runs in a browser
    #[arg(short, long, hide = true)]
    port: Option<u16>,
    /// exit with 100 if there is a breach of this severity or worse
    #[arg(long, value_parser = super::run::severity, value_name = "SEVERITY")]
    fail_on: Option<Severity>,
}

/// Reports a stored run.
pub(super) async fn report(args: ReportArgs) -> Result<ExitCode> {
    let library = Library::new(home::directory());
    let id = match args.id {
        Some(id) if id != "latest" && !Path::new(&id).is_dir() => id,
        _ => {
            let runs = library.runs(None, false).await?;
            let newest = runs.into_iter().find(|run| run.is_redteam).map(|run| run.eval_id);
            newest.context("no red team is stored; run one with `sandcove redteam run`")?
        }
    };
    let report = library.red_team(&id).await?;
    print(&report, args.format, "redteam.yaml", args.output)?;
    Ok(ExitCode::from(args.fail_on.map_or(0, |severity| exit_code(&report, severity))))
}

/// Prints a report, or writes it to a file; `file` is the configuration that places name.
pub(super) fn print(report: &Report, format: Format, file: &str, output: Option<PathBuf>) -> Result<()> {
    let pretty = |value: &Value| serde_json::to_string_pretty(value).map(|text| text + "\n");
    let text = match format {
        Format::Text => plain(&text(report)),
        Format::Json => pretty(&serde_json::to_value(report)?)?,
        Format::Csv => csv(report),
        Format::Sarif => pretty(&sarif(report, file))?,
    };
    match output {
        Some(path) => {
            std::fs::write(&path, text).with_context(|| format!("failed to write `{}`", path.display()))?;
            note!("wrote {}", path.display());
        }
        None => {
            let _ = write(text.as_bytes());
        }
    }
    Ok(())
}

/// The exit code of a run.
pub(super) fn exit_code(report: &Report, fail_on: Severity) -> u8 {
    match report.outcome(fail_on) {
        Outcome::Withstood => 0,
        Outcome::Breached => BREACHED,
        Outcome::Inconclusive => {
            note!("no attack has a verdict: nothing is known about the targets");
            INCONCLUSIVE
        }
    }
}
