//! `sandcove eval`: runs the evaluation that a `promptfooconfig.yaml` describes.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Error, Result, bail};
use clap::{Args, Subcommand};
use sandcove_eval::code::{Fallback, Server};
use sandcove_eval::command::{self, Again, EvalOptions, Format};
use sandcove_eval::exchange::{self, Same};
use sandcove_eval::scaffold;

use super::count;
use super::reach::{Place, Reach, Target};
use super::serve::not_running;
use super::stored::{self, What};
use crate::output::{note, out};

#[derive(Debug, Args)]
pub struct EvalArgs {
    #[command(subcommand)]
    command: Option<EvalCommand>,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Subcommand)]
enum EvalCommand {
    /// read and check the configuration without running it
    Validate {
        /// what is checked; there is nothing else
        #[arg(value_parser = ["config"], hide = true)]
        what: Option<String>,
        #[command(flatten)]
        run: Box<RunArgs>,
    },
    /// run the rows of a stored run again that ended with an error
    Retry {
        /// which run
        id: String,
        #[command(flatten)]
        run: Box<RunArgs>,
    },
    /// create an example suite
    Init(InitArgs),
    /// list what is stored
    List {
        /// what
        #[arg(value_enum, default_value = "evals")]
        what: What,
    },
    /// print the result document of a stored run, of the newest without an id; or what is known of a prompt or a set of tests
    Show { id: Option<String> },
    /// forget stored runs; `latest` is the newest
    Delete {
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// write a stored run to a result file, or to standard output as JSON
    Export {
        /// which run; `latest` is the newest
        // `export eval ID` is what others call it.
        #[arg(required = true, num_args = 1..=2)]
        id: Vec<String>,
        /// the file; its ending says the kind
        #[arg(short, long)]
        output: Option<String>,
    },
    /// store the run of a JSON result file, written here or by promptfoo
    Import {
        file: PathBuf,
        /// give it an id of its own
        #[arg(long, conflicts_with = "force")]
        new_id: bool,
        /// put it in the place of a run with the same id
        #[arg(long)]
        force: bool,
    },
    /// manage the cache of model answers
    #[command(subcommand)]
    Cache(CacheCommand),
}

#[derive(Debug, Subcommand)]
enum CacheCommand {
    /// remove all cached answers
    Clear,
}

#[derive(Debug, Args)]
struct InitArgs {
    /// directory, created if missing [default: a directory with the name of the example]
    directory: Option<PathBuf>,
    /// which one: hello (needs no model), code-eval, e2b-code-eval or patch
    #[arg(long, default_value = scaffold::EXAMPLES[0].name)]
    example: String,
    /// accepted for compatibility; nothing is asked in any case
    #[arg(long, hide = true)]
    no_interactive: bool,
}

#[derive(Debug, Args)]
struct RunArgs {
    /// configuration: file, directory or glob; may be given several times [default: promptfooconfig.yaml here]
    // The server's commands have an option of this name too; where both are, their types must be the same.
    #[arg(short, long = "config", num_args = 1..)]
    config: Vec<PathBuf>,
    /// prompts instead of the configuration's
    #[arg(short, long, num_args = 1..)]
    prompts: Vec<String>,
    /// providers instead of the configuration's
    #[arg(short = 'r', long, num_args = 1..)]
    providers: Vec<String>,
    /// file of tests instead of the configuration's
    #[arg(short, long, short_alias = 'v', alias = "vars")]
    tests: Option<String>,
    /// file of assertions about the outputs of --model-outputs, instead of prompts, providers and tests
    #[arg(short, long)]
    assertions: Option<String>,
    /// file with a list of outputs that are there already
    #[arg(long)]
    model_outputs: Option<String>,
    /// a variable for every test: name=value
    #[arg(long = "var", value_parser = pair)]
    vars: Vec<(String, String)>,
    /// a label of the run: name=value
    #[arg(long = "tag", value_parser = pair)]
    tags: Vec<(String, String)>,
    /// what the run is about
    #[arg(long)]
    description: Option<String>,
    /// rows at a time
    #[arg(short = 'j', long)]
    max_concurrency: Option<usize>,
    /// how often each test is run
    #[arg(long)]
    repeat: Option<usize>,
    /// milliseconds to wait after each call
    #[arg(long)]
    delay: Option<f64>,
    /// do not take answers from the cache
    #[arg(long)]
    no_cache: bool,
    /// result files; the ending says the kind
    #[arg(short, long, num_args = 1..)]
    output: Vec<String>,
    /// print the table, which is done on a terminal in any case
    #[arg(long, hide = true, overrides_with = "no_table")]
    table: bool,
    /// do not print the table
    #[arg(long)]
    no_table: bool,
    /// how results are printed: text, tap or github
    #[arg(long, default_value = "text", value_parser = format)]
    format: Format,
    /// characters of a cell that are shown
    #[arg(long, default_value_t = 250)]
    table_cell_max_length: usize,
    /// do not keep the results in the database
    #[arg(long)]
    no_write: bool,
    /// do not show progress
    #[arg(long)]
    no_progress_bar: bool,
    /// the provider that grades, unless the configuration names one
    #[arg(long)]
    grader: Option<String>,
    /// files of environment variables
    #[arg(long = "env-file", alias = "env-path", value_delimiter = ',')]
    env_files: Vec<PathBuf>,
    /// only tests whose description matches this regular expression
    #[arg(long)]
    filter_pattern: Option<String>,
    /// only tests with this metadata: name=value
    #[arg(long, value_parser = pair)]
    filter_metadata: Vec<(String, String)>,
    /// only providers whose id or label matches this regular expression
    #[arg(long, alias = "filter-targets")]
    filter_providers: Option<String>,
    /// only prompts whose id or label matches this regular expression
    #[arg(long)]
    filter_prompts: Option<String>,
    /// only tests from one number to another, counted from 0: a:b
    #[arg(long)]
    filter_range: Option<String>,
    /// only the first tests
    #[arg(short = 'n', long)]
    filter_first_n: Option<usize>,
    /// only this many tests, chosen at random
    #[arg(long)]
    filter_sample: Option<usize>,
    /// makes the choice of --filter-sample the same every time
    #[arg(long)]
    filter_sample_seed: Option<u64>,
    /// only tests that did not pass in this result file or run
    #[arg(long)]
    filter_failing: Option<String>,
    /// only tests that failed, without errors, in this result file or run
    #[arg(long)]
    filter_failing_only: Option<String>,
    /// only tests that ended with an error in this result file or run
    #[arg(long)]
    filter_errors_only: Option<String>,
    /// text before every prompt
    #[arg(long)]
    prompt_prefix: Option<String>,
    /// text after every prompt
    #[arg(long)]
    prompt_suffix: Option<String>,
    /// run again whenever a file changes that the run is made from
    #[arg(short, long, conflicts_with_all = ["resume", "retry_errors"])]
    watch: bool,
    /// hooks that are called beside the configuration's: file://hooks.py:beforeAll
    #[arg(short = 'x', long = "extension", num_args = 1..)]
    extensions: Vec<String>,
    /// go on with a run that was paused or ended early, the newest without an id
    #[arg(long, num_args = 0..=1, value_name = "ID")]
    #[allow(clippy::option_option, reason = "given or not, with an id or without")]
    resume: Option<Option<String>>,
    /// run the rows of the newest run again that ended with an error, and add up anew
    #[arg(long, conflicts_with = "resume")]
    retry_errors: bool,
    /// go on when the configuration has errors
    #[arg(long)]
    lenient: bool,
    /// fail when the configuration has warnings, such as misspelt keys
    #[arg(long, conflicts_with = "lenient")]
    strict: bool,
    /// succeed also when there is nothing to run
    #[arg(long)]
    allow_empty: bool,
    /// tell how things were understood
    #[arg(long)]
    verbose: bool,
    /// accepted for compatibility; results are never sent anywhere
    #[arg(long, hide = true)]
    no_share: bool,
    /// accepted for compatibility; nothing but the providers named is ever called
    #[arg(long, hide = true)]
    remote: bool,
}

/// Runs it.
pub async fn eval(args: EvalArgs, place: &Place) -> Result<ExitCode> {
    let (run, check_only, retried) = match args.command {
        Some(EvalCommand::Validate { run, .. }) => (*run, true, None),
        Some(EvalCommand::Retry { id, run }) => (*run, false, Some(id)),
        Some(other) => return run_nothing(other).await,
        None => (args.run, false, None),
    };
    let again = match (retried, run.resume) {
        (Some(id), _) => Some(Again { id: Some(id), errors: true }),
        (None, Some(id)) => Some(Again { id, errors: false }),
        (None, None) => run.retry_errors.then_some(Again { id: None, errors: true }),
    };
    let options = EvalOptions {
        load: sandcove_eval::config::LoadOptions {
            configs: run.config.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
            directory: std::env::current_dir()?,
            prompts: run.prompts,
            providers: run.providers,
            tests: run.tests,
            assertions: run.assertions,
            model_outputs: run.model_outputs,
            env_files: run.env_files,
            vars: run.vars,
            tags: run.tags,
            description: run.description,
            extensions: run.extensions,
            lenient: run.lenient,
            concurrency: run.max_concurrency,
            strict: run.strict,
            server: Some(server(&args.reach, place)),
        },
        filters: sandcove_eval::run::filter::Filters {
            pattern: run.filter_pattern,
            metadata: run.filter_metadata,
            providers: run.filter_providers,
            prompts: run.filter_prompts,
            range: run.filter_range,
            first: run.filter_first_n,
            sample: run.filter_sample,
            seed: run.filter_sample_seed,
            failing: run.filter_failing,
            failing_only: run.filter_failing_only,
            errors_only: run.filter_errors_only,
        },
        concurrency: run.max_concurrency,
        repeat: run.repeat,
        delay: run.delay,
        no_cache: run.no_cache,
        outputs: run.output,
        no_table: run.no_table,
        cell_length: run.table_cell_max_length,
        no_write: run.no_write,
        no_progress: run.no_progress_bar,
        grader: run.grader,
        prefix: run.prompt_prefix,
        suffix: run.prompt_suffix,
        allow_empty: run.allow_empty,
        verbose: run.verbose,
        check_only,
        format: run.format,
        watch: run.watch,
        again,
    };
    Ok(ExitCode::from(command::eval(options).await))
}

/// The server that code runs on: the suite's variables and those of the environment go before the one of this machine.
fn server(reach: &Reach, place: &Place) -> Fallback {
    let is_named = reach.is_given() || place.explicit;
    // Variables are looked at later, when those of the suite are known.
    let target = if is_named { reach.target(place) } else { Target::local(place) };
    match target {
        Ok(Some(Target { url, api_key, .. })) => Ok(Server { url, key: api_key, is_named }),
        Ok(None) => Err(not_running(None)),
        Err(error) => Err(format!("{error:#}; set E2B_API_URL and E2B_API_KEY")),
    }
}

fn init(args: &InitArgs) -> Result<ExitCode> {
    let directory = args.directory.clone().unwrap_or_else(|| PathBuf::from(&args.example));
    for path in scaffold::write(&args.example, &directory)? {
        out!("{}", path.display());
    }
    out!("read {} first", directory.join("README.md").display());
    Ok(ExitCode::SUCCESS)
}

/// The commands that run nothing.
async fn run_nothing(command: EvalCommand) -> Result<ExitCode> {
    match command {
        EvalCommand::Init(args) => return init(&args),
        EvalCommand::List { what } => stored::list(what).await?,
        EvalCommand::Show { id } => stored::show(id.as_deref()).await?,
        EvalCommand::Delete { ids } => stored::delete(ids).await?,
        EvalCommand::Export { id, output } => {
            let id = match id.as_slice() {
                [id] => id,
                [what, id] if what == "eval" => id,
                _ => bail!("unknown run `{}`; use `export ID`", id.join(" ")),
            };
            stored::export(Some(id.as_str()).filter(|id| *id != "latest"), output.as_deref()).await?;
        }
        EvalCommand::Import { file, new_id, force } => {
            let same = match (new_id, force) {
                (true, _) => Same::Rename,
                (_, true) => Same::Replace,
                _ => Same::Refuse,
            };
            let imported = exchange::import(&file, same).await.map_err(Error::msg)?;
            if imported.is_known {
                note!("the run is stored already, with the same results");
            }
            out!("{}", imported.id);
        }
        EvalCommand::Cache(CacheCommand::Clear) => {
            let answers =
                sandcove_eval::provider::answers::clear_cache().context("failed to clear the cache")?;
            out!("removed {}", count(answers, "answer"));
        }
        EvalCommand::Validate { .. } | EvalCommand::Retry { .. } => unreachable!("handled with the runs"),
    }
    Ok(ExitCode::SUCCESS)
}

fn format(text: &str) -> Result<Format> {
    Ok(match text {
        "text" => Format::Text,
        "tap" => Format::Tap,
        "github" => Format::GitHub,
        _ => bail!("unknown format `{text}`; use text, tap or github"),
    })
}

fn pair(text: &str) -> Result<(String, String)> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => bail!("`{text}` must be name=value"),
    }
}
