//! The rows of one run: written as they finish, read back in order, so that no more than a few are ever in memory.

use std::path::Path;

use futures_util::TryStreamExt;
use serde_json::Value;
use sqlx::{Connection, QueryBuilder, Row as _, SqliteConnection};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::StoreError::{Read, Write};
use super::{StoreError, strip};
use crate::home;
use crate::model::{Evaluation, Row};

/// The most rows of one statement; SQLite takes 32,766 values.
const MAX_BATCH: usize = 200;

/// The database that the rows of a run are written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// The database of stored runs.
    Permanent,
    /// A temporary file, which is deleted when result files have been written.
    Temporary,
}

/// A row as it is stored.
#[derive(Debug, Clone)]
pub struct StoredRow {
    test_idx: usize,
    prompt_idx: usize,
    success: bool,
    text: String,
}

impl StoredRow {
    /// Serializes all of a row, which will be compared with others.
    pub fn whole(row: &Row) -> Self {
        Self::with(row, serde_json::to_string(row).unwrap_or_default())
    }

    /// Serializes a row without what `PROMPTFOO_STRIP_…` removes.
    pub fn stripped(row: &Row) -> Self {
        Self::with(row, strip::text(row))
    }

    fn with(row: &Row, text: String) -> Self {
        Self { test_idx: row.test_idx, prompt_idx: row.prompt_idx, success: row.success, text }
    }

    /// Takes a row of a result document, with keys that are unknown here.
    ///
    /// # Errors
    /// When the value is not a row.
    pub fn of_document(value: Value) -> Result<Self, StoreError> {
        let text = value.to_string();
        let row = read(&text)?;
        if value.get("testIdx").is_none() || value.get("promptIdx").is_none() {
            return Err(StoreError::RowWithoutIndex);
        }
        Ok(Self::with(&row, text))
    }

    /// Parses the row.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn row(&self) -> Result<Row, StoreError> {
        read(&self.text)
    }
}

/// A run whose rows are written by a task of its own, so that a slow disk does not stop the next row from starting.
#[derive(Debug)]
pub struct Recording {
    rows: mpsc::Sender<StoredRow>,
    writer: JoinHandle<Result<Recorded, StoreError>>,
}

impl Recording {
    /// Starts the task that writes the rows of a run.
    pub fn of(mut run: Recorded) -> Self {
        let (rows, mut queue) = mpsc::channel(2 * MAX_BATCH);
        let writer = tokio::spawn(async move {
            let mut batch = Vec::new();
            // What piled up during one transaction is the next one.
            while queue.recv_many(&mut batch, MAX_BATCH).await > 0 {
                run.write(&batch).await?;
                batch.clear();
            }
            Ok(run)
        });
        Self { rows, writer }
    }

    /// Queues a row for writing. Returns false when the task has failed; [`end`](Self::end) says why.
    pub async fn add(&self, row: StoredRow) -> bool {
        self.rows.send(row).await.is_ok()
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn end(self) -> Result<Recorded, StoreError> {
        drop(self.rows);
        self.writer.await.map_err(|error| StoreError::WriterStopped(error.to_string()))?
    }
}

/// The rows of a recording that are read.
#[derive(Debug, Clone, Copy)]
pub enum Which {
    /// All rows.
    All,
    /// Rows that did not pass.
    Failed,
    /// The rows of one column.
    Column(usize),
    /// The rows of one test.
    Test(usize),
}

/// A run in the database, finished or not.
#[derive(Debug)]
pub struct Recorded {
    id: String,
    connection: SqliteConnection,
}

impl Recorded {
    /// Stores a run that begins. `invocation` is what [`super::invocation`] returns to resume it, `plan` identifies its rows.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn begin(
        storage: Storage,
        evaluation: &Evaluation,
        invocation: &Value,
        plan: &str,
    ) -> Result<Self, StoreError> {
        let connection = match storage {
            Storage::Permanent => super::open().await?,
            Storage::Temporary => super::temporary().await?,
        };
        let mut run = Self { id: evaluation.id.clone(), connection };
        sqlx::query("INSERT INTO eval_runs (eval_id, invocation, plan) VALUES (?, ?, ?)")
            .bind(&run.id)
            .bind(invocation.to_string())
            .bind(plan)
            .execute(&mut run.connection)
            .await
            .map_err(Write)?;
        run.finish(evaluation, &[]).await?;
        Ok(run)
    }

