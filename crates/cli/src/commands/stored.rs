//! Stored runs: listing, printing, exporting and deleting them.

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use sandcove_eval::view::Library;
use sandcove_eval::{exchange, home, store};
use serde_json::{Value, json};

use super::count;
use crate::output::{note, out};

/// The things that can be listed.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Kind {
    /// runs, newest first
    Evals,
    /// prompts of runs
    Prompts,
    /// datasets: the sets of tests of runs
    Datasets,
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

/// Prints a line for each, or a JSON array.
pub async fn list(kind: Kind, as_json: bool) -> Result<()> {
    let library = library();
    if as_json {
        let all = match kind {
            Kind::Evals => json!(library.runs(None, true).await?),
            Kind::Prompts => json!(library.prompts(None).await?),
            Kind::Datasets => json!(library.datasets().await?),
        };
        out!("{all}");
        return Ok(());
    }
    match kind {
        Kind::Evals => print(library.runs(None, false).await?.into_iter().map(|run| {
            let [passed, failed, errors] = run.counts;
            let all = passed + failed + errors;
            format!("{}  {passed}/{all} passed  {}", run.eval_id, run.description.unwrap_or_default())
        })),
        Kind::Prompts => print(library.prompts(None).await?.iter().map(|prompt| {
            let label = text(prompt, "/prompt/label").lines().next().unwrap_or_default();
            format!("{}  {label}", used(prompt))
        })),
        Kind::Datasets => print(library.datasets().await?.iter().map(|tests| {
            let number = tests["numTests"].as_u64().unwrap_or(0) as usize;
            format!("{}  {}", used(tests), count(number, "test"))
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
