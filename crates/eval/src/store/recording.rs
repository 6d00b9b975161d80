//! The rows of one run: written as they finish, read back in order, so that no more than a few are ever in memory.

use futures_util::TryStreamExt;
use serde_json::Value;
use sqlx::{Connection, QueryBuilder, Row as _, SqliteConnection};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::strip;
use crate::model::{Evaluation, Row};

/// Rows of one statement; SQLite takes 32,766 values.
const BATCH: usize = 200;

/// Whether a run outlives the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// In the database.
    Stored,
    /// In a temporary file, until result files are written.
    ForNow,
}

/// A row as it is kept.
#[derive(Debug, Clone)]
pub struct StoredRow {
    test_idx: usize,
    prompt_idx: usize,
    success: bool,
    text: String,
}

impl StoredRow {
    /// All of a row, for those that will be compared.
    pub fn whole(row: &Row) -> Self {
        Self::with(row, serde_json::to_string(row).unwrap_or_default())
    }

    /// A row as it is kept for good: without what `PROMPTFOO_STRIP_…` takes away.
    pub fn stripped(row: &Row) -> Self {
        Self::with(row, strip::text(row))
    }

    fn with(row: &Row, text: String) -> Self {
        Self { test_idx: row.test_idx, prompt_idx: row.prompt_idx, success: row.success, text }
    }

    /// A row of a result document, whatever else it holds.
    ///
    /// # Errors
    /// When it is none.
    pub fn of_document(value: Value) -> Result<Self, String> {
        let text = value.to_string();
        let row = read(&text)?;
        if value.get("testIdx").is_none() || value.get("promptIdx").is_none() {
            return Err("a row without `testIdx` and `promptIdx`".to_owned());
        }
        Ok(Self::with(&row, text))
    }

    /// The row itself.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn row(&self) -> Result<Row, String> {
        read(&self.text)
    }
}

/// A run whose rows are being written, by a task of its own: a slow disk must not stop the next row from starting.
#[derive(Debug)]
pub struct Recording {
    rows: mpsc::Sender<StoredRow>,
    writer: JoinHandle<Result<Recorded, String>>,
}

impl Recording {
    /// Goes on with a run.
    pub fn of(mut run: Recorded) -> Self {
        let (rows, mut queue) = mpsc::channel(2 * BATCH);
        let writer = tokio::spawn(async move {
            let mut batch = Vec::new();
            // What piled up during one transaction is the next one.
            while queue.recv_many(&mut batch, BATCH).await > 0 {
                run.write(&batch).await?;
                batch.clear();
            }
            Ok(run)
        });
        Self { rows, writer }
    }

    /// Keeps a row. False when nothing can be kept any more; [`end`](Self::end) says why.
    pub async fn add(&self, row: StoredRow) -> bool {
        self.rows.send(row).await.is_ok()
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn end(self) -> Result<Recorded, String> {
        drop(self.rows);
        self.writer.await.map_err(|error| format!("the results could not be kept: {error}"))?
    }
}

/// Which rows are read.
#[derive(Debug, Clone, Copy)]
pub enum Which {
    /// All.
    All,
    /// Those that did not pass.
    Failed,
    /// Those of one column.
    Column(usize),
    /// Those of one test.
    Test(usize),
}

/// A run in the database, finished or not.
#[derive(Debug)]
pub struct Recorded {
    id: String,
    connection: SqliteConnection,
}

fn failed(error: impl std::fmt::Display) -> String {
    format!("failed to keep the results: {error}")
}

impl Recorded {
    /// Begins a run. `invocation` is what [`super::invocation`] gives back to whoever goes on with it, `plan` identifies its rows.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn begin(
        keep: Keep,
        evaluation: &Evaluation,
        invocation: &Value,
        plan: &str,
    ) -> Result<Self, String> {
        let connection = match keep {
            Keep::Stored => super::open().await?,
            Keep::ForNow => super::temporary().await?,
        };
        let mut run = Self { id: evaluation.id.clone(), connection };
        sqlx::query("INSERT INTO eval_runs (eval_id, invocation, plan) VALUES (?, ?, ?)")
            .bind(&run.id)
            .bind(invocation.to_string())
            .bind(plan)
            .execute(&mut run.connection)
            .await
            .map_err(failed)?;
        run.finish(evaluation, &[]).await?;
        Ok(run)
    }

    /// Opens the run `id` again, to do rows that are missing.
    ///
    /// # Errors
    /// When there is none, or its rows are not those of `plan`.
    pub async fn reopen(id: &str, plan: &str) -> Result<Self, String> {
        let mut connection = super::open().await?;
        let known = sqlx::query("SELECT plan FROM eval_runs WHERE eval_id = ?")
            .bind(id)
            .fetch_optional(&mut connection)
            .await
            .map_err(failed)?
            .ok_or_else(|| format!("no run `{id}` is stored that could be gone on with"))?;
        if known.get::<String, _>(0) != plan {
            return Err(format!(
                "the configuration or one of its files changed since `{id}` began, so that its tests are others; begin a new run"
            ));
        }
        Ok(Self { id: id.to_owned(), connection })
    }