    /// Opens the run `id` to add rows that are missing.
    ///
    /// # Errors
    /// When there is none, or its rows are not those of `plan`.
    pub async fn reopen(id: &str, plan: &str) -> Result<Self, StoreError> {
        let mut connection = super::open().await?;
        let known = sqlx::query("SELECT plan FROM eval_runs WHERE eval_id = ?")
            .bind(id)
            .fetch_optional(&mut connection)
            .await
            .map_err(Read)?
            .ok_or_else(|| StoreError::NotResumable(id.to_owned()))?;
        if known.get::<String, _>(0) != plan {
            return Err(StoreError::Changed(id.to_owned()));
        }
        Ok(Self { id: id.to_owned(), connection })
    }

    /// Returns the time at which the run started, as result files show it.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn created_at(&mut self) -> Result<String, StoreError> {
        sqlx::query_scalar("SELECT created_at FROM evals WHERE id = ?")
            .bind(&self.id)
            .fetch_one(&mut self.connection)
            .await
            .map_err(Read)
    }

    /// Opens the run `id` to read it, the newest without an id.
    ///
    /// # Errors
    /// When there is none, or the database cannot be read.
    pub async fn open(id: Option<&str>) -> Result<Self, StoreError> {
        Self::open_in(&home::directory(), id).await
    }

    /// As [`open`](Self::open), in another directory than the user's.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_in(directory: &Path, id: Option<&str>) -> Result<Self, StoreError> {
        let mut connection = super::open_in(directory).await?;
        let found = sqlx::query_scalar(
            "SELECT id FROM evals WHERE ?1 IS NULL OR id = ?1 ORDER BY created_at DESC LIMIT 1",
        )
        .bind(id)
        .fetch_optional(&mut connection)
        .await
        .map_err(Read)?;
        match (found, id) {
            (Some(id), _) => Ok(Self { id, connection }),
            (None, Some(id)) => Err(StoreError::UnknownRun(id.to_owned())),
            (None, None) => Err(StoreError::Empty),
        }
    }

    /// Reads the run without its rows.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn evaluation(&mut self) -> Result<Evaluation, StoreError> {
        let head: String = sqlx::query_scalar("SELECT head FROM evals WHERE id = ?")
            .bind(&self.id)
            .fetch_one(&mut self.connection)
            .await
            .map_err(Read)?;
        let described: bool = sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM eval_rows WHERE eval_id = ? AND json_extract(row, '$.description') IS NOT NULL)",
        )
        .bind(&self.id)
        .fetch_one(&mut self.connection)
        .await
        .map_err(Read)?;
        let head = serde_json::from_str(&head).map_err(StoreError::Head)?;
        Ok(Evaluation { described, ..crate::document::evaluation(head)? })
    }

    /// Stores a run that was made elsewhere, and replaces one with the same id.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn import(evaluation: &Evaluation, rows: &[StoredRow]) -> Result<(), StoreError> {
        let mut connection = super::open().await?;
        let mut transaction = connection.begin().await.map_err(Write)?;
        super::forget(&mut transaction, &evaluation.id).await.map_err(Write)?;
        put(&mut transaction, evaluation, rows).await?;
        transaction.commit().await.map_err(Write)
    }

    /// Deletes the rows with errors and, for tests whose rows are compared, the rows beside them.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn forget_errors(&mut self, compared: impl Fn(usize) -> bool) -> Result<(), StoreError> {
        let mut transaction = self.connection.begin().await.map_err(Write)?;
        let rows = sqlx::query(
            "SELECT test_idx, prompt_idx FROM eval_rows WHERE eval_id = ? AND json_extract(row, '$.failureReason') = 2",
        )
        .bind(&self.id)
        .fetch_all(&mut *transaction)
        .await
        .map_err(Write)?;
        for row in rows {
            let (test, prompt): (i64, i64) = (row.get(0), row.get(1));
            let only = (!compared(test as usize)).then_some(prompt);
            sqlx::query(
                "DELETE FROM eval_rows WHERE eval_id = ?1 AND test_idx = ?2 AND (?3 IS NULL OR prompt_idx = ?3)",
            )
            .bind(&self.id)
            .bind(test)
            .bind(only)
            .execute(&mut *transaction)
            .await
            .map_err(Write)?;
        }
        transaction.commit().await.map_err(Write)
    }

    async fn write(&mut self, rows: &[StoredRow]) -> Result<(), StoreError> {
        let mut transaction = self.connection.begin().await.map_err(Write)?;
        insert(&mut transaction, &self.id, rows).await?;
        transaction.commit().await.map_err(Write)
    }

    /// Writes the run without its rows, and the rows that changed at its end, in one transaction.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn finish(&mut self, evaluation: &Evaluation, changed: &[StoredRow]) -> Result<(), StoreError> {
        let mut transaction = self.connection.begin().await.map_err(Write)?;
        put(&mut transaction, evaluation, changed).await?;
        transaction.commit().await.map_err(Write)
    }

    /// Passes the JSON of rows to `each`, by test, then by column.
    ///
    /// # Errors
    /// When the database cannot be read, or `each` fails.
    pub async fn texts<E: From<StoreError>>(
        &mut self,
        which: Which,
        mut each: impl FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        let (condition, number) = match which {
            Which::All => ("", None),
            Which::Failed => ("AND success = 0", None),
            Which::Column(column) => ("AND prompt_idx = ?2", Some(column as i64)),
            Which::Test(test) => ("AND test_idx = ?2", Some(test as i64)),
        };
        let mut query: QueryBuilder<sqlx::Sqlite> =
            QueryBuilder::new("SELECT row FROM eval_rows WHERE eval_id = ?1 ");
        query.push(condition).push(" ORDER BY test_idx, prompt_idx");
        let mut query = query.build().bind(&self.id);
        if let Some(number) = number {
            query = query.bind(number);
        }
        let mut rows = query.fetch(&mut self.connection);
        while let Some(row) = rows.try_next().await.map_err(Read)? {
            each(row.get::<&str, _>(0))?;
        }
        Ok(())
    }

    /// Passes rows to `each`, by test, then by column.
    ///
    /// # Errors
    /// As [`texts`](Self::texts), and when a row is damaged.
    pub async fn each<E: From<StoreError>>(
        &mut self,
        which: Which,
        mut each: impl FnMut(Row) -> Result<(), E>,
    ) -> Result<(), E> {
        self.texts::<E>(which, |text| each(read(text)?)).await
    }

    /// Passes the rows of each test to `each`, one test after another.
    ///
    /// # Errors
    /// As [`each`](Self::each).
    pub async fn tests<E: From<StoreError>>(
        &mut self,
        mut each: impl FnMut(&[Row]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut group: Vec<Row> = Vec::new();
        self.each::<E>(Which::All, |row| {
            if group.first().is_some_and(|first| first.test_idx != row.test_idx) {
                each(&group)?;
                group.clear();
            }
            group.push(row);
            Ok(())
        })
        .await?;
        if group.is_empty() { Ok(()) } else { each(&group) }
    }

    /// Reads all rows into memory, where few are expected.
    ///
    /// # Errors
    /// As [`each`](Self::each).
    pub async fn rows(&mut self, which: Which) -> Result<Vec<Row>, StoreError> {
        let mut rows = Vec::new();
        self.each::<StoreError>(which, |row| {
            rows.push(row);
            Ok(())
        })
        .await?;
        Ok(rows)
    }
}

