//! `sandcove redteam report`: what a run came to.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use sandcove_eval::home;
use sandcove_eval::model::Evaluation;
use sandcove_eval::redteam::finding;
use sandcove_eval::store::StoreError;
use sandcove_eval::store::recording::{Recorded, Which};
use sandcove_eval::view::Library;
use sandcove_redteam::category::Severity;
use sandcove_redteam::report::{About, Finding, Outcome, Report, Skip, csv, sarif, text};
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
    let id = match args.id {
        Some(id) if id != "latest" && !Path::new(&id).is_dir() => id,
        _ => {
            let runs = Library::new(home::directory()).runs(None, false).await?;
            let newest = runs.into_iter().find(|run| run.is_redteam).map(|run| run.eval_id);
            newest.context("no red team is stored; run one with `sandcove redteam run`")?
        }
    };
    let mut rows = Recorded::open(Some(&id)).await?;
    let evaluation = rows.evaluation().await?;
    let report = of(&evaluation, &mut rows, true).await?;
    if report.findings.is_empty() {
        bail!("the run `{id}` is no red team");
    }
    print(&report, args.format, "redteam.yaml", args.output)?;
    Ok(ExitCode::from(args.fail_on.map_or(0, |severity| exit_code(&report, severity))))
}

/// Makes the report of a run; `is_stored` says whether runs before it are compared.
pub(super) async fn of(evaluation: &Evaluation, rows: &mut Recorded, is_stored: bool) -> Result<Report> {
    let section = evaluation.config.get("redteam").cloned().unwrap_or_default();
    let purpose = section["purpose"].as_str().unwrap_or_default().to_owned();
    let skipped: Vec<Skip> = serde_json::from_value(section["skipped"].clone()).unwrap_or_default();
    let about =
        About { eval_id: evaluation.id.clone(), created_at: evaluation.created_at.clone(), purpose, skipped };
    let findings = findings(rows).await?;
    let before = if is_stored { before(evaluation).await? } else { None };
    Ok(Report::new(about, findings, before))
}

async fn findings(rows: &mut Recorded) -> Result<Vec<Finding>> {
    let mut all = Vec::new();
    rows.each::<StoreError>(Which::All, |row| {
        all.extend(finding(&row));
        Ok(())
    })
    .await?;
    Ok(all)
}

/// The findings of the newest red team before a run that attacked the same targets.
async fn before(evaluation: &Evaluation) -> Result<Option<(String, Vec<Finding>)>> {
    let targets = |value: &Evaluation| {
        let mut names: Vec<String> = value.columns.iter().map(|column| column.provider.clone()).collect();
        names.sort();
        names.dedup();
        names
    };
    let runs = Library::new(home::directory()).runs(None, false).await?;
    let earlier =
        runs.into_iter().filter(|run| run.is_redteam).skip_while(|run| run.eval_id != evaluation.id).skip(1);
    for run in earlier {
        let mut rows = Recorded::open(Some(&run.eval_id)).await?;
        let known = rows.evaluation().await?;
        if targets(&known).iter().any(|name| targets(evaluation).contains(name)) {
            return Ok(Some((run.eval_id, findings(&mut rows).await?)));
        }
    }
    Ok(None)
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
