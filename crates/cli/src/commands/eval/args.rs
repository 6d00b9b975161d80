//! The options of a run. They are stored with it, under the names of their fields, so that it can be resumed.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use sandcove_eval::config::LoadOptions;
use sandcove_eval::run::RunOptions;
use sandcove_eval::run::filter::Filters;
use sandcove_eval::sandboxes::Fallback;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The format of the printed results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ResultFormat {
    /// A table on a terminal, else the rows that did not pass.
    #[default]
    Text,
    /// The Test Anything Protocol.
    Tap,
    /// Annotations that GitHub shows beside a change.
    GitHub,
}

/// Default of the most characters of a table cell.
const CELL_LENGTH: usize = 250;

#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct RunArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    /// maximum number of concurrent rows [default: 4]
    #[arg(short = 'j', long = "max-concurrency", value_name = "N")]
    pub concurrency: Option<usize>,
    /// number of times to run each test [default: 1]
    #[arg(long, value_name = "N")]
    pub repeat: Option<usize>,
    /// pause after each call, in milliseconds
    #[arg(long, value_name = "MS")]
    pub delay: Option<f64>,
    /// do not use cached answers
    #[arg(long)]
    pub no_cache: bool,
    /// result files; the extension decides the format: .json, .jsonl, .csv, .yaml, .xml, .junit.xml or .html
    #[arg(short, long = "output", num_args = 1.., value_name = "FILE")]
    pub outputs: Vec<String>,
    /// print the table, which is the default on a terminal
    #[arg(long, hide = true, overrides_with = "no_table")]
    #[serde(skip)]
    pub table: bool,
    /// do not print the table
    #[arg(long)]
    pub no_table: bool,
    /// format of the printed results: text, tap or github
    #[arg(long, default_value = "text", value_parser = format)]
    #[serde(skip)]
    pub format: ResultFormat,
    /// maximum length of a printed table cell, characters
    #[arg(long = "table-cell-max-length", default_value_t = CELL_LENGTH, value_name = "N")]
    pub cell_length: usize,
    /// do not store the results
    #[arg(long)]
    pub no_write: bool,
    /// do not show progress
    #[arg(long = "no-progress-bar")]
    pub no_progress: bool,
    /// grading provider, unless the configuration names one
    #[arg(long, value_name = "PROVIDER")]
    pub grader: Option<String>,
    /// have a model write N variants of the first prompt, and choose which of them to test: 1 to 50
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=50))]
    #[serde(skip)]
    pub suggest_prompts: Option<u8>,
    // The variants that were chosen, which the run has when it is resumed too.
    #[arg(skip)]
    pub suggested: Vec<String>,
    /// text to put before every prompt
    #[arg(long = "prompt-prefix", value_name = "TEXT")]
    pub prefix: Option<String>,
    /// text to put after every prompt
    #[arg(long = "prompt-suffix", value_name = "TEXT")]
    pub suffix: Option<String>,
    #[command(flatten)]
    pub filters: FilterArgs,
    /// run again whenever a file of the suite changes
    #[arg(short, long, conflicts_with_all = ["resume", "retry_errors"])]
    #[serde(skip)]
    pub watch: bool,
    /// resume a paused or interrupted run [default: the newest]
    #[arg(long, num_args = 0..=1, value_name = "ID")]
    #[allow(clippy::option_option, reason = "given or not, with an id or without")]
    #[serde(skip)]
    pub resume: Option<Option<String>>,
    /// run the rows of the newest run that ended with an error again
    #[arg(long, conflicts_with = "resume")]
    #[serde(skip)]
    pub retry_errors: bool,
    /// succeed when there is nothing to run
    #[arg(long)]
    pub allow_empty: bool,
    /// print notices about how the configuration was read
    #[arg(long)]
    pub verbose: bool,
    /// accepted for compatibility; results are shared with --share only
    #[arg(long, hide = true)]
    #[serde(skip)]
    pub no_share: bool,
    /// show the run on the dashboard of your server, to your team
    #[arg(long, overrides_with = "no_share")]
    #[serde(skip)]
    pub share: bool,
    /// accepted for compatibility; only the named providers are called
    #[arg(long, hide = true)]
    #[serde(skip)]
    pub remote: bool,
}

