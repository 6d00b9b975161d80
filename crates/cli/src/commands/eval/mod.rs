//! `sandcove eval`: runs the evaluation that a `promptfooconfig.yaml` describes.

pub mod args;
pub mod report;
pub mod run;
mod suggest;
mod table;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use sandcove_eval::calling::answers;
use sandcove_eval::exchange::{self, Duplicate};
use sandcove_eval::sandboxes::{Fallback, Server};
use sandcove_eval::scaffold;
use serde_json::json;

use super::candidates;
use super::count;
use super::reach::{Place, Reach, Target};
use super::serve::not_running;
use super::share::share;
use super::stored::{self, Form, Kind};
use super::validate::{ValidateArgs, validate};
use crate::output::{note, out};
use crate::report::described;
use args::{RerunArgs, RunArgs};
use run::{Again, Part, Task};

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
    /// check the configuration without running it, or ask its providers for an answer
    Validate(Box<ValidateArgs>),
    /// run the rows of a stored run that ended with an error again
    Retry {
        /// id of the run
        #[arg(add = candidates::runs())]
        id: String,
        #[command(flatten)]
        run: Box<RunArgs>,
    },
    /// run the suite of a stored run again as it is now, with the options of that run, as a new run
    Rerun {
        /// id of the run [default: the newest run]
        #[arg(add = candidates::runs())]
        id: Option<String>,
        #[command(flatten)]
        run: RerunArgs,
    },
    /// create an example suite
    Init(InitArgs),
    /// list stored runs, prompts or datasets
    List {
        /// things to list
        #[arg(value_enum, default_value = "evals", value_name = "KIND")]
        kind: Kind,
        /// list only so many, the newest
        #[arg(short = 'n', long, value_name = "N")]
        limit: Option<usize>,
        /// print only ids, one on each line
        #[arg(long, conflicts_with = "json")]
        ids_only: bool,
        /// print JSON
        #[arg(long)]
        json: bool,
    },
    /// print a stored run, prompt or dataset as JSON
    Show {
        /// id of a run, prompt or dataset [default: the newest run]
        // `show eval ID` is what others call it.
        #[arg(num_args = 0..=2)]
        #[arg(add = candidates::runs())]
        id: Vec<String>,
        /// print JSON, as without this option
        #[arg(long)]
        json: bool,
    },
    /// delete stored runs
    Delete {
        /// ids of runs; `latest` stands for the newest
        // `delete eval ID` is what others call it.
        #[arg(required = true)]
        #[arg(add = candidates::runs())]
        ids: Vec<String>,
    },
    /// write a stored run to a result file, or to standard output as JSON
    Export {
        /// id of the run; `latest` stands for the newest
        // `export eval ID` is what others call it.
        #[arg(required = true, num_args = 1..=2)]
        #[arg(add = candidates::runs())]
        id: Vec<String>,
        /// result file; the extension decides the format: .json, .jsonl, .csv, .yaml, .xml, .junit.xml or .html
        #[arg(short, long, value_name = "FILE")]
        output: Option<String>,
    },
    /// store the run of a JSON result file, written here or by promptfoo
    Import {
        /// result file
        file: PathBuf,
        /// give the imported run a new id
        #[arg(long, conflicts_with = "force")]
        new_id: bool,
        /// replace a stored run with the same id
        #[arg(long)]
        force: bool,
        /// print JSON
        #[arg(long)]
        json: bool,
    },
    /// show a stored run on the dashboard of your server, to your team, and print the address of its page
    Share {
        /// id of the run [default: the newest run]
        #[arg(add = candidates::runs())]
        id: Option<String>,
        /// write the run to this file instead, such as report.html, a page that needs no server; extensions as for `export`
        #[arg(short, long, value_name = "FILE", conflicts_with = "json")]
        output: Option<String>,
        /// print JSON
        #[arg(long)]
        json: bool,
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
    /// directory, created if missing [default: the name of the example]
    directory: Option<PathBuf>,
    /// example: hello (needs no model), starter (asks a model), offline (needs nothing), code-eval, e2b-code-eval, patch or adapters
    #[arg(long, default_value = scaffold::EXAMPLES[0].name, value_name = scaffold::NAMES)]
    example: String,
    /// accepted for compatibility; the command never asks
    #[arg(long, hide = true)]
    no_interactive: bool,
}

