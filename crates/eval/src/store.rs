//! Runs that were made: a SQLite database in `PROMPTFOO_CONFIG_DIR`, or `~/.sandcove`.

use std::path::PathBuf;
use std::str::FromStr;

use serde_json::Value;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{Connection, QueryBuilder, Row as _, SqliteConnection};

use crate::model::Evaluation;

/// A run in the list.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Its id.
    pub id: String,
    /// When it began.
    pub created_at: String,
    /// What it is about.
    pub description: Option<String>,
    /// Its sums.
    pub stats: Value,
}

/// Where everything of this kind is kept.
pub fn directory() -> PathBuf {
    std::env::var_os("PROMPTFOO_CONFIG_DIR")
        .map(PathBuf::from)
        .unwrap_or_else(|| std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default().join(".sandcove"))
}

/// The database's own name: promptfoo's, in the same place, has other tables.
async fn open() -> Result<SqliteConnection, String> {
    let directory = directory();
    let path = directory.join("evaluations.db");
    let failed =
        |error: String| format!("failed to open `{}`: {error} (--no-write keeps no results)", path.display());
    std::fs::create_dir_all(&directory).map_err(|error| failed(error.to_string()))?;
    let options = SqliteConnectOptions::from_str("sqlite:")
        .map_err(|error| failed(error.to_string()))?
        .filename(&path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        .busy_timeout(std::time::Duration::from_secs(30));
    let mut connection =
        SqliteConnection::connect_with(&options).await.map_err(|error| failed(error.to_string()))?;
    sqlx::raw_sql(
        "CREATE TABLE IF NOT EXISTS evals (id TEXT PRIMARY KEY, created_at TEXT NOT NULL, description TEXT, stats TEXT NOT NULL, \
         head TEXT NOT NULL);\
         CREATE TABLE IF NOT EXISTS eval_rows (eval_id TEXT NOT NULL, test_idx INTEGER NOT NULL, prompt_idx INTEGER NOT NULL, \
         success INTEGER NOT NULL, row TEXT NOT NULL, PRIMARY KEY (eval_id, test_idx, prompt_idx)) WITHOUT ROWID;",
    )
    .execute(&mut connection)
    .await
    .map_err(|error| failed(error.to_string()))?;
    Ok(connection)
}

/// Rows of one statement; SQLite takes 32,766 values.
const BATCH: usize = 500;

/// Keeps a run, whole or not at all.
///
/// # Errors
/// When the database cannot be written.
pub async fn save(evaluation: &Evaluation) -> Result<(), String> {
    let failed = |error: sqlx::Error| format!("failed to keep the results: {error}");
    let mut connection = open().await?;
    let mut document = crate::output::json::document(&evaluation.without_rows());
    if let Some(results) = document.pointer_mut("/results/results") {
        *results = Value::Null;
    }
    let stats = serde_json::to_string(&evaluation.stats).unwrap_or_default();
    let mut transaction = connection.begin().await.map_err(failed)?;
    sqlx::query(
        "INSERT OR REPLACE INTO evals (id, created_at, description, stats, head) VALUES (?, ?, ?, ?, ?)",
    )
    .bind(&evaluation.id)
    .bind(&evaluation.created_at)
    .bind(&evaluation.description)
    .bind(stats)
    .bind(document.to_string())
    .execute(&mut *transaction)
    .await
    .map_err(failed)?;
    for rows in evaluation.rows.chunks(BATCH) {
        let mut query = QueryBuilder::new(
            "INSERT OR REPLACE INTO eval_rows (eval_id, test_idx, prompt_idx, success, row) ",
        );
        query.push_values(rows, |mut values, row| {
            values
                .push_bind(&evaluation.id)
                .push_bind(row.test_idx as i64)
                .push_bind(row.prompt_idx as i64)
                .push_bind(row.success)
                .push_bind(serde_json::to_string(row).unwrap_or_default());
        });
        query.build().execute(&mut *transaction).await.map_err(failed)?;
    }
    transaction.commit().await.map_err(failed)?;
    connection.close().await.map_err(failed)
}

/// All runs, the newest first.
///
/// # Errors
/// When the database cannot be read.
pub async fn list() -> Result<Vec<Summary>, String> {
    let failed = |error: sqlx::Error| format!("failed to read the results: {error}");
    let mut connection = open().await?;
    let rows = sqlx::query("SELECT id, created_at, description, stats FROM evals ORDER BY created_at DESC")
        .fetch_all(&mut connection)
        .await
        .map_err(failed)?;
    let read = |row: &sqlx::sqlite::SqliteRow| Summary {
        id: row.get(0),
        created_at: row.get(1),
        description: row.get(2),
        stats: serde_json::from_str(&row.get::<String, _>(3)).unwrap_or_default(),
    };
    Ok(rows.iter().map(read).collect())
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

/// Forgets a run; false if there is none.
///
/// # Errors
/// When the database cannot be written.
pub async fn delete(id: &str) -> Result<bool, String> {
    let failed = |error: sqlx::Error| format!("failed to delete `{id}`: {error}");
    let mut connection = open().await?;
    let mut transaction = connection.begin().await.map_err(failed)?;
    sqlx::query("DELETE FROM eval_rows WHERE eval_id = ?")
        .bind(id)
        .execute(&mut *transaction)
        .await
        .map_err(failed)?;
    let deleted = sqlx::query("DELETE FROM evals WHERE id = ?")
        .bind(id)
        .execute(&mut *transaction)
        .await
        .map_err(failed)?;
    transaction.commit().await.map_err(failed)?;
    Ok(deleted.rows_affected() > 0)
}
