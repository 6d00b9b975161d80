//! `sandcove validate`: checks a configuration without running it, and whether its providers answer.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use sandcove_eval::connectivity::Targets;
use sandcove_eval::reading::Findings;
use sandcove_eval::sandboxes::Fallback;

use super::count;
use super::eval::args::RunArgs;
use super::eval::run::{self, Task, load};
use super::eval::server;
use super::reach::{Place, Reach};
use crate::output::{note, out, plain};

/// Maximum number of characters that are printed of an answer.
const MAX_SHOWN: usize = 100;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ValidateArgs {
    #[command(subcommand)]
    command: Option<ValidateCommand>,
    #[command(flatten)]
    run: RunArgs,
}

// The command as it is called without `eval`, which has the options of servers itself.
#[derive(Debug, Args)]
pub struct TopLevelArgs {
    #[command(flatten)]
    validate: ValidateArgs,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Subcommand)]
enum ValidateCommand {
    /// check the configuration without running it, which is the default
    Config(Box<RunArgs>),
    /// ask providers for an answer to one short prompt
    Target(TargetArgs),
}

#[derive(Debug, Args)]
struct TargetArgs {
    /// id of a provider; with -c its id or label in the configuration
    #[arg(short, long, value_name = "PROVIDER")]
    target: Option<String>,
    /// configuration whose providers are asked
    // The server's commands have an option of this name too; where both are, their types must be the same.
    #[arg(id = "config", short = 'c', long = "config", num_args = 1.., value_name = "PATH")]
    configs: Vec<PathBuf>,
    /// files of environment variables, separated by commas
    #[arg(long = "env-file", alias = "env-path", value_delimiter = ',', value_name = "FILE")]
    env_files: Vec<PathBuf>,
}

/// Runs `sandcove validate`.
pub async fn top_level(args: TopLevelArgs, place: &Place) -> Result<ExitCode> {
    validate(args.validate, &server(&args.reach, place)).await
}

/// Runs the command. Code of models that a provider runs is run on `server`.
pub async fn validate(args: ValidateArgs, server: &Fallback) -> Result<ExitCode> {
    let mut run = match args.command {
        Some(ValidateCommand::Target(args)) => return target(args, server).await,
        Some(ValidateCommand::Config(run)) => *run,
        None => args.run,
    };
    run.load.directory = std::env::current_dir()?;
    Ok(run::evaluate(&run, &Task::Validate, server, None).await)
}

async fn target(args: TargetArgs, server: &Fallback) -> Result<ExitCode> {
    let Some(targets) = targets(args, server).await? else { return Ok(ExitCode::FAILURE) };
    let names: Vec<&str> = targets.names().collect();
    let mut failed = 0;
    for (index, name) in names.iter().enumerate() {
        match targets.ask(index).await {
            Ok(answer) => out!("{name}: answered {}", shortened(&answer.to_string())),
            Err(error) => {
                failed += 1;
                out!("{name}: failed: {}", plain(error.to_string().trim_end().trim_end_matches(':')));
            }
        }
    }
    out!("{} answered, {failed} failed", count(names.len() - failed, "provider"));
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The providers to ask; none when the configuration has errors, which are printed then.
async fn targets(args: TargetArgs, server: &Fallback) -> Result<Option<Targets>> {
    let directory = std::env::current_dir()?;
    if args.configs.is_empty() {
        let Some(id) = &args.target else {
            bail!(
                "nothing names the providers to ask\nhint: name one with -t, or a configuration with -c: `sandcove validate target -c \
                 promptfooconfig.yaml` asks all of its providers"
            );
        };
        let mut findings = Findings::default();
        let targets = Targets::of_id(id, &directory, &args.env_files, server.clone(), &mut findings);
        findings.all().iter().for_each(|finding| note!("{finding}"));
        return Ok(Some(targets));
    }
    let mut run = RunArgs::default();
    run.load.directory = directory;
    run.load.configs = args.configs;
    run.load.env_files = args.env_files;
    let Some(suite) = load(&run, server, false).await? else { return Ok(None) };
    let mut targets = Targets::of_suite(&suite);
    if let Some(name) = &args.target {
        targets.keep(name);
    }
    let is_empty = targets.names().next().is_none();
    match args.target {
        Some(name) if is_empty => bail!("the configuration has no provider `{name}`"),
        None if is_empty => bail!("the configuration has no providers"),
        _ => Ok(Some(targets)),
    }
}

/// The beginning of an answer.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
