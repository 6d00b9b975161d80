//! `sandcove redteam init`: asks what is attacked, and writes the configuration.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use sandcove_eval::config::attacks::BESIDE;
use sandcove_eval::config::draft::{self, Draft, KINDS, TargetKind};
use serde_json::Value;

use crate::output::{note, out};

#[derive(Debug, Args)]
pub(super) struct InitArgs {
    /// directory, created if missing [default: this directory]
    directory: Option<PathBuf>,
    /// ask nothing; take the options and the defaults
    #[arg(long)]
    no_interactive: bool,
    /// accepted for compatibility; questions are asked in the terminal
    #[arg(long, hide = true)]
    no_gui: bool,
    /// type of the target: validator, sandbox, script, http or model
    #[arg(long, value_name = "TYPE")]
    target_type: Option<String>,
    /// id of the target, such as file://./validate_and_run_code_e2b.py
    #[arg(long, value_name = "ID")]
    target: Option<String>,
    /// name of the target in reports
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// settings of the target, as JSON
    #[arg(long, value_name = "JSON")]
    target_config: Option<String>,
    /// purpose of the target
    #[arg(long, value_name = "TEXT")]
    purpose: Option<String>,
    /// plugins, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "ID")]
    plugins: Vec<String>,
    /// strategies, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "ID")]
    strategies: Vec<String>,
    /// replace a file that exists
    #[arg(long)]
    force: bool,
}

/// The answers of a user, one line each; none of them when nothing is asked.
struct Answers {
    asks: bool,
}

impl Answers {
    /// Asks a question; an empty line is the default.
    fn ask(&self, question: &str, default: &str) -> Result<String> {
        if !self.asks {
            return Ok(default.to_owned());
        }
        let hint = if default.is_empty() { String::new() } else { format!(" [{default}]") };
        let mut stderr = std::io::stderr().lock();
        let _ = write!(stderr, "{question}{hint}: ");
        let _ = stderr.flush();
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line).context("failed to read the answer")?;
        let answer = line.trim();
        Ok(if answer.is_empty() { default.to_owned() } else { answer.to_owned() })
    }
}

/// Writes a configuration.
pub(super) fn init(args: &InitArgs) -> Result<ExitCode> {
    let answers = Answers { asks: !args.no_interactive };
    let kinds: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
    let given = args.target_type.clone().or_else(|| args.target.as_ref().map(|_| "script".to_owned()));
    let kind = match given {
        Some(kind) => kind,
        None => {
            answers.ask(&format!("target type ({}; `custom` is a script)", kinds.join(", ")), kinds[0])?
        }
    };
    let kind = if kind == "custom" { "script".to_owned() } else { kind };
    let Some(TargetKind { usual, .. }) = KINDS.iter().find(|known| known.name == kind) else {
        bail!("unknown target type `{kind}`; use {}", kinds.join(", "));
    };
    let name = or_ask(args.name.as_ref(), || answers.ask("target name", draft::NAME))?;
    let id = or_ask(args.target.as_ref(), || answers.ask("target id", usual))?;
    let config = or_ask(args.target_config.as_ref(), || answers.ask("target settings, as JSON", "{}"))?;
    let config: Value =
        serde_json::from_str(&config).with_context(|| format!("the settings are no JSON: {config}"))?;
    let Value::Object(config) = config else { bail!("the settings of a target must be a JSON object") };
    let mut draft = Draft { name, id, config, ..Draft::default() };
    match &args.purpose {
        Some(purpose) => draft.purpose.clone_from(purpose),
        None => {
            draft.purpose = answers.ask("purpose of the target", draft::PURPOSE)?;
            draft.features = answers.ask("key features", "")?;
            draft.industry = answers.ask("industry", "")?;
            draft.restrictions = answers.ask("what it must not do", "")?;
        }
    }
    draft.plugins = list(&args.plugins, || {
        answers.ask("plugins, separated by commas (`recommended`: all probes)", &draft::PLUGINS.join(", "))
    })?;
    draft.strategies = list(&args.strategies, || {
        answers.ask("strategies, separated by commas", &draft::STRATEGIES.join(", "))
    })?;
    draft.review()?.iter().for_each(|skipped| note!("{skipped}"));
    note!("\n{}", draft.text());
    if !matches!(answers.ask("write it (yes, no)", "yes")?.as_str(), "yes" | "y") {
        bail!("nothing was written");
    }
    let directory = args.directory.clone().unwrap_or_else(|| ".".into());
    let path = draft.write(&directory, args.force)?;
    if path.ends_with(BESIDE) {
        note!("promptfooconfig.yaml is there already, so the red team gets a file of its own.");
    }
    out!("{}", path.display());
    note!("Run it with: sandcove redteam run");
    Ok(ExitCode::SUCCESS)
}

fn or_ask(given: Option<&String>, ask: impl FnOnce() -> Result<String>) -> Result<String> {
    given.map_or_else(ask, |text| Ok(text.clone()))
}

fn list(given: &[String], ask: impl FnOnce() -> Result<String>) -> Result<Vec<String>> {
    if !given.is_empty() {
        return Ok(given.to_vec());
    }
    Ok(ask()?.split(',').map(|id| id.trim().to_owned()).filter(|id| !id.is_empty()).collect())
}
