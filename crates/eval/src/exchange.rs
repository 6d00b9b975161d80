//! Stored runs as files, and files as stored runs.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::document::{self, DocumentError};
use crate::model::{Evaluation, Row};
use crate::output::{self, OutputError};
use crate::store::recording::{Recorded, StoredRow, Which};
use crate::store::{self, StoreError};

/// Reason why a run was not exported or imported.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum ExchangeError {
    /// The file to import could not be read.
    #[error("failed to read `{}`", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    /// The file is not JSON.
    #[error("`{}` is not a result file", path.display())]
    NotJson { path: PathBuf, source: serde_json::Error },
    /// The file has no rows.
    #[error("`{}` is not a result file: it has no list of rows at `results.results`", .0.display())]
    NoRows(PathBuf),
    /// The file has a key of the wrong type.
    #[error("`{}` is not a result file", path.display())]
    Document { path: PathBuf, source: DocumentError },
    /// The file has a row that cannot be read.
    #[error("`{}` is not a result file", path.display())]
    Row { path: PathBuf, source: StoreError },
    /// A run with the same id and other results is stored.
    #[error(
        "the run `{0}` is stored already, with other results; --force replaces it, --new-id stores this one beside it"
    )]
    Exists(String),
    /// The runs could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The result file could not be written.
    #[error(transparent)]
    Output(#[from] OutputError),
}

/// Writes a stored run to a result file of any kind; the newest without an id.
///
/// # Errors
/// When there is none, or the file cannot be written.
pub async fn export(id: Option<&str>, path: &str) -> Result<String, ExchangeError> {
    output::format_of(path)?;
    let mut rows = Recorded::open(id).await?;
    let evaluation = rows.evaluation().await?;
    output::write(&evaluation, &mut rows, path).await?;
    Ok(evaluation.id)
}

/// How to import a run whose id is stored already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duplicate {
    /// Refuse to import it, unless it has the same results.
    Refuse,
    /// Replace the stored run.
    Replace,
    /// Give the imported run a new id, in any case.
    Rename,
}

/// A run that was imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// The id of the run.
    pub id: String,
    /// Whether it was stored before with the same results, so that nothing was written.
    pub is_known: bool,
}

/// Imports the run of a JSON result file, written here or by promptfoo.
///
/// # Errors
/// When the file is not a result file, or the run cannot be stored.
pub async fn import(path: &Path, duplicate: Duplicate) -> Result<Imported, ExchangeError> {
    let path_of = || path.to_owned();
    let text = std::fs::read_to_string(path)
        .map_err(|source| ExchangeError::Unreadable { path: path_of(), source })?;
    let mut document: Value =
        serde_json::from_str(&text).map_err(|source| ExchangeError::NotJson { path: path_of(), source })?;
    let Some(Value::Array(rows)) = document.pointer_mut("/results/results").map(Value::take) else {
        return Err(ExchangeError::NoRows(path_of()));
    };
    let mut evaluation = document::evaluation(document)
        .map_err(|source| ExchangeError::Document { path: path_of(), source })?;
    let rows: Vec<Value> = rows.into_iter().map(tidy_row).collect();
    complete(&mut evaluation, &rows);
    let stored = rows.into_iter().map(StoredRow::of_document).collect::<Result<Vec<_>, _>>();
    let stored = stored.map_err(|source| ExchangeError::Row { path: path_of(), source })?;
    if duplicate == Duplicate::Rename {
        evaluation.id = Evaluation::new_id();
    } else if duplicate == Duplicate::Refuse && store::exists(&evaluation.id).await? {
        if is_same(&evaluation.id, &stored).await? {
            return Ok(Imported { id: evaluation.id, is_known: true });
        }
        return Err(ExchangeError::Exists(evaluation.id));
    }
    Recorded::import(&evaluation, &stored).await?;
    // What was written can be read.
    Recorded::open(Some(&evaluation.id)).await?.each(Which::All, |_| Ok::<_, StoreError>(())).await?;
    Ok(Imported { id: evaluation.id, is_known: false })
}

/// Whether the run of this id that is stored has the same rows.
async fn is_same(id: &str, rows: &[StoredRow]) -> Result<bool, StoreError> {
    let mut known = Vec::new();
    let note = |row: Row| {
        known.push(json!(row));
        Ok::<_, StoreError>(())
    };
    Recorded::open(Some(id)).await?.each(Which::All, note).await?;
    let rows = rows.iter().map(|row| row.row().map(|row| json!(row))).collect::<Result<Vec<_>, _>>()?;
    Ok(known == rows)
}

/// Fills in what older files do not say.
fn complete(evaluation: &mut Evaluation, rows: &[Value]) {
    if evaluation.id.is_empty() {
        evaluation.id = Evaluation::new_id();
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
        map.retain(|key, value| {
            !value.is_null() || matches!(key.as_str(), "cost" | "gradingResult" | "response")
        });
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
