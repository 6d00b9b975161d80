//! Exporting a run piece by piece.

use std::str::FromStr;

use futures_util::TryStreamExt;
use serde_json::{Value, json};
use sqlx::{Row as _, SqliteConnection};
use tokio::sync::mpsc;

use super::document::Document;
use super::{Library, ViewError};
use crate::model::{Evaluation, Row};
use crate::output::{csv, yaml};

/// The formats of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Export {
    /// The result document.
    Json,
    /// The table for spreadsheets.
    Csv,
    /// The configuration.
    Config,
    /// The configuration with only the tests that did not pass, as they were run: a suite to run again.
    Failed,
}

impl FromStr for Export {
    type Err = ViewError;

    fn from_str(text: &str) -> Result<Self, ViewError> {
        Ok(match text {
            "json" => Self::Json,
            "csv" => Self::Csv,
            "config" => Self::Config,
            "failed" => Self::Failed,
            _ => {
                return Err(ViewError::Invalid(format!(
                    "unknown format `{text}`; use json, csv, config or failed"
                )));
            }
        })
    }
}

impl Export {
    /// Returns the end of the file's name.
    pub fn ending(self) -> &'static str {
        match self {
            Self::Json => ".json",
            Self::Csv => ".csv",
            Self::Config => ".yaml",
            Self::Failed => "-failed.yaml",
        }
    }

    /// The file's media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Csv => "text/csv; charset=utf-8",
            Self::Config | Self::Failed => "application/yaml",
        }
    }
}

/// A part of a file.
pub type Piece = Result<String, ViewError>;

/// Rows are sent in pieces of about this many bytes.
const PIECE: usize = 64 << 10;

/// The reason why sending ended early.
enum Stopped {
    /// Nobody reads any more.
    Gone,
    /// The database cannot be read.
    Failed(ViewError),
}

impl From<sqlx::Error> for Stopped {
    fn from(error: sqlx::Error) -> Self {
        Self::Failed(error.into())
    }
}

struct Pieces {
    buffer: String,
    send: mpsc::Sender<Piece>,
}

impl Pieces {
    async fn add(&mut self, text: &str) -> Result<(), Stopped> {
        self.buffer.push_str(text);
        if self.buffer.len() < PIECE {
            return Ok(());
        }
        self.flush().await
    }

    async fn flush(&mut self) -> Result<(), Stopped> {
        self.send.send(Ok(std::mem::take(&mut self.buffer))).await.map_err(|_| Stopped::Gone)
    }
}

impl Library {
    /// Sends a run as a file. Ends early, without an error, when nobody reads any more.
    ///
    /// # Errors
    /// When there is no such run, or the database cannot be read; nothing was sent then if the run is the reason.
    pub async fn export(&self, id: &str, what: Export, send: mpsc::Sender<Piece>) -> Result<(), ViewError> {
        let mut connection = self.open().await?;
        let document = Document::read(&mut connection, id).await?;
        let mut pieces = Pieces { buffer: String::new(), send };
        let sent = async {
            match what {
                Export::Json => results(&mut connection, document, &mut pieces).await?,
                Export::Csv => table(&mut connection, &document, &mut pieces).await?,
                Export::Config => pieces.add(&yaml::text(&document.whole["config"])).await?,
                Export::Failed => failed(&mut connection, document, &mut pieces).await?,
            }
            pieces.flush().await
        };
        match sent.await {
            Ok(()) | Err(Stopped::Gone) => Ok(()),
            Err(Stopped::Failed(error)) => Err(error),
        }
    }
}

const ROWS: &str = "SELECT row, test_idx FROM eval_rows WHERE eval_id = ? ORDER BY test_idx, prompt_idx";

async fn results(
    connection: &mut SqliteConnection,
    mut document: Document,
    pieces: &mut Pieces,
) -> Result<(), Stopped> {
    // Where the rows go in the text of the document.
    let mark = uuid::Uuid::new_v4().to_string();
    if let Some(rows) = document.whole.pointer_mut("/results/results") {
        *rows = json!([mark]);
    }
    let text = document.whole.to_string();
    let (before, after) = text.split_once(&json!(mark).to_string()).unwrap_or((&text, ""));
    pieces.add(before).await?;
    let mut rows = sqlx::query(ROWS).bind(&document.id).fetch(connection);
    let mut separator = "";
    while let Some(row) = rows.try_next().await? {
        pieces.add(separator).await?;
        pieces.add(row.get(0)).await?;
        separator = ",\n";
    }
    pieces.add(after).await
}

async fn table(
    connection: &mut SqliteConnection,
    document: &Document,
    pieces: &mut Pieces,
) -> Result<(), Stopped> {
    let described = sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM eval_rows WHERE eval_id = ? AND row ->> '$.description' IS NOT NULL)",
    )
    .bind(&document.id)
    .fetch_one(&mut *connection)
    .await?;
    let evaluation =
        Evaluation { columns: document.columns(), vars: document.vars(), described, ..Evaluation::default() };
    pieces.add(&line(&csv::head(&evaluation))).await?;
    let mut rows = sqlx::query(ROWS).bind(&document.id).fetch(connection);
    let mut group: Vec<Row> = Vec::new();
    while let Some(row) = rows.try_next().await? {
        let row: Row = serde_json::from_str(row.get::<&str, _>(0)).unwrap_or_default();
        if group.first().is_some_and(|first| first.test_idx != row.test_idx) {
            pieces.add(&line(&csv::record(&evaluation, &group))).await?;
            group.clear();
        }
        group.push(row);
    }
    if group.is_empty() { Ok(()) } else { pieces.add(&line(&csv::record(&evaluation, &group))).await }
}

fn line(cells: &[String]) -> String {
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    // Memory never refuses.
    let _ = writer.write_record(cells);
    String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
}

async fn failed(
    connection: &mut SqliteConnection,
    mut document: Document,
    pieces: &mut Pieces,
) -> Result<(), Stopped> {
    if let Some(config) = document.whole.get_mut("config").and_then(Value::as_object_mut) {
        // Tests of rows have all that these would add.
        for key in ["tests", "defaultTest", "scenarios"] {
            config.remove(key);
        }
    }
    pieces.add(&yaml::text(&document.whole["config"])).await?;
    let mut rows = sqlx::query(
        "SELECT test_idx, row -> '$.testCase' FROM eval_rows WHERE eval_id = ? AND success = 0 ORDER BY test_idx, prompt_idx",
    )
    .bind(&document.id)
    .fetch(connection);
    let mut last = None;
    while let Some(row) = rows.try_next().await? {
        let test: i64 = row.get(0);
        if last == Some(test) {
            continue;
        }
        if last.replace(test).is_none() {
            pieces.add("tests:\n").await?;
        }
        let case: Value = row
            .get::<Option<&str>, _>(1)
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_else(|| json!({}));
        pieces.add(&yaml::item(&case, 1)).await?;
    }
    if last.is_some() { Ok(()) } else { pieces.add("tests: []\n").await }
}
