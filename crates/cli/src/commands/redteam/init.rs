//! `sandcove redteam init`: asks what is attacked, and writes the configuration.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use sandcove_eval::config::attacks::BESIDE;
use sandcove_eval::output::document_as_yaml;
use sandcove_redteam::plugin::{self, Plugin};
use sandcove_redteam::strategy::{self, Strategy};
use serde_json::{Map, Value, json};

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

/// Types of targets, with their usual ids.
const TYPES: &[(&str, &str)] = &[
    ("validator", "file://./validate_and_run_code_e2b.py"),
    ("sandbox", "sandbox"),
    ("script", "file://./target.py"),
    ("http", "http://127.0.0.1:8000/chat"),
    ("model", "openai:gpt-4.1"),
];

/// Writes a configuration.
pub(super) fn init(args: &InitArgs) -> Result<ExitCode> {
    let answers = Answers { asks: !args.no_interactive };
    let kinds: Vec<&str> = TYPES.iter().map(|(name, _)| *name).collect();
    let given = args.target_type.clone().or_else(|| args.target.as_ref().map(|_| "script".to_owned()));
    let kind = match given {
        Some(kind) => kind,
        None => {
            answers.ask(&format!("target type ({}; `custom` is a script)", kinds.join(", ")), "validator")?
        }
    };
    let kind = if kind == "custom" { "script".to_owned() } else { kind };
    let Some((_, usual)) = TYPES.iter().find(|(name, _)| *name == kind) else {
        bail!("unknown target type `{kind}`; use {}", kinds.join(", "));
    };
    let name = or_ask(args.name.as_ref(), || answers.ask("target name", "code-sandbox"))?;
    let id = or_ask(args.target.as_ref(), || answers.ask("target id", usual))?;
    let config = or_ask(args.target_config.as_ref(), || answers.ask("target settings, as JSON", "{}"))?;
    let config: Value =
        serde_json::from_str(&config).with_context(|| format!("the settings are no JSON: {config}"))?;
    let config = match config {
        Value::Object(map) => map,
        _ => bail!("the settings of a target must be a JSON object"),
    };
    let purpose = purpose(args, &answers)?;
    let plugins = list(&args.plugins, || {
        answers.ask("plugins, separated by commas (`recommended`: all probes)", "recommended")
    })?;
    let strategies = list(&args.strategies, || {
        answers.ask(
            "strategies, separated by commas",
            "basic, code-injection, sandbox-bypass, jailbreak:composite, malicious-patches",
        )
    })?;
    review(&plugins, &strategies)?;
    let mut target = Map::new();
    target.insert("id".to_owned(), json!(id));
    target.insert("label".to_owned(), json!(name));
    if !config.is_empty() {
        target.insert("config".to_owned(), Value::Object(config));
    }
    let document = json!({
        "description": format!("Red team of {name}"),
        "targets": [target],
        "redteam": {"purpose": purpose, "plugins": plugins, "strategies": strategies},
    });
    let text = format!(
        "# A red team. Run it with `sandcove redteam run`; `sandcove redteam plugins` lists what can be asked for.\n{}",
        document_as_yaml(&document)
    );
    note!("\n{text}");
    if !matches!(answers.ask("write it (yes, no)", "yes")?.as_str(), "yes" | "y") {
        bail!("nothing was written");
    }
    let path = write(args, &text)?;
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

/// The purpose in a text, from several answers.
fn purpose(args: &InitArgs, answers: &Answers) -> Result<String> {
    if let Some(purpose) = &args.purpose {
        return Ok(purpose.clone());
    }
    let mut text = answers
        .ask("purpose of the target", "Runs generated code in a sandbox, after a check of what it does.")?;
    for (question, name) in
        [("key features", "Key features"), ("industry", "Industry"), ("what it must not do", "Restrictions")]
    {
        let answer = answers.ask(question, "")?;
        if !answer.is_empty() {
            text.push_str(&format!("\n{name}: {answer}"));
        }
    }
    Ok(text)
}

/// Checks the names, and says what will be skipped.
fn review(plugins: &[String], strategies: &[String]) -> Result<()> {
    for id in plugins {
        match plugin::resolve(id) {
            Plugin::Unknown => bail!("unknown plugin `{id}`; `sandcove redteam plugins` lists them"),
            Plugin::Unavailable(why) => note!("plugin {id} will be skipped: {why}"),
            Plugin::Probes(_) | Plugin::Intent => {}
        }
    }
    for id in strategies {
        match strategy::resolve(id, &[]) {
            Strategy::Unknown => bail!("unknown strategy `{id}`; `sandcove redteam plugins` lists them"),
            Strategy::Unavailable(why) => note!("strategy {id} will be skipped: {why}"),
            _ => {}
        }
    }
    Ok(())
}

/// Writes the configuration under its usual name, or beside one that is there.
fn write(args: &InitArgs, text: &str) -> Result<PathBuf> {
    let directory = args.directory.clone().unwrap_or_else(|| ".".into());
    std::fs::create_dir_all(&directory)
        .with_context(|| format!("failed to create `{}`", directory.display()))?;
    let usual = directory.join("promptfooconfig.yaml");
    let path = match usual.exists() && !args.force {
        true => {
            note!("promptfooconfig.yaml is there already, so the red team gets a file of its own.");
            directory.join(BESIDE)
        }
        false => usual,
    };
    if path.exists() && !args.force {
        bail!("`{}` exists; --force replaces it", path.display());
    }
    std::fs::write(&path, text).with_context(|| format!("failed to write `{}`", path.display()))?;
    Ok(path)
}
