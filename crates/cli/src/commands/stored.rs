//! Stored runs: listing, printing, exporting and deleting them.

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use sandcove_eval::view::Library;
use sandcove_eval::{exchange, home, store};
use serde_json::{Value, json};

use super::count;
use crate::output::{note, out};

/// The things that can be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// runs, newest first
    Evals,
    /// prompts of runs
    Prompts,
    /// datasets: the sets of tests of runs
    Datasets,
}

/// How things are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A line for each.
    Lines,
    /// The id of each.
    Ids,
    /// A JSON array.
    Json,
}

/// Characters of a digest that are printed, which are enough to tell digests apart.
const SHORT: usize = 10;

fn library() -> Library {
    Library::new(home::directory())
}

fn print(lines: impl Iterator<Item = String>) {
    for line in lines {
        out!("{line}");
    }
}

fn text<'a>(entry: &'a Value, pointer: &str) -> &'a str {
    entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The id, how many runs used it, the newest of them.
fn used(entry: &Value) -> String {
    let id: String = text(entry, "/id").chars().take(SHORT).collect();
    let runs = entry["count"].as_u64().unwrap_or(0);
    format!("{id}  {runs} {}  {}", if runs == 1 { "run " } else { "runs" }, text(entry, "/recentEvalId"))
}

/// Prints the newest things of a kind, all of them without a limit.
pub async fn list(kind: Kind, limit: Option<usize>, form: Form) -> Result<()> {
    let library = library();
    let limit = limit.unwrap_or(usize::MAX);
    if kind == Kind::Evals && form != Form::Json {
        let runs = library.runs(None, false).await?.into_iter().take(limit);
        print(runs.map(|run| match form {
            Form::Ids => run.eval_id,
            _ => {
                let [passed, failed, errors] = run.counts;
                let all = passed + failed + errors;
                format!("{}  {passed}/{all} passed  {}", run.eval_id, run.description.unwrap_or_default())
            }
        }));
        return Ok(());
    }
    let mut entries = match kind {
        Kind::Evals => library.runs(None, true).await?.iter().map(|run| json!(run)).collect(),
        Kind::Prompts => library.prompts(None).await?,
        Kind::Datasets => library.datasets().await?,
    };
    entries.truncate(limit);
    match (form, kind) {
        (Form::Json, _) => out!("{}", Value::Array(entries)),
        (Form::Ids, _) => print(entries.iter().map(|entry| text(entry, "/id").to_owned())),
        (Form::Lines, Kind::Datasets) => print(entries.iter().map(|tests| {
            let number = tests["numTests"].as_u64().unwrap_or(0) as usize;
            format!("{}  {}", used(tests), count(number, "test"))
        })),
        (Form::Lines, _) => print(entries.iter().map(|prompt| {
            let label = text(prompt, "/prompt/label").lines().next().unwrap_or_default();
            format!("{}  {label}", used(prompt))
        })),
    }
    Ok(())
}

/// Prints the result document of a run, or a prompt or dataset; the newest run without an id.
pub async fn show(id: Option<&str>) -> Result<()> {
    let library = library();
    let found = match id {
        Some(id) if !library.runs(None, false).await?.iter().any(|run| run.eval_id == id) => {
            let mut known = library.prompts(None).await?;
            known.extend(library.datasets().await?);
            let of_id = |entry: &Value| id.len() >= 6 && text(entry, "/id").starts_with(id);
            known.into_iter().find(of_id).with_context(|| {
                format!("no run, prompt or dataset `{id}` is stored; `sandcove eval list` shows the runs")
            })?
        }
        id => store::document(id).await?,
    };
    print(std::iter::once(serde_json::to_string_pretty(&found)?));
    Ok(())
}

/// Writes a run to a result file, or prints its document; the newest without an id.
pub async fn export(id: Option<&str>, path: Option<&str>) -> Result<()> {
    match path {
        Some(path) => {
            let id = exchange::export(id, path).await?;
            note!("wrote {id} to {path}");
        }
        None => {
            let document = store::document(id).await?;
            print(std::iter::once(serde_json::to_string_pretty(&document)?));
        }
    }
    Ok(())
}

/// Deletes runs, all that are named or none; `latest` stands for the newest.
pub async fn delete(mut ids: Vec<String>) -> Result<()> {
    let library = library();
    for id in ids.iter_mut().filter(|id| *id == "latest") {
        match library.runs(None, false).await?.into_iter().next() {
            Some(newest) => *id = newest.eval_id,
            None => bail!("no run is stored\nhint: `sandcove eval` stores one"),
        }
    }
    Ok(library.forget(&ids).await?)
}
