//! Result files.

pub(crate) mod csv;
mod markup;
pub(crate) mod yaml;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::document;
use crate::model::{Evaluation, Row};
use crate::store::StoreError;
use crate::store::recording::{Recorded, Which};

/// Reason why a result file was not written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum OutputError {
    /// The path has an extension of no format.
    #[error("unknown format of `{0}`; use .json, .jsonl, .csv, .yaml, .xml, .junit.xml or .html")]
    UnknownFormat(String),
    /// The file could not be written.
    #[error("failed to write `{path}`")]
    Write { path: String, source: std::io::Error },
    /// The results could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The formats of result files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A JSON document.
    Json,
    /// JSON Lines, a row on each line.
    JsonLines,
    /// A table for spreadsheets.
    Csv,
    /// The document as YAML.
    Yaml,
    /// The document as XML.
    Xml,
    /// JUnit XML, for build servers.
    JUnit,
    /// An HTML page.
    Html,
}

/// Returns the format that the extension of a path stands for.
///
/// # Errors
/// When the extension is unknown.
pub fn format_of(path: &str) -> Result<Format, OutputError> {
    let extension = Path::new(path)
        .extension()
        .map(|extension| extension.to_string_lossy().to_lowercase())
        .unwrap_or_default();
    if path.ends_with("junit.xml") {
        return Ok(Format::JUnit);
    }
    match extension.as_str() {
        "csv" => Ok(Format::Csv),
        "yaml" | "yml" | "txt" => Ok(Format::Yaml),
        "xml" => Ok(Format::Xml),
        "html" => Ok(Format::Html),
        "json" => Ok(Format::Json),
        "jsonl" => Ok(Format::JsonLines),
        _ => Err(OutputError::UnknownFormat(path.to_owned())),
    }
}

/// Writes results to a file, one row after another.
///
/// # Errors
/// When the extension is unknown, or the file cannot be written.
// In a box, as `config::load`.
#[inline(never)]
pub fn write<'a>(
    evaluation: &'a Evaluation,
    rows: &'a mut Recorded,
    path: &'a str,
) -> BoxFuture<'a, Result<(), OutputError>> {
    Box::pin(write_rows(evaluation, rows, path))
}

async fn write_rows(evaluation: &Evaluation, rows: &mut Recorded, path: &str) -> Result<(), OutputError> {
    let format = format_of(path)?;
    let failed = |source: std::io::Error| OutputError::Write { path: path.to_owned(), source };
    if let Some(parent) = Path::new(path).parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    let mut file = BufWriter::new(File::create(path).map_err(failed)?);
    match format {
        Format::Json => {
            let indent = |document: &Value| crate::template::json::stringify(document, "  ");
            let (before, after) = around(evaluation, indent, |mark| format!("\"{mark}\""));
            file.write_all(before.as_bytes()).map_err(failed)?;
            let mut first = true;
            rows.texts(Which::All, |row| {
                // The mark's place in the document.
                let space = if std::mem::take(&mut first) { "" } else { ",\n      " };
                write!(file, "{space}{}", document::indented(row, 6)).map_err(failed)
            })
            .await?;
            file.write_all(after.as_bytes()).map_err(failed)?;
        }
        Format::JsonLines => rows.texts(Which::All, |row| writeln!(file, "{row}").map_err(failed)).await?,
        Format::Yaml => {
            let (before, after) = around(evaluation, yaml::text, |mark| yaml::item(&mark.into(), 2));
            file.write_all(before.as_bytes()).map_err(failed)?;
            rows.texts(Which::All, |row| {
                file.write_all(yaml::item(&parsed(row), 2).as_bytes()).map_err(failed)
            })
            .await?;
            file.write_all(after.as_bytes()).map_err(failed)?;
        }
        Format::Xml => {
            let (before, after) =
                around(evaluation, markup::xml, |mark| markup::element("results", &mark.into(), 2));
            file.write_all(before.as_bytes()).map_err(failed)?;
            let element = |row: &str| markup::element("results", &parsed(row), 2);
            rows.texts(Which::All, |row| file.write_all(element(row).as_bytes()).map_err(failed)).await?;
            file.write_all(after.as_bytes()).map_err(failed)?;
        }
        Format::Csv => {
            let mut writer = ::csv::Writer::from_writer(&mut file);
            let failed = |error: ::csv::Error| failed(error.into());
            writer.write_record(csv::head(evaluation)).map_err(failed)?;
            rows.tests(|group| writer.write_record(csv::record(evaluation, group)).map_err(failed)).await?;
        }
        Format::JUnit => {
            file.write_all(markup::junit_head(evaluation).as_bytes()).map_err(failed)?;
            for (at, column) in evaluation.columns.iter().enumerate() {
                let name = markup::suite_name(&evaluation.columns, at);
                let (before, after) = markup::junit_suite(column, &name, &evaluation.created_at);
                file.write_all(before.as_bytes()).map_err(failed)?;
                let case = |row: &Row| markup::junit_case(row, &name);
                rows.each(Which::Column(at), |row| file.write_all(case(&row).as_bytes()).map_err(failed))
                    .await?;
                file.write_all(after.as_bytes()).map_err(failed)?;
            }
            file.write_all(b"</testsuites>\n").map_err(failed)?;
        }
        Format::Html => {
            file.write_all(markup::html_head(evaluation).as_bytes()).map_err(failed)?;
            rows.tests(|group| {
                file.write_all(markup::html_line(evaluation, group).as_bytes()).map_err(failed)
            })
            .await?;
            file.write_all(b"</tbody></table></body></html>\n").map_err(failed)?;
        }
    }
    file.flush().map_err(failed)
}

fn parsed(row: &str) -> Value {
    serde_json::from_str(row).unwrap_or_default()
}

/// The text of the document before and after its rows, which need not be in memory for it. `item` is how a text looks as
/// the only row.
fn around(
    evaluation: &Evaluation,
    text: impl Fn(&Value) -> String,
    item: impl Fn(&str) -> String,
) -> (String, String) {
    let mark = uuid::Uuid::new_v4().to_string();
    let mut document = document::document(evaluation);
    if let Some(rows) = document.pointer_mut("/results/results").filter(|_| evaluation.stats.total() > 0) {
        *rows = serde_json::json!([mark]);
    }
    let text = text(&document);
    match text.split_once(&item(&mark)) {
        Some((before, after)) => (before.to_owned(), after.to_owned()),
        None => (text, String::new()),
    }
}

/// Returns a configuration as YAML, its texts in quotes.
pub fn document_as_yaml(document: &serde_json::Value) -> String {
    yaml::text(document)
}
