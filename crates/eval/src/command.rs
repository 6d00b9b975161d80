//! What the `eval` command does, apart from reading its arguments.

use std::time::Duration;

use serde_json::{Value, json};

use crate::config::{self, Findings, LoadOptions, Severity, Suite};
use crate::model::{Evaluation, Object};
use crate::output;
use crate::run::{self, Settings, filter::Filters};
use crate::terminal::{self, Shown};

/// The arguments of the command.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs, reason = "the command line's help describes them")]
pub struct EvalOptions {
    pub load: LoadOptions,
    pub filters: Filters,
    pub concurrency: Option<usize>,
    pub repeat: Option<usize>,
    pub delay: Option<f64>,
    pub no_cache: bool,
    pub outputs: Vec<String>,
    pub no_table: bool,
    pub cell_length: usize,
    pub no_write: bool,
    pub no_progress: bool,
    pub grader: Option<String>,
    pub prefix: Option<String>,
    pub suffix: Option<String>,
    pub allow_empty: bool,
    pub verbose: bool,
    pub check_only: bool,
}

/// Usage, configuration or files are wrong.
const TROUBLE: u8 = 1;
/// There was nothing to run.
const NOTHING: u8 = 2;
/// Tests did not pass, unless `PROMPTFOO_FAILED_TEST_EXIT_CODE` says otherwise.
const FAILED: u8 = 100;

/// Runs an evaluation and returns the exit code of the process. Everything is told on standard output and standard error.
pub async fn eval(options: EvalOptions) -> u8 {
    match try_eval(&options).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            TROUBLE
        }
    }
}

async fn try_eval(options: &EvalOptions) -> Result<u8, String> {
    let mut findings = Findings::default();
    let loaded = config::load(&options.load, &mut findings).await;
    for finding in findings
        .all()
        .iter()
        .filter(|finding| options.verbose || finding.severity > Severity::Notice || options.check_only)
    {
        eprintln!("{finding}");
    }
    let mut suite = loaded.map_err(|error| match std::error::Error::source(&error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    })?;
    affixes(&mut suite, options);
    options.filters.apply(&mut suite, &earlier)?;
    let mut outputs = options.outputs.clone();
    if outputs.is_empty() {
        outputs.extend(
            suite.outputs.iter().map(|path| suite.services.base.join(path).to_string_lossy().into_owned()),
        );
    }
    for path in &outputs {
        output::format_of(path)?;
    }
    let settings = settings(options, &suite.options)?;
    if options.check_only {
        println!(
            "the configuration is valid: {} tests, {} providers, {} prompts",
            suite.tests.len(),
            suite.providers.len(),
            suite.prompts.len()
        );
        return Ok(0);
    }
    if suite.tests.is_empty() || suite.providers.is_empty() || suite.prompts.is_empty() {
        if options.allow_empty {
            return Ok(0);
        }
        eprintln!(
            "error: there is nothing to run: the filters leave no tests, providers or prompts (--allow-empty accepts that)"
        );
        return Ok(NOTHING);
    }
    if !settings.cache {
        eprintln!("Cache is disabled.");
    }
    let shown = Shown::new(options.no_progress, options.no_table, options.cell_length);
    let write = !options.no_write && suite.options.get("write") != Some(&json!(false));
    let concurrency = settings.concurrency;
    let progress = std::cell::RefCell::new(None);
    let mut evaluation = run::run(
        suite,
        settings,
        |rows, id| *progress.borrow_mut() = Some(shown.begin(rows, id, concurrency)),
        |row| {
            if let Some(progress) = &*progress.borrow() {
                progress.row(row);
            }
        },
    )
    .await?;
    drop(progress.take());
    evaluation.runtime_options = runtime_options(options);
    if write {
        crate::store::save(&evaluation).await?;
    }
    terminal::report(&evaluation, &shown);
    for path in &outputs {
        output::write(&evaluation, path)?;
        println!("Writing output to {path}");
    }
    Ok(exit_code(&evaluation))
}

/// The evaluation that a result file holds, or that is stored under an id.
fn earlier(source: &str) -> Result<Evaluation, String> {
    let text = std::fs::read_to_string(source)
        .map_err(|error| format!("failed to read the results `{source}`: {error}"))?;
    let document: Value =
        serde_json::from_str(&text).map_err(|error| format!("`{source}` holds no results: {error}"))?;
    let rows = document.pointer("/results/results").cloned().unwrap_or_default();
    let rows =
        serde_json::from_value(rows).map_err(|error| format!("`{source}` holds no results: {error}"))?;
    Ok(Evaluation { rows, ..Evaluation::default() })
}

fn affixes(suite: &mut Suite, options: &EvalOptions) {
    let given = [("prefix", &options.prefix), ("suffix", &options.suffix)];
    for (key, text) in given.into_iter().filter_map(|(key, text)| text.as_ref().map(|text| (key, text))) {
        for test in &mut suite.tests {
            test.options.entry(key).or_insert(json!(text));
        }
    }
    if let Some(grader) = &options.grader {
        for test in &mut suite.tests {
            test.options.entry("provider").or_insert(json!(grader));
        }
    }
}

fn settings(options: &EvalOptions, config: &Object) -> Result<Settings, String> {
    let number = |key: &str| config.get(key).and_then(Value::as_f64);
    let env = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<f64>().ok());
    let limit = |key: &str, name: &str| {
        let ms = number(key).or_else(|| env(name)).filter(|ms| *ms > 0.0);
        ms.map(|ms| Duration::from_secs_f64(ms / 1000.0))
    };
    let concurrency =
        options.concurrency.or_else(|| number("maxConcurrency").map(|n| n as usize)).unwrap_or(4);
    if concurrency == 0 {
        return Err("-j must be at least 1".to_owned());
    }
    Ok(Settings {
        concurrency,
        repeat: options.repeat.or_else(|| number("repeat").map(|n| n as usize)).unwrap_or(1).max(1),
        delay: options.delay.or_else(|| number("delay")).or_else(|| env("PROMPTFOO_DELAY_MS")),
        cache: !options.no_cache
            && config.get("cache") != Some(&json!(false))
            && !is_off("PROMPTFOO_CACHE_ENABLED"),
        row_limit: limit("timeoutMs", "PROMPTFOO_EVAL_TIMEOUT_MS"),
        run_limit: limit("maxEvalTimeMs", "PROMPTFOO_MAX_EVAL_TIME_MS"),
    })
}

fn is_off(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| matches!(value.to_lowercase().as_str(), "0" | "false" | "no"))
}

fn runtime_options(options: &EvalOptions) -> Value {
    let mut map = Object::new();
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            map.insert(key.to_owned(), value);
        }
    };
    set("maxConcurrency", options.concurrency.map(|n| json!(n)));
    set("repeat", options.repeat.map(|n| json!(n)));
    set("delay", options.delay.map(crate::model::number_value));
    set("cache", options.no_cache.then(|| json!(false)));
    Value::Object(map)
}

/// 0 if enough passed.
fn exit_code(evaluation: &Evaluation) -> u8 {
    let env = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<f64>().ok());
    let wanted = env("PROMPTFOO_PASS_RATE_THRESHOLD").unwrap_or(100.0);
    if evaluation.stats.pass_rate() >= wanted {
        return 0;
    }
    env("PROMPTFOO_FAILED_TEST_EXIT_CODE").map_or(FAILED, |code| code as u8)
}
