//! Result files.

pub(crate) mod csv;
pub mod json;
mod markup;
pub(crate) mod yaml;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use serde_json::Value;

use crate::model::{Evaluation, Row};
use crate::store::recording::{Recorded, Which};

/// The kinds of result files, by their ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One document.
    Json,
    /// One row a line.
    JsonLines,
    /// A table for spreadsheets.
    Csv,
    /// The document as YAML.
    Yaml,
    /// The document as XML.
    Xml,
    /// What build servers read.
    JUnit,
    /// A page.
    Html,
}

/// The kind that a path asks for.
///
/// # Errors
/// When its ending is of no kind.
pub fn format_of(path: &str) -> Result<Format, String> {
    let extension =
        Path::new(path).extension().map(|ending| ending.to_string_lossy().to_lowercase()).unwrap_or_default();
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
        _ => Err(format!(
            "`{path}` has no ending that results are written for; use .json, .jsonl, .csv, .yaml, .xml, .junit.xml or .html"
        )),
    }
}

/// Writes results to a file, one row after another.
///
/// # Errors
/// When the path asks for no kind of file, or cannot be written.
pub async fn write(evaluation: &Evaluation, rows: &mut Recorded, path: &str) -> Result<(), String> {
    let format = format_of(path)?;
    let failed = |error: std::io::Error| format!("failed to write `{path}`: {error}");
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
                write!(file, "{space}{}", json::indented(row, 6)).map_err(failed)
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
            let failed = |error: ::csv::Error| format!("failed to write `{path}`: {error}");
            writer.write_record(csv::head(evaluation)).map_err(failed)?;
            rows.tests(|group| writer.write_record(csv::record(evaluation, group)).map_err(failed)).await?;
        }
        Format::JUnit => {
            file.write_all(markup::junit_head(evaluation).as_bytes()).map_err(failed)?;
            for (at, column) in evaluation.columns.iter().enumerate() {
                let (before, after) = markup::junit_suite(column, at);
                file.write_all(before.as_bytes()).map_err(failed)?;
                let case = |row: &Row| markup::junit_case(row, column, at);
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
    let mut document = json::document(evaluation);
    if let Some(rows) = document.pointer_mut("/results/results").filter(|_| evaluation.stats.total() > 0) {
        *rows = serde_json::json!([mark]);
    }
    let text = text(&document);
    match text.split_once(&item(&mark)) {
        Some((before, after)) => (before.to_owned(), after.to_owned()),
        None => (text, String::new()),
    }
}
