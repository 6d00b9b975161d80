//! Stored runs as files, and files as stored runs.

use std::path::Path;

use serde_json::{Value, json};

use crate::model::{Evaluation, Row};
use crate::output;
use crate::run;
use crate::store::recording::{Recorded, StoredRow};
use crate::store::{self, recording::Which};

/// Writes a stored run to a result file of any kind; the newest without an id.
///
/// # Errors
/// When there is none, or the file cannot be written.
pub async fn export(id: Option<&str>, path: &str) -> Result<String, String> {
    output::format_of(path)?;
    let mut rows = Recorded::open(id).await?;
    let evaluation = rows.evaluation().await?;
    output::write(&evaluation, &mut rows, path).await?;
    Ok(evaluation.id)
}

/// What happens when a run of the same id is stored already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Same {
    /// That is an error.
    Refuse,
    /// The file's goes in its place.
    Replace,
    /// The file's gets an id of its own, in any case.
    Rename,
}

/// A run that was imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// Its id.
    pub id: String,
    /// Whether it was stored before with the same results, so that nothing was written.
    pub is_known: bool,
}

/// Stores the run of a JSON result file, written here or by promptfoo.
///
/// # Errors
/// When the file holds no run, or cannot be stored.
pub async fn import(path: &Path, same: Same) -> Result<Imported, String> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("failed to read `{name}`: {error}"))?;
    let wrong = |error: String| format!("`{name}` holds no results: {error}");
    let mut document: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let Some(Value::Array(rows)) = document.pointer_mut("/results/results").map(Value::take) else {
        return Err(wrong("there is no list of rows at `results.results`".to_owned()));
    };
    let mut evaluation = output::json::evaluation(document).map_err(wrong)?;
    let rows: Vec<Value> = rows.into_iter().map(tidy_row).collect();
    complete(&mut evaluation, &rows);
    let stored =
        rows.into_iter().map(StoredRow::of_document).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    if same == Same::Rename {
        evaluation.id = run::new_id();
    } else if same == Same::Refuse && store::exists(&evaluation.id).await? {
        if is_same(&evaluation.id, &stored).await? {
            return Ok(Imported { id: evaluation.id, is_known: true });
        }
        return Err(format!(
            "the run `{}` is stored already, with other results: --force replaces it, --new-id stores this one beside it",
            evaluation.id
        ));
    }
    Recorded::import(&evaluation, &stored).await?;
    // What was written can be read.
    Recorded::open(Some(&evaluation.id)).await?.each(Which::All, |_| Ok(())).await?;
    Ok(Imported { id: evaluation.id, is_known: false })
}

/// Whether the run of this id that is stored has the same rows.
async fn is_same(id: &str, rows: &[StoredRow]) -> Result<bool, String> {
    let mut known = Vec::new();
    let note = |row: Row| {
        known.push(json!(row));
        Ok(())
    };
    Recorded::open(Some(id)).await?.each(Which::All, note).await?;
    let rows = rows.iter().map(|row| row.row().map(|row| json!(row))).collect::<Result<Vec<_>, _>>()?;
    Ok(known == rows)
}

/// Fills in what older files do not say.
fn complete(evaluation: &mut Evaluation, rows: &[Value]) {
    if evaluation.id.is_empty() {
        evaluation.id = run::new_id();
    }
    if evaluation.created_at.is_empty() {
        evaluation.created_at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
    }
    if evaluation.vars.is_empty() {
        let names = rows.iter().filter_map(|row| row.get("vars")?.as_object()).flat_map(|vars| vars.keys());
        for name in names {
            if !evaluation.vars.contains(name) {
                evaluation.vars.push(name.clone());
            }
        }
    }
}

/// Takes away the nulls that stand for nothing being there.
fn tidy_row(mut row: Value) -> Value {
    if let Value::Object(map) = &mut row {
        map.retain(|key, value| !value.is_null() || matches!(key.as_str(), "gradingResult" | "response"));
        if let Some(verdict) = map.get_mut("gradingResult") {
            tidy_verdict(verdict);
        }
        if let Some(Value::Object(response)) = map.get_mut("response") {
            response.retain(|_, value| !value.is_null());
        }
    }
    row
}

fn tidy_verdict(verdict: &mut Value) {
    let Value::Object(map) = verdict else { return };
    map.retain(|_, value| !value.is_null());
    if let Some(Value::Array(components)) = map.get_mut("componentResults") {
        components.retain(|component| !component.is_null());
        components.iter_mut().for_each(tidy_verdict);
    }
}
