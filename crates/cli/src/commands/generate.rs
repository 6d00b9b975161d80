//! `sandcove generate`: has a model propose tests and assertions for a suite.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use sandcove_eval::config::Suite;
use sandcove_eval::generate::{self, AssertionOptions, DatasetOptions, place, yaml};
use sandcove_eval::model::Object;
use sandcove_eval::reading::document;
use serde_json::{Value, json};

use super::count;
use super::eval::args::RunArgs;
use super::eval::run::load;
use crate::output::{note, out};

#[derive(Debug, Args)]
pub struct GenerateArgs {
    #[command(subcommand)]
    command: GenerateCommand,
}

#[derive(Debug, Subcommand)]
enum GenerateCommand {
    /// propose tests: values for the variables of the prompts, as different users would write them
    Dataset(DatasetArgs),
    /// propose assertions for all tests: code where it can decide, else questions for a model
    Assertions(AssertionArgs),
}

// What is read, who is asked, and where the result goes. A doc comment would become the description of the command.
#[derive(Debug, Args)]
struct CommonArgs {
    /// configuration [default: promptfooconfig.yaml in this directory]
    // The server's commands have an option of this name too; where both are, their types must be the same.
    #[arg(id = "config", short = 'c', long = "config", num_args = 1.., value_name = "PATH")]
    configs: Vec<PathBuf>,
    /// file to write instead of printing
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// add the result to the configuration
    #[arg(short, long)]
    write: bool,
    /// model to ask [default: the grader of the configuration, else by the keys that are set]
    #[arg(long, value_name = "PROVIDER")]
    provider: Option<String>,
    /// what the model should also know or do
    #[arg(short, long, value_name = "TEXT")]
    instructions: Option<String>,
    /// do not use cached answers
    #[arg(long)]
    no_cache: bool,
    /// files of environment variables, separated by commas
    #[arg(long = "env-file", alias = "env-path", value_delimiter = ',', value_name = "FILE")]
    env_files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
struct DatasetArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// number of users to imagine
    #[arg(long = "numPersonas", alias = "num-personas", default_value_t = 5, value_name = "N")]
    personas: usize,
    /// number of tests for each of them
    #[arg(
        long = "numTestCasesPerPersona",
        alias = "num-test-cases-per-persona",
        default_value_t = 3,
        value_name = "N"
    )]
    per_persona: usize,
}

#[derive(Debug, Args)]
struct AssertionArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// type of assertions that code cannot decide: pi, g-eval or llm-rubric [default: pi if WITHPI_API_KEY is set, else llm-rubric]
    #[arg(short = 't', long = "type", value_parser = ["pi", "g-eval", "llm-rubric"], hide_possible_values = true, value_name = "TYPE")]
    kind: Option<String>,
    /// number of assertions
    #[arg(long = "numAssertions", alias = "num-assertions", default_value_t = 5, value_name = "N")]
    number: usize,
}

/// Runs the command.
pub async fn generate(args: GenerateArgs) -> Result<ExitCode> {
    match args.command {
        GenerateCommand::Dataset(args) => dataset(args).await,
        GenerateCommand::Assertions(args) => assertions(args).await,
    }
}

async fn dataset(args: DatasetArgs) -> Result<ExitCode> {
    let DatasetArgs { common, personas, per_persona } = args;
    let target = Target::new(&common, &["csv", "json", "yaml", "yml"])?;
    let Some(suite) = common.suite().await? else { return Ok(ExitCode::FAILURE) };
    let options = DatasetOptions {
        provider: common.provider.clone(),
        instructions: common.instructions.clone(),
        personas,
        per_persona,
        cache: !common.no_cache,
    };
    let sets = generate::dataset(&suite, &options, &|step| note!("{step}")).await?;
    if sets.len() < personas * per_persona {
        note!("warning: the model proposed only {} that are new and complete", count(sets.len(), "test"));
    }
    let tests: Vec<Value> = sets.iter().map(|vars| json!({"vars": vars})).collect();
    target.deliver("tests", &["tests"], &tests, "test", || generate::table(&sets))
}

async fn assertions(args: AssertionArgs) -> Result<ExitCode> {
    let AssertionArgs { common, kind, number } = args;
    let target = Target::new(&common, &["json", "yaml", "yml"])?;
    let Some(suite) = common.suite().await? else { return Ok(ExitCode::FAILURE) };
    let options = AssertionOptions {
        provider: common.provider.clone(),
        instructions: common.instructions.clone(),
        number,
        kind,
        cache: !common.no_cache,
    };
    let found = generate::assertions(&suite, &options, &|step| note!("{step}")).await?;
    target.deliver("assert", &["defaultTest", "assert"], &found, "assertion", String::new)
}

impl CommonArgs {
    /// The configuration that is read, and that `--write` extends.
    fn config(&self) -> Result<PathBuf> {
        let found = match self.configs.as_slice() {
            [] => document::find(Path::new(".")),
            [path] if path.is_dir() => document::find(path),
            [path] => Some(path.clone()),
            _ => bail!("tests are generated for one configuration; name one with -c"),
        };
        found.context("there is no promptfooconfig.yaml here\nhint: name one with -c, or make one with `sandcove eval init`")
    }

    /// The suite; none when it has errors, which are printed then.
    async fn suite(&self) -> Result<Option<Suite>> {
        let mut args = RunArgs::default();
        args.load.configs = vec![self.config()?];
        args.load.directory = std::env::current_dir()?;
        args.load.env_files.clone_from(&self.env_files);
        // The suite is not run, so it needs no provider that can be reached.
        args.load.providers = vec!["echo".to_owned()];
        load(&args, &Err("generating uses no server".to_owned()), false).await
    }
}

/// The destination of the result, checked before a model is paid.
struct Target {
    output: Option<(PathBuf, String)>,
    config: Option<PathBuf>,
}

impl Target {
    fn new(args: &CommonArgs, formats: &[&str]) -> Result<Self> {
        let output = args.output.as_ref().map(|path| {
            let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
            if !formats.contains(&extension.as_str()) {
                bail!("unknown format `{extension}` of `{}`; use {}", path.display(), formats.join(", "));
            }
            Ok((path.clone(), extension))
        });
        let config = args.write.then(|| args.config()).transpose()?;
        Ok(Self { output: output.transpose()?, config })
    }

    fn deliver(
        &self,
        key: &str,
        place: &[&str],
        items: &[Value],
        noun: &str,
        csv: impl FnOnce() -> String,
    ) -> Result<ExitCode> {
        let number = count(items.len(), noun);
        if let Some((path, format)) = &self.output {
            let text = match format.as_str() {
                "csv" => csv(),
                "json" => {
                    format!("{:#}\n", Value::Object(Object::from_iter([(key.to_owned(), json!(items))])))
                }
                _ => yaml::of_list(key, items),
            };
            std::fs::write(path, text).with_context(|| format!("failed to write `{}`", path.display()))?;
            note!("wrote {number} to {}", path.display());
        }
        if let Some(path) = &self.config {
            let kept = place::add(path, place, items)?;
            note!("added {number} to {}", path.display());
            if !kept {
                note!("warning: the file was written anew, without its comments");
            }
        }
        if self.output.is_none() && self.config.is_none() {
            out!("{}", yaml::of_list(key, items).trim_end());
            note!("--write adds this to the configuration");
        }
        Ok(ExitCode::SUCCESS)
    }
}
