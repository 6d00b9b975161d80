//! What the `eval` command does, apart from reading its arguments.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::config::{self, ConfigError, Findings, LoadOptions, Severity, Suite};
use crate::model::{Evaluation, Object};
use crate::output;
use crate::run::{self, Control, End, Outcome, Settings, Start, filter::Filters};
use crate::store::{self, recording::Keep};
use crate::terminal::{self, Shown, count, note};

pub use crate::terminal::Format;
use crate::watch::Sources;

/// The arguments of the command.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
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
    #[serde(skip)]
    pub format: Format,
    #[serde(skip)]
    pub watch: bool,
    #[serde(skip)]
    pub again: Option<Again>,
}

/// A stored run to go on with.
#[derive(Debug, Clone)]
pub struct Again {
    /// Its id; the newest without.
    pub id: Option<String>,
    /// Whether rows with errors are run again.
    pub errors: bool,
}

/// Usage, configuration or files are wrong.
const TROUBLE: u8 = 1;
/// There was nothing to run.
const NOTHING: u8 = 2;
/// Tests did not pass, unless `PROMPTFOO_FAILED_TEST_EXIT_CODE` says otherwise.
const FAILED: u8 = 100;
/// Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Runs an evaluation and returns the exit code of the process. Everything is told on standard output and standard error.
pub async fn eval(options: EvalOptions) -> u8 {
    let mut sources = sources(&options);
    loop {
        let code = try_eval(&options, &mut sources).await.unwrap_or_else(|error| {
            note(format!("error: {error}"));
            TROUBLE
        });
        if !options.watch {
            return code;
        }
        note("\nWaiting for changes; Ctrl-C ends it.");
        for path in sources.changed().await {
            let own = path.strip_prefix(&options.load.directory).unwrap_or(&path);
            note(format!("\n=== {} changed", own.display()));
        }
    }
}

/// What the command line says that a run is made from.
fn sources(options: &EvalOptions) -> Sources {
    let load = &options.load;
    let configs = load.configs.iter().chain(&load.prompts).chain(&load.providers).chain(&load.tests);
    let configs = configs.chain(&load.assertions).chain(&load.model_outputs);
    let mut sources = Sources::new(&load.directory, configs.map(PathBuf::from).chain(load.env_files.clone()));
    sources.leave_out(&options.outputs);
    sources.remember();
    sources
}

async fn try_eval(options: &EvalOptions, sources: &mut Sources) -> Result<u8, String> {
    let mut options = options.clone();
    let again = match options.again.take() {
        Some(again) => Some(go_on(&mut options, again).await?),
        None => None,
    };
    // Who goes on with the run must choose the same.
    if options.filters.sample.is_some() {
        options.filters.seed.get_or_insert_with(rand::random);
    }
    let mut findings = Findings::default();
    let loaded = config::load(&options.load, &mut findings).await;
    for finding in findings
        .all()
        .iter()
        .filter(|finding| options.verbose || finding.severity > Severity::Notice || options.check_only)
    {
        note(finding);
    }
    let mut suite = match loaded {
        Ok(suite) => suite,
        // What is wrong was told.
        Err(ConfigError::Invalid) => return Ok(TROUBLE),
        Err(error) => {
            let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
            return Err(format!("{error}{}", source.unwrap_or_default()));
        }
    };
    affixes(&mut suite, &options);
    options.filters.apply(&mut suite).await?;
    let mut outputs = options.outputs.clone();
    if outputs.is_empty() {
        outputs.extend(
            suite.outputs.iter().map(|path| suite.services.base.join(path).to_string_lossy().into_owned()),
        );
    }
    for path in &outputs {
        output::format_of(path)?;
    }
    if options.watch {
        sources.leave_out(&outputs);
        suite.raw.values().for_each(|value| sources.refer(&suite.services.base, value));
        sources.remember();
    }
    let settings = settings(&options, &suite.options)?;
    if options.check_only {
        terminal::print(&format!(
            "the configuration is valid: {}, {}, {}\n",
            count(suite.tests.len(), "test"),
            count(suite.providers.len(), "provider"),
            count(suite.prompts.len(), "prompt")
        ))?;
        return Ok(0);
    }
    if suite.tests.is_empty() || suite.providers.is_empty() || suite.prompts.is_empty() {
        if options.allow_empty {
            return Ok(0);
        }
        note(
            "error: there is nothing to run: the filters leave no tests, providers or prompts (--allow-empty accepts that)",
        );
        return Ok(NOTHING);
    }
    if !settings.cache {
        note("Cache is disabled.");
    }
    let shown = Shown::new(options.no_progress, options.no_table, options.cell_length, options.format);
    let write = !options.no_write && suite.options.get("write") != Some(&json!(false));
    let keep = if write { Keep::Stored } else { Keep::ForNow };
    let start = again.unwrap_or_else(|| Start::New { keep, invocation: json!(options) });
    let progress = std::cell::RefCell::new(None);
    let control = Control {
        start,
        interrupts: interrupts(keep),
        begin: &mut |rows, concurrency, id| {
            *progress.borrow_mut() = Some(shown.begin(rows, id, concurrency));
        },
        each: &mut |passed| {
            if let Some(progress) = &*progress.borrow() {
                progress.row(passed);
            }
        },
        pausing: &mut |under_way| {
            let rows = count(under_way, "row");
            note(format!("Pausing: waiting for {rows} in flight; Ctrl-C again gives up on them."));
        },
    };
    let Outcome { evaluation, mut rows, end, after } = run::run(suite, settings, control).await?;
    drop(progress.take());
    if end != End::Finished {
        if write {
            note(format!(
                "Paused with {} done. Go on with: sandcove eval --resume {}",
                count(evaluation.stats.total(), "row"),
                evaluation.id
            ));
        }
        // Code that does not stop by itself must not keep the process.
        std::process::exit(i32::from(INTERRUPTED));
    }
    terminal::report(&evaluation, &mut rows, &shown).await?;
    for path in &outputs {
        output::write(&evaluation, &mut rows, path).await?;
        note(format!("Writing output to {path}"));
    }
    after?;
    Ok(exit_code(&evaluation))
}