// Options that say what the suite is read from. A doc comment would become the description of the command.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadArgs {
    /// configuration: files, directories or globs [default: promptfooconfig.yaml in this directory]
    // The server's commands have an option of this name too; where both are, their types must be the same.
    #[arg(id = "config", short = 'c', long = "config", num_args = 1.., value_name = "PATH")]
    pub configs: Vec<PathBuf>,
    // The directory that the command was started in.
    #[arg(skip)]
    pub directory: PathBuf,
    /// prompts to use instead of the configuration's
    #[arg(short, long, num_args = 1.., value_name = "PROMPT")]
    pub prompts: Vec<String>,
    /// providers to use instead of the configuration's
    #[arg(short = 'r', long, num_args = 1.., value_name = "PROVIDER")]
    pub providers: Vec<String>,
    /// file of tests to use instead of the configuration's
    #[arg(short, long, short_alias = 'v', alias = "vars", value_name = "FILE")]
    pub tests: Option<String>,
    /// tasks of HumanEval, EvalPlus, MBPP or SWE-bench to use instead of the configuration's tests
    #[arg(long, value_name = "FILE", conflicts_with = "tests")]
    pub dataset: Option<String>,
    /// file of assertions about --model-outputs, to use instead of prompts, providers and tests
    #[arg(short, long, value_name = "FILE")]
    pub assertions: Option<String>,
    /// file with a list of outputs to check with --assertions
    #[arg(long, value_name = "FILE")]
    pub model_outputs: Option<String>,
    /// files of environment variables, separated by commas
    #[arg(long = "env-file", alias = "env-path", value_delimiter = ',', value_name = "FILE")]
    pub env_files: Vec<PathBuf>,
    /// variable for every test: name=value
    #[arg(id = "variables", long = "var", value_parser = pair, value_name = "NAME=VALUE")]
    pub vars: Vec<(String, String)>,
    /// label of the run: name=value
    #[arg(long = "tag", value_parser = pair, value_name = "NAME=VALUE")]
    pub tags: Vec<(String, String)>,
    /// description of the run
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,
    /// hooks to call beside the configuration's: file://hooks.py:beforeAll
    #[arg(short = 'x', long = "extension", num_args = 1.., value_name = "HOOK")]
    pub extensions: Vec<String>,
    /// run even if the configuration has errors
    #[arg(long)]
    pub lenient: bool,
    /// fail if the configuration has warnings, such as misspelt keys
    #[arg(long, conflicts_with = "lenient")]
    pub strict: bool,
}

// Options that choose tests, providers and prompts.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct FilterArgs {
    /// only tests whose description matches a regular expression
    #[arg(id = "filter_pattern", long = "filter-pattern", value_name = "REGEX")]
    pub pattern: Option<String>,
    /// only tests with this metadata: name=value
    #[arg(id = "filter_metadata", long = "filter-metadata", value_parser = pair, value_name = "NAME=VALUE")]
    pub metadata: Vec<(String, String)>,
    /// only providers whose id or label matches a regular expression
    #[arg(
        id = "filter_providers",
        long = "filter-providers",
        alias = "filter-targets",
        value_name = "REGEX"
    )]
    pub providers: Option<String>,
    /// only prompts whose id or label matches a regular expression
    #[arg(id = "filter_prompts", long = "filter-prompts", value_name = "REGEX")]
    pub prompts: Option<String>,
    /// only tests a to b - 1, counted from 0: a:b
    #[arg(id = "filter_range", long = "filter-range", value_name = "RANGE")]
    pub range: Option<String>,
    /// only the first N tests
    #[arg(id = "filter_first_n", short = 'n', long = "filter-first-n", value_name = "N")]
    pub first: Option<usize>,
    /// only N tests chosen at random
    #[arg(id = "filter_sample", long = "filter-sample", value_name = "N")]
    pub sample: Option<usize>,
    /// seed for --filter-sample [default: random]
    #[arg(id = "filter_sample_seed", long = "filter-sample-seed", value_name = "SEED")]
    pub seed: Option<u64>,
    /// only tests that did not pass in this result file or run
    #[arg(id = "filter_failing", long = "filter-failing", value_name = "RESULTS")]
    pub failing: Option<String>,
    /// only tests that failed, without errors, in this result file or run
    #[arg(id = "filter_failing_only", long = "filter-failing-only", value_name = "RESULTS")]
    pub failing_only: Option<String>,
    /// only tests that ended with an error in this result file or run
    #[arg(id = "filter_errors_only", long = "filter-errors-only", value_name = "RESULTS")]
    pub errors_only: Option<String>,
}

impl RunArgs {
    /// The options for loading the suite, with the server of this machine for its sandboxes.
    pub fn load_options(&self, server: Fallback) -> LoadOptions {
        let load = self.load.clone();
        LoadOptions {
            configs: load.configs.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
            directory: load.directory,
            prompts: load.prompts,
            providers: load.providers,
            tests: load.tests,
            dataset: load.dataset,
            assertions: load.assertions,
            model_outputs: load.model_outputs,
            env_files: load.env_files,
            vars: load.vars,
            tags: load.tags,
            description: load.description,
            extensions: load.extensions,
            lenient: load.lenient,
            strict: load.strict,
            concurrency: self.concurrency,
            server: Some(server),
        }
    }

