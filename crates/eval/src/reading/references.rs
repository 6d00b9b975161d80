//! `file://` values inside configurations, which stand for what the files hold.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::diagnostic::Diagnostic;
use super::files;
use super::node::Node;
use crate::model::Object;

/// Levels of files that name files, after which they are taken for a circle.
const MAX_DEPTH: usize = 20;

/// Reason why a `file://` value was not replaced.
#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    /// The file could not be read as UTF-8.
    #[error("failed to read `{}`: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The failure of the system call.
        error: std::io::Error,
    },
    /// The file is neither YAML nor JSON.
    #[error("{0}")]
    Parse(Diagnostic),
    /// Files name each other.
    #[error("`{0}` is part of a circle of files")]
    Circle(String),
}

/// Replaces every text `file://…` in a value by the content of the file, relative to `base`: JSON and YAML as values, in which
/// further files are replaced, and everything else as text. Scripts, and paths that are templates, are left as they are.
///
/// # Errors
/// When a file cannot be read or parsed.
pub fn resolve(value: &mut Value, base: &Path) -> Result<(), ReferenceError> {
    resolve_within(value, base, MAX_DEPTH)
}

/// Settings whose files are sent as they are, and read when they are.
pub const SENT: &str = "multipart";

/// As [`resolve`], for all settings of a provider.
///
/// # Errors
/// As [`resolve`].
pub fn resolve_all(map: &mut Object, base: &Path) -> Result<(), ReferenceError> {
    let mut values = map.iter_mut().filter(|(name, _)| *name != SENT);
    values.try_for_each(|(_, value)| resolve(value, base))
}

fn resolve_within(value: &mut Value, base: &Path, depth: usize) -> Result<(), ReferenceError> {
    match value {
        Value::String(text) if is_data(text) => {
            let Some(depth) = depth.checked_sub(1) else { return Err(ReferenceError::Circle(text.clone())) };
            *value = load(&files::resolve(base, text))?;
            // Text is text, even when it reads like a path.
            if !value.is_string() {
                resolve_within(value, base, depth)?;
            }
        }
        Value::Array(items) => items.iter_mut().try_for_each(|item| resolve_within(item, base, depth))?,
        Value::Object(map) => map.values_mut().try_for_each(|item| resolve_within(item, base, depth))?,
        _ => {}
    }
    Ok(())
}

fn is_data(text: &str) -> bool {
    let extension = files::extension(text);
    text.starts_with("file://")
        && !text.contains("{{")
        && !matches!(extension.as_str(), "py" | "rb" | "go")
        && !files::is_javascript(&extension)
}

fn load(path: &Path) -> Result<Value, ReferenceError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| ReferenceError::Read { path: path.to_owned(), error })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    Ok(match files::extension(&path.to_string_lossy()).as_str() {
        "json" | "yaml" | "yml" => {
            Node::parse(text, &path.into()).map_err(ReferenceError::Parse)?.into_value()
        }
        _ => json!(text),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_stand_for_what_they_hold() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        write("format.json", r#"{"type": "json_schema", "schema": "file://schema.yaml"}"#);
        write("schema.yaml", "type: object\n");
        write("system.txt", "be kind\n");
        let mut value = json!({
            "response_format": "file://format.json",
            "messages": [{"content": "file://system.txt"}],
            "transform": "file://code.js:f", "own": "file://{{name}}.json", "n": 1,
        });
        resolve(&mut value, directory.path()).unwrap();
        let expected = json!({
            "response_format": {"type": "json_schema", "schema": {"type": "object"}},
            "messages": [{"content": "be kind\n"}],
            "transform": "file://code.js:f", "own": "file://{{name}}.json", "n": 1,
        });
        assert_eq!(value, expected);
        let missing = resolve(&mut json!("file://missing.json"), directory.path()).unwrap_err();
        assert!(missing.to_string().contains("missing.json"));
        write("circle.json", r#"["file://circle.json"]"#);
        let circle = resolve(&mut json!("file://circle.json"), directory.path()).unwrap_err();
        assert!(matches!(circle, ReferenceError::Circle(_)));
    }
}
