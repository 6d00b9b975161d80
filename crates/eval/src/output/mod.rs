//! Result files.

mod csv;
pub mod json;
mod markup;
mod yaml;

use std::path::Path;

use crate::model::Evaluation;

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

/// Writes results to a file.
///
/// # Errors
/// When the path asks for no kind of file, or cannot be written.
pub fn write(evaluation: &Evaluation, path: &str) -> Result<(), String> {
    let text = match format_of(path)? {
        Format::Json => crate::template::json::stringify(&json::document(evaluation), "  "),
        Format::Csv => csv::table(evaluation)?,
        Format::Yaml => yaml::text(&json::document(evaluation)),
        Format::Xml => markup::xml(&json::document(evaluation)),
        Format::JUnit => markup::junit(evaluation),
        Format::Html => markup::html(evaluation),
        Format::JsonLines => {
            let line = |row| serde_json::to_string(row).unwrap_or_default() + "\n";
            evaluation.rows.iter().map(line).collect()
        }
    };
    let failed = |error: std::io::Error| format!("failed to write `{path}`: {error}");
    if let Some(parent) = Path::new(path).parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    std::fs::write(path, text).map_err(failed)
}
