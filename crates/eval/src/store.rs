//! Runs that were made: a SQLite database in `PROMPTFOO_CONFIG_DIR`, or `~/.sandcove`.

pub mod recording;
mod strip;
pub use strip::columns as strip_columns;

use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde_json::Value;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{Connection, Row as _, SqliteConnection};

/// Where everything of this kind is kept.
pub fn directory() -> PathBuf {
    let named = std::env::var_os("PROMPTFOO_CONFIG_DIR").filter(|name| !name.is_empty());
    named.map_or_else(own_directory, PathBuf::from)
}

/// The directory that is ours alone.
fn own_directory() -> PathBuf {
    std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default().join(".sandcove")
}

async fn open() -> Result<SqliteConnection, String> {
    open_in(&directory()).await
}

/// The database's own name: promptfoo's, in the same place, has other tables.
pub(crate) async fn open_in(directory: &Path) -> Result<SqliteConnection, String> {
    let path = directory.join("evaluations.db");
    let failed =
        |error: String| format!("failed to open `{}`: {error} (--no-write keeps no results)", path.display());
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

/// Makes the directory and the database if there are none, and lets nobody but their owner in: prompts and answers are
/// nobody else's business. A directory that others named and made keeps its mode. SQLite gives its other files the mode of
/// the database.
fn keep_private(directory: &Path, database: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    if directory == own_directory() {
        restrict(directory, 0o700)?;
    }
    std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(database)?;
    restrict(database, 0o600)
}

/// Takes rights away that are not in `mode`.
fn restrict(path: &Path, mode: u32) -> std::io::Result<()> {
    let metadata = std::fs::metadata(path)?;
    if metadata.permissions().mode() & 0o777 & !mode != 0 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// A database that goes with its connection.
async fn temporary() -> Result<SqliteConnection, String> {
    let failed = |error: sqlx::Error| format!("failed to open a temporary database: {error}");
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

/// How a run was asked for, and its id; of the newest without an id.
///
/// # Errors
/// When there is none that can be gone on with, or the database cannot be read.
pub async fn invocation(id: Option<&str>) -> Result<(String, Value), String> {
    let mut connection = open().await?;
    let row = sqlx::query(
        "SELECT eval_id, invocation FROM eval_runs JOIN evals ON evals.id = eval_id WHERE ?1 IS NULL OR eval_id = ?1 \
         ORDER BY created_at DESC LIMIT 1",
    )
    .bind(id)
    .fetch_optional(&mut connection)
    .await
    .map_err(|error| format!("failed to read the results: {error}"))?;
    match (row, id) {
        (Some(row), _) => {
            Ok((row.get(0), serde_json::from_str(&row.get::<String, _>(1)).unwrap_or_default()))
        }
        (None, Some(id)) => Err(format!("no run `{id}` is stored that could be gone on with")),
        (None, None) => Err("no run is stored that could be gone on with".to_owned()),
    }
}

/// The result document of a run; of the newest without an id.
///
/// # Errors
/// When there is none, or the database cannot be read.
pub async fn document(id: Option<&str>) -> Result<Value, String> {
    let failed = |error: sqlx::Error| format!("failed to read the results: {error}");
    let mut connection = open().await?;
    let head = sqlx::query(
        "SELECT id, head FROM evals WHERE ?1 IS NULL OR id = ?1 ORDER BY created_at DESC LIMIT 1",
    )
    .bind(id)
    .fetch_optional(&mut connection)
    .await
    .map_err(failed)?;
    let Some(head) = head else {
        return Err(id.map_or_else(|| "no run is stored".to_owned(), |id| format!("no run `{id}` is stored")));
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

/// Whether a run is stored.
///
/// # Errors
/// When the database cannot be read.
pub async fn exists(id: &str) -> Result<bool, String> {
    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM evals WHERE id = ?)")
        .bind(id)
        .fetch_one(&mut open().await?)
        .await
        .map_err(|error| format!("failed to read the results: {error}"))
}

/// Deletes a run from all tables; false if there is none.
pub(crate) async fn forget(connection: &mut SqliteConnection, id: &str) -> Result<bool, sqlx::Error> {
    for statement in ["DELETE FROM eval_rows WHERE eval_id = ?", "DELETE FROM eval_runs WHERE eval_id = ?"] {
        sqlx::query(statement).bind(id).execute(&mut *connection).await?;
    }
    let deleted = sqlx::query("DELETE FROM evals WHERE id = ?").bind(id).execute(&mut *connection).await?;
    Ok(deleted.rows_affected() > 0)
}