    /// When it began, as result files show it.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn created_at(&mut self) -> Result<String, String> {
        sqlx::query_scalar("SELECT created_at FROM evals WHERE id = ?")
            .bind(&self.id)
            .fetch_one(&mut self.connection)
            .await
            .map_err(failed)
    }

    /// Opens the run `id` to read it, the newest without an id.
    ///
    /// # Errors
    /// When there is none, or the database cannot be read.
    pub async fn open(id: Option<&str>) -> Result<Self, String> {
        let mut connection = super::open().await?;
        let found = sqlx::query_scalar(
            "SELECT id FROM evals WHERE ?1 IS NULL OR id = ?1 ORDER BY created_at DESC LIMIT 1",
        )
        .bind(id)
        .fetch_optional(&mut connection)
        .await
        .map_err(failed)?;
        match (found, id) {
            (Some(id), _) => Ok(Self { id, connection }),
            (None, Some(id)) => Err(format!("no run `{id}` is stored")),
            (None, None) => Err("no run is stored".to_owned()),
        }
    }

    /// What the run is and adds up to.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn evaluation(&mut self) -> Result<Evaluation, String> {
        let head: String = sqlx::query_scalar("SELECT head FROM evals WHERE id = ?")
            .bind(&self.id)
            .fetch_one(&mut self.connection)
            .await
            .map_err(failed)?;
        let described: bool = sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM eval_rows WHERE eval_id = ? AND json_extract(row, '$.description') IS NOT NULL)",
        )
        .bind(&self.id)
        .fetch_one(&mut self.connection)
        .await
        .map_err(failed)?;
        let head = serde_json::from_str(&head).map_err(failed)?;
        Ok(Evaluation { described, ..crate::output::json::evaluation(head)? })
    }

    /// Stores a whole run that was made elsewhere, in the place of one with its id.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn import(evaluation: &Evaluation, rows: &[StoredRow]) -> Result<(), String> {
        let mut connection = super::open().await?;
        let mut transaction = connection.begin().await.map_err(failed)?;
        super::forget(&mut transaction, &evaluation.id).await.map_err(failed)?;
        put(&mut transaction, evaluation, rows).await?;
        transaction.commit().await.map_err(failed)
    }

    /// Forgets the rows with errors and, for tests whose rows are compared, the rows beside them.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn forget_errors(&mut self, compared: impl Fn(usize) -> bool) -> Result<(), String> {
        let mut transaction = self.connection.begin().await.map_err(failed)?;
        let rows = sqlx::query(
            "SELECT test_idx, prompt_idx FROM eval_rows WHERE eval_id = ? AND json_extract(row, '$.failureReason') = 2",
        )
        .bind(&self.id)
        .fetch_all(&mut *transaction)
        .await
        .map_err(failed)?;
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
            .map_err(failed)?;
        }
        transaction.commit().await.map_err(failed)
    }

    async fn write(&mut self, rows: &[StoredRow]) -> Result<(), String> {
        let mut transaction = self.connection.begin().await.map_err(failed)?;
        insert(&mut transaction, &self.id, rows).await?;
        transaction.commit().await.map_err(failed)
    }

    /// Writes what a run is and adds up to, with rows that changed at its end, whole or not at all.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn finish(&mut self, evaluation: &Evaluation, changed: &[StoredRow]) -> Result<(), String> {
        let mut transaction = self.connection.begin().await.map_err(failed)?;
        put(&mut transaction, evaluation, changed).await?;
        transaction.commit().await.map_err(failed)
    }

    /// Gives the JSON of rows, by test, then by column.
    ///
    /// # Errors
    /// When the database cannot be read, or `each` fails.
    pub async fn texts(
        &mut self,
        which: Which,
        mut each: impl FnMut(&str) -> Result<(), String>,
    ) -> Result<(), String> {
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
        let failed = |error: sqlx::Error| format!("failed to read the results: {error}");
        while let Some(row) = rows.try_next().await.map_err(failed)? {
            each(row.get::<&str, _>(0))?;
        }
        Ok(())
    }

    /// Gives rows, by test, then by column.
    ///
    /// # Errors
    /// As [`texts`](Self::texts), and when a row is damaged.
    pub async fn each(
        &mut self,
        which: Which,
        mut each: impl FnMut(Row) -> Result<(), String>,
    ) -> Result<(), String> {
        self.texts(which, |text| each(read(text)?)).await
    }

    /// Gives the rows of one test after those of another.
    ///
    /// # Errors
    /// As [`each`](Self::each).
    pub async fn tests(&mut self, mut each: impl FnMut(&[Row]) -> Result<(), String>) -> Result<(), String> {
        let mut group: Vec<Row> = Vec::new();
        self.each(Which::All, |row| {
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

    /// The rows themselves, where few are expected.
    ///
    /// # Errors
    /// As [`each`](Self::each).
    pub async fn rows(&mut self, which: Which) -> Result<Vec<Row>, String> {
        let mut rows = Vec::new();
        self.each(which, |row| {
            rows.push(row);
            Ok(())
        })
        .await?;
        Ok(rows)
    }
}

fn read(text: &str) -> Result<Row, String> {
    serde_json::from_str(text).map_err(|error| format!("a stored row cannot be read: {error}"))
}

async fn put(
    connection: &mut SqliteConnection,
    evaluation: &Evaluation,
    rows: &[StoredRow],
) -> Result<(), String> {
    let mut document = crate::output::json::document(evaluation);
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
    .map_err(failed)?;
    insert(connection, &evaluation.id, rows).await
}

async fn insert(connection: &mut SqliteConnection, id: &str, rows: &[StoredRow]) -> Result<(), String> {
    for rows in rows.chunks(BATCH) {
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
        query.build().persistent(false).execute(&mut *connection).await.map_err(failed)?;
    }
    Ok(())
}