/// Makes `options` those that a stored run was begun with, but for how it is shown and how fast it goes.
async fn go_on(options: &mut EvalOptions, again: Again) -> Result<Start, String> {
    if !options.load.configs.is_empty() {
        note("-c has no effect: the run continues with the configuration it began with");
    }
    let (id, invocation) = store::invocation(again.id.as_deref()).await?;
    let first: EvalOptions = serde_json::from_value(invocation)
        .map_err(|error| format!("`{id}` cannot be gone on with: {error}"))?;
    let absolute = |path: &String| std::path::absolute(path).map(|path| path.to_string_lossy().into_owned());
    let outputs: Result<Vec<String>, _> = options.outputs.iter().map(absolute).collect();
    let outputs = outputs.map_err(|error| error.to_string())?;
    std::env::set_current_dir(&first.load.directory)
        .map_err(|error| format!("failed to enter `{}`: {error}", first.load.directory.display()))?;
    *options = EvalOptions {
        concurrency: options.concurrency.or(first.concurrency),
        delay: options.delay.or(first.delay),
        no_cache: options.no_cache || first.no_cache,
        outputs: if outputs.is_empty() { first.outputs.clone() } else { outputs },
        no_table: options.no_table,
        cell_length: options.cell_length,
        no_progress: options.no_progress,
        verbose: options.verbose,
        format: options.format,
        ..first
    };
    Ok(Start::Again { id, errors: again.errors })
}

/// A message for every Ctrl-C from now on. A run that is not kept cannot pause.
fn interrupts(keep: Keep) -> mpsc::Receiver<()> {
    let (send, receive) = mpsc::channel(2);
    tokio::spawn(async move {
        while tokio::signal::ctrl_c().await.is_ok() {
            let mut heard = send.send(()).await.is_ok();
            if keep == Keep::ForNow {
                heard = send.send(()).await.is_ok();
            }
            if !heard {
                std::process::exit(i32::from(INTERRUPTED));
            }
        }
    });
    receive
}

/// What the command line says about all tests: affixes go before those of `defaultTest`, the grader after it.
fn affixes(suite: &mut Suite, options: &EvalOptions) {
    let given = [("prefix", &options.prefix), ("suffix", &options.suffix), ("provider", &options.grader)];
    for (key, text) in given.into_iter().filter_map(|(key, text)| text.as_ref().map(|text| (key, text))) {
        let defaults = suite.default_test.entry("options").or_insert_with(|| json!({}));
        if let Value::Object(defaults) = defaults
            && (key != "provider" || !defaults.contains_key(key))
        {
            defaults.insert(key.to_owned(), json!(text));
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
        shown: runtime_options(options),
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