/// Runs the command.
pub async fn eval(args: EvalArgs, place: &Place) -> Result<ExitCode> {
    let (mut run, task) = match args.command {
        Some(EvalCommand::Validate(validated)) => {
            return validate(*validated, &server(&args.reach, place)).await;
        }
        Some(EvalCommand::Retry { id, run }) => {
            (*run, Task::Run(Some(Again { id: Some(id), part: Part::Errors })))
        }
        Some(EvalCommand::Rerun { id, run }) => {
            let id = id.filter(|id| id != "latest");
            (run.into(), Task::Run(Some(Again { id, part: Part::All })))
        }
        Some(EvalCommand::Share { id, output, json }) => {
            let id = id.as_deref().filter(|id| *id != "latest");
            if output.is_some() {
                stored::export(id, output.as_deref()).await?;
                return Ok(ExitCode::SUCCESS);
            }
            let (id, url) = share(&args.reach.client(place)?, id).await?;
            match json {
                true => out!("{}", json!({ "evalId": id, "url": url })),
                false => out!("{url}"),
            }
            return Ok(ExitCode::SUCCESS);
        }
        Some(other) => return manage(other).await,
        None => {
            let again = match &args.run.resume {
                Some(id) => Some(Again { id: id.clone(), part: Part::Rest }),
                None => args.run.retry_errors.then_some(Again { id: None, part: Part::Errors }),
            };
            (args.run, Task::Run(again))
        }
    };
    run.load.directory = std::env::current_dir()?;
    let team = match run.share.then(|| args.reach.client(place)).transpose() {
        Ok(team) => team,
        Err(error) => {
            note!("not shared: {}", described(&error));
            note!("hint: give others a file, as in -o report.html");
            None
        }
    };
    Ok(run::evaluate(&run, &task, &server(&args.reach, place), team.as_ref()).await)
}

/// The server that code runs on: the suite's variables and those of the environment go before the one of this machine.
pub fn server(reach: &Reach, place: &Place) -> Fallback {
    let is_named = reach.is_given() || place.explicit;
    // Variables are looked at later, when those of the suite are known.
    let target = if is_named { reach.target(place) } else { Target::local(place) };
    match target {
        Ok(Some(Target { url, api_key, .. })) => Ok(Server { url, key: api_key, is_named }),
        Ok(None) => Err(not_running(&place.data_dir)),
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

/// Returns the id of what is to be shown, nothing for the newest run: `ID`, `eval ID`, `prompt ID` or `dataset ID`.
///
/// # Errors
/// If two words are something else.
fn shown(words: &[String]) -> Result<Option<&str>> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] | ["eval" | "latest"] | ["eval", "latest"] => Ok(None),
        [id] | ["eval" | "prompt" | "dataset", id] => Ok(Some(id)),
        _ => bail!("unknown run `{}`; use `show ID`", words.join(" ")),
    }
}

/// Runs the commands that manage what is stored.
async fn manage(command: EvalCommand) -> Result<ExitCode> {
    match command {
        EvalCommand::Init(args) => return init(&args),
        EvalCommand::List { kind, limit, ids_only, json } => {
            let form = match (ids_only, json) {
                (true, _) => Form::Ids,
                (_, true) => Form::Json,
                _ => Form::Lines,
            };
            stored::list(kind, limit, form).await?;
        }
        EvalCommand::Show { id, .. } => stored::show(shown(&id)?).await?,
        EvalCommand::Delete { mut ids } => {
            if ids.len() > 1 && ids[0] == "eval" {
                ids.remove(0);
            }
            stored::delete(ids).await?;
        }
        EvalCommand::Export { id, output } => {
            let id = match id.as_slice() {
                [id] => id,
                [what, id] if what == "eval" => id,
                _ => bail!("unknown run `{}`; use `export ID`", id.join(" ")),
            };
            stored::export(Some(id.as_str()).filter(|id| *id != "latest"), output.as_deref()).await?;
        }
        EvalCommand::Import { file, new_id, force, json } => {
            let duplicate = match (new_id, force) {
                (true, _) => Duplicate::Rename,
                (_, true) => Duplicate::Replace,
                _ => Duplicate::Refuse,
            };
            let imported = exchange::import(&file, duplicate).await?;
            if imported.is_known {
                note!("the run is stored already, with the same results");
            }
            match json {
                true => out!("{}", serde_json::json!({ "evalId": imported.id, "known": imported.is_known })),
                false => out!("{}", imported.id),
            }
        }
        EvalCommand::Cache(CacheCommand::Clear) => {
            let removed = answers::clear_cache().context("failed to clear the cache")?;
            out!("removed {}", count(removed, "answer"));
        }
        EvalCommand::Validate(_)
        | EvalCommand::Retry { .. }
        | EvalCommand::Rerun { .. }
        | EvalCommand::Share { .. } => {
            unreachable!("handled with the runs")
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_may_be_named() {
        for (words, id) in [
            ("", None),
            ("eval-1", Some("eval-1")),
            ("eval", None),
            ("eval eval-1", Some("eval-1")),
            ("eval latest", None),
            ("prompt abcdef", Some("abcdef")),
            ("dataset abcdef", Some("abcdef")),
        ] {
            let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            assert_eq!(shown(&words).unwrap(), id);
        }
        assert!(shown(&["eval-1".to_owned(), "eval-2".to_owned()]).is_err());
    }
}