    /// The filters. A sample gets a seed, which is stored, so that a resumed run has the same tests.
    pub fn filters(&mut self) -> Filters {
        let filters = &mut self.filters;
        if filters.sample.is_some() {
            filters.seed.get_or_insert_with(Filters::random_seed);
        }
        let filters = filters.clone();
        Filters {
            pattern: filters.pattern,
            metadata: filters.metadata,
            providers: filters.providers,
            prompts: filters.prompts,
            range: filters.range,
            first: filters.first,
            sample: filters.sample,
            seed: filters.seed,
            failing: filters.failing,
            failing_only: filters.failing_only,
            errors_only: filters.errors_only,
        }
    }

    /// The options of the run: those of the configuration, with those of the command line over them.
    pub fn run_options(&self, config: &Map<String, Value>) -> Result<RunOptions> {
        let given = RunOptions::from_config(config);
        let concurrency = self.concurrency.unwrap_or(given.concurrency);
        if concurrency == 0 {
            bail!("-j must be at least 1");
        }
        if self.repeat == Some(0) {
            bail!("--repeat must be at least 1");
        }
        Ok(RunOptions {
            concurrency,
            repeat: self.repeat.unwrap_or(given.repeat).max(1),
            delay: self.delay.or(given.delay),
            cache: given.cache && !self.no_cache,
            shown: self.shown(),
            ..given
        })
    }

    /// The options that result files show.
    fn shown(&self) -> Value {
        let mut map = Map::new();
        let mut set = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                map.insert(key.to_owned(), value);
            }
        };
        set("maxConcurrency", self.concurrency.map(|n| json!(n)));
        set("repeat", self.repeat.map(|n| json!(n)));
        set("delay", self.delay.map(sandcove_eval::model::number_value));
        set("cache", self.no_cache.then(|| json!(false)));
        Value::Object(map)
    }

    /// The options of a stored run that is resumed: those it was started with, apart from how fast it goes, how it is shown, and
    /// where its results are written.
    pub fn resuming(&self, first: Self) -> std::io::Result<Self> {
        let absolute =
            |path: &String| std::path::absolute(path).map(|path| path.to_string_lossy().into_owned());
        let outputs = self.outputs.iter().map(absolute).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            concurrency: self.concurrency.or(first.concurrency),
            delay: self.delay.or(first.delay),
            no_cache: self.no_cache || first.no_cache,
            outputs: if outputs.is_empty() { first.outputs.clone() } else { outputs },
            no_write: self.no_write || first.no_write,
            no_table: self.no_table,
            cell_length: self.cell_length,
            no_progress: self.no_progress,
            verbose: self.verbose,
            format: self.format,
            ..first
        })
    }
}

/// The options of a run that repeats another; the rest are those of that run.
#[derive(Debug, Clone, Args)]
pub struct RerunArgs {
    /// maximum number of concurrent rows [default: as in the earlier run]
    #[arg(short = 'j', long = "max-concurrency", value_name = "N")]
    concurrency: Option<usize>,
    /// do not use cached answers
    #[arg(long)]
    no_cache: bool,
    /// do not store the results
    #[arg(long)]
    no_write: bool,
    /// result files to write instead of the earlier run's
    #[arg(short, long = "output", num_args = 1.., value_name = "FILE")]
    outputs: Vec<String>,
    /// do not print the table
    #[arg(long)]
    no_table: bool,
    /// do not show progress
    #[arg(long = "no-progress-bar")]
    no_progress: bool,
}

impl From<RerunArgs> for RunArgs {
    fn from(given: RerunArgs) -> Self {
        let RerunArgs { concurrency, no_cache, no_write, outputs, no_table, no_progress } = given;
        let cell_length = CELL_LENGTH;
        Self {
            concurrency,
            no_cache,
            no_write,
            outputs,
            no_table,
            no_progress,
            cell_length,
            ..Self::default()
        }
    }
}

fn format(text: &str) -> Result<ResultFormat> {
    Ok(match text {
        "text" => ResultFormat::Text,
        "tap" => ResultFormat::Tap,
        "github" => ResultFormat::GitHub,
        _ => bail!("unknown format `{text}`; use text, tap or github"),
    })
}

fn pair(text: &str) -> Result<(String, String)> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => bail!("`{text}` must be name=value"),
    }
}