fn read(text: &str) -> Result<Row, StoreError> {
    serde_json::from_str(text).map_err(StoreError::Row)
}

async fn put(
    connection: &mut SqliteConnection,
    evaluation: &Evaluation,
    rows: &[StoredRow],
) -> Result<(), StoreError> {
    let mut document = crate::document::document(evaluation);
    if let Some(results) = document.pointer_mut("/results/results") {
        *results = Value::Null;
    }
    sqlx::query(
        "INSERT OR REPLACE INTO evals (id, created_at, description, stats, head) VALUES (?, ?, ?, ?, ?)",
    )
    .bind(&evaluation.id)
    .bind(&evaluation.created_at)
    .bind(&evaluation.description)
    .bind(serde_json::to_string(&evaluation.stats).unwrap_or_default())
    .bind(document.to_string())
    .execute(&mut *connection)
    .await
    .map_err(Write)?;
    insert(connection, &evaluation.id, rows).await
}

async fn insert(connection: &mut SqliteConnection, id: &str, rows: &[StoredRow]) -> Result<(), StoreError> {
    for rows in rows.chunks(MAX_BATCH) {
        let mut query = QueryBuilder::new(
            "INSERT OR REPLACE INTO eval_rows (eval_id, test_idx, prompt_idx, success, row) ",
        );
        query.push_values(rows, |mut values, row| {
            values
                .push_bind(id)
                .push_bind(row.test_idx as i64)
                .push_bind(row.prompt_idx as i64)
                .push_bind(row.success)
                .push_bind(row.text.as_str());
        });
        query.build().persistent(false).execute(&mut *connection).await.map_err(Write)?;
    }
    Ok(())
}
