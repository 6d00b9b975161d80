//! Stored runs: a SQLite database in the directory of [`crate::home`].

pub mod recording;
mod strip;
pub use strip::columns as strip_columns;

use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde_json::Value;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{Connection, Row as _, SqliteConnection};

use crate::document::DocumentError;
use crate::home::{directory, own_directory};
use crate::model::Object;

/// Reason why stored runs could not be read or written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum StoreError {
    /// The database could not be opened.
    #[error("failed to open `{}`: {reason} (--no-write keeps no results)", path.display())]
    Open { path: PathBuf, reason: String },
    /// The database of a run that is not stored could not be opened.
    #[error("failed to open a temporary database: {0}")]
    Temporary(sqlx::Error),
    /// A query failed.
    #[error("failed to read the results: {0}")]
    Read(sqlx::Error),
    /// A statement failed.
    #[error("failed to store the results: {0}")]
    Write(sqlx::Error),
    /// The task that writes rows panicked.
    #[error("failed to store the results: {0}")]
    WriterStopped(String),
    /// No run has the id.
    #[error("no run `{0}` is stored; `sandcove eval list` shows those that are")]
    UnknownRun(String),
    /// There are no runs.
    #[error("no run is stored")]
    Empty,
    /// The run was imported or copied, or no run has the id.
    #[error("run `{0}` cannot be resumed or run again: it is not stored, or was made elsewhere")]
    NotResumable(String),
    /// No run was made here.
    #[error("no run is stored that can be resumed or run again")]
    NothingToResume,
    /// The suite has other rows than the run.
    #[error(
        "run `{0}` cannot be resumed: the configuration or one of its files has changed since, so its tests differ; start a new run"
    )]
    Changed(String),
    /// A row is not JSON of a row.
    #[error("a row cannot be read")]
    Row(#[source] serde_json::Error),
    /// A row of a document does not say which it is.
    #[error("a row without `testIdx` and `promptIdx`")]
    RowWithoutIndex,
    /// The document of a run is not JSON.
    #[error("the document of a run cannot be read")]
    Head(#[source] serde_json::Error),
    /// The document of a run has a key of the wrong type.
    #[error(transparent)]
    Document(#[from] DocumentError),
}

async fn open() -> Result<SqliteConnection, StoreError> {
    open_in(&directory()).await
}

/// Opens the database. Its name is not promptfoo's, whose database in the same directory has other tables.
pub(crate) async fn open_in(directory: &Path) -> Result<SqliteConnection, StoreError> {
    let path = directory.join("evaluations.db");
    let failed = |reason: String| StoreError::Open { path: path.clone(), reason };
    keep_private(directory, &path).map_err(|error| failed(error.to_string()))?;
    let options = SqliteConnectOptions::from_str("sqlite:")
        .map_err(|error| failed(error.to_string()))?
        .filename(&path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        .busy_timeout(std::time::Duration::from_secs(30));
    let mut connection =
        SqliteConnection::connect_with(&options).await.map_err(|error| failed(error.to_string()))?;
    make_tables(&mut connection).await.map_err(|error| failed(error.to_string()))?;
    Ok(connection)
}

/// Creates the directory and the database if they are missing, readable by their owner only: prompts and answers are private.
/// A directory that the user named and created keeps its mode. SQLite gives its other files the mode of the database.
fn keep_private(directory: &Path, database: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    if directory == own_directory() {
        restrict(directory, 0o700)?;
    }
    std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(database)?;
    restrict(database, 0o600)
}

/// Removes permissions that are not in `mode`.
fn restrict(path: &Path, mode: u32) -> std::io::Result<()> {
    let metadata = std::fs::metadata(path)?;
    if metadata.permissions().mode() & 0o777 & !mode != 0 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Opens a database that is deleted with its connection.
async fn temporary() -> Result<SqliteConnection, StoreError> {
    let failed = StoreError::Temporary;
    // SQLite keeps what has no name in a file of its own, which it deletes.
    let options = SqliteConnectOptions::new().filename("").synchronous(SqliteSynchronous::Off);
    let mut connection = SqliteConnection::connect_with(&options).await.map_err(failed)?;
    make_tables(&mut connection).await.map_err(failed)?;
    Ok(connection)
}

async fn make_tables(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(
        "CREATE TABLE IF NOT EXISTS evals (id TEXT PRIMARY KEY, created_at TEXT NOT NULL, description TEXT, stats TEXT NOT NULL, \
         head TEXT NOT NULL);\
         CREATE TABLE IF NOT EXISTS eval_rows (eval_id TEXT NOT NULL, test_idx INTEGER NOT NULL, prompt_idx INTEGER NOT NULL, \
         success INTEGER NOT NULL, row TEXT NOT NULL, PRIMARY KEY (eval_id, test_idx, prompt_idx)) WITHOUT ROWID;\
         CREATE TABLE IF NOT EXISTS eval_runs (eval_id TEXT PRIMARY KEY, invocation TEXT NOT NULL, plan TEXT NOT NULL) WITHOUT ROWID;",
    )
    .execute(connection)
    .await
    .map(drop)
}

/// Returns the id of a run and the options it was started with; those of the newest run without an id.
///
/// # Errors
/// When there is no run that can be resumed, or the database cannot be read.
pub async fn invocation(id: Option<&str>) -> Result<(String, Value), StoreError> {
    let mut connection = open().await?;
    let row = sqlx::query(
        "SELECT eval_id, invocation FROM eval_runs JOIN evals ON evals.id = eval_id WHERE ?1 IS NULL OR eval_id = ?1 \
         ORDER BY created_at DESC LIMIT 1",
    )
    .bind(id)
    .fetch_optional(&mut connection)
    .await
    .map_err(StoreError::Read)?;
    match (row, id) {
        (Some(row), _) => {
            Ok((row.get(0), serde_json::from_str(&row.get::<String, _>(1)).unwrap_or_default()))
        }
        (None, Some(id)) => Err(StoreError::NotResumable(id.to_owned())),
        (None, None) => Err(StoreError::NothingToResume),
    }
}

/// Returns the result document of a run; of the newest without an id.
///
/// # Errors
/// When there is none, or the database cannot be read.
pub async fn document(id: Option<&str>) -> Result<Value, StoreError> {
    let failed = StoreError::Read;
    let mut connection = open().await?;
    let head = sqlx::query(
        "SELECT id, head FROM evals WHERE ?1 IS NULL OR id = ?1 ORDER BY created_at DESC LIMIT 1",
    )
    .bind(id)
    .fetch_optional(&mut connection)
    .await
    .map_err(failed)?;
    let Some(head) = head else {
        return Err(id.map_or(StoreError::Empty, |id| StoreError::UnknownRun(id.to_owned())));
    };
    let rows = sqlx::query("SELECT row FROM eval_rows WHERE eval_id = ? ORDER BY test_idx, prompt_idx")
        .bind(head.get::<String, _>(0))
        .fetch_all(&mut connection)
        .await
        .map_err(failed)?;
    let mut document: Value = serde_json::from_str(&head.get::<String, _>(1)).unwrap_or_default();
    let rows = rows.iter().map(|row| serde_json::from_str(&row.get::<String, _>(0)).unwrap_or_default());
    if let Some(results) = document.pointer_mut("/results/results") {
        *results = Value::Array(rows.collect());
    }
    Ok(document)
}

/// An attack of a red team that was not withstood.
#[derive(Debug, Clone)]
pub struct Attack {
    /// The id of the run.
    pub run: String,
    /// The target, as rows have it: `id` and `label`.
    pub provider: Object,
    /// The test.
    pub test: Value,
}

/// Returns the attacks of all stored red teams that were not withstood, the newest first.
///
/// # Errors
/// An error if the database cannot be read.
pub async fn failed_attacks() -> Result<Vec<Attack>, StoreError> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Attacked {
        provider: Object,
        test_case: Value,
    }
    let mut connection = open().await?;
    let rows = sqlx::query(
        "SELECT eval_id, row FROM eval_rows JOIN evals ON evals.id = eval_id WHERE success = 0 AND row LIKE '%\"pluginId\"%' \
         ORDER BY created_at DESC, test_idx, prompt_idx",
    )
    .fetch_all(&mut connection)
    .await
    .map_err(StoreError::Read)?;
    let attacks = rows.iter().filter_map(|row| {
        let Attacked { provider, test_case: test } = serde_json::from_str(row.get::<&str, _>(1)).ok()?;
        let is_attack = test.pointer("/metadata/pluginId").is_some_and(Value::is_string);
        is_attack.then(|| Attack { run: row.get(0), provider, test })
    });
    Ok(attacks.collect())
}

/// Whether a run is stored.
///
/// # Errors
/// When the database cannot be read.
pub async fn exists(id: &str) -> Result<bool, StoreError> {
    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM evals WHERE id = ?)")
        .bind(id)
        .fetch_one(&mut open().await?)
        .await
        .map_err(StoreError::Read)
}

/// Deletes a run from all tables; false if there is none.
pub(crate) async fn forget(connection: &mut SqliteConnection, id: &str) -> Result<bool, sqlx::Error> {
    for statement in ["DELETE FROM eval_rows WHERE eval_id = ?", "DELETE FROM eval_runs WHERE eval_id = ?"] {
        sqlx::query(statement).bind(id).execute(&mut *connection).await?;
    }
    let deleted = sqlx::query("DELETE FROM evals WHERE id = ?").bind(id).execute(&mut *connection).await?;
    Ok(deleted.rows_affected() > 0)
}
