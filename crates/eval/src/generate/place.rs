//! Adding to a list of a configuration, with its comments and its order kept where they can be.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::yaml;
use crate::model::Object;
use crate::output::document_as_yaml;
use crate::reading::diagnostic::Diagnostic;
use crate::reading::files;
use crate::reading::node::Node;

/// Reason why a configuration was not extended. The file is as it was.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum PlaceError {
    /// The file could not be read or written.
    #[error("failed to {what} `{}`: {error}", .path.display())]
    File { what: &'static str, path: PathBuf, error: std::io::Error },
    /// The file is not YAML.
    #[error("{0}")]
    Parse(Diagnostic),
    /// The configuration is a program.
    #[error("`{}` is a program, which cannot be written to; write to a file with --output", .0.display())]
    Program(PathBuf),
    /// The place for the list holds something else.
    #[error("`{key}` of `{}` is not {wanted}; write to a file with --output", .path.display())]
    Shape { key: String, path: PathBuf, wanted: &'static str },
}

/// Adds items to the list that these keys lead to, and returns whether comments and order were kept.
///
/// # Errors
/// When the file cannot be read or written, or has something else there.
pub fn add(path: &Path, keys: &[&str], items: &[Value]) -> Result<bool, PlaceError> {
    let file = |what| move |error| PlaceError::File { what, path: path.to_owned(), error };
    let extension = files::extension(&path.to_string_lossy());
    if files::is_javascript(&extension) {
        return Err(PlaceError::Program(path.to_owned()));
    }
    let text = std::fs::read_to_string(path).map_err(file("read"))?;
    let name: Arc<Path> = path.into();
    let parse = |text: &str| Node::parse(text, &name).map(|node| node.to_value());
    let wanted = extended(parse(&text).map_err(PlaceError::Parse)?, keys, items, path)?;
    let in_place = (extension != "json").then(|| inserted(&text, keys, items)).flatten();
    let in_place = in_place.filter(|text| parse(text).is_ok_and(|value| value == wanted));
    let kept = in_place.is_some() || extension == "json";
    let text = in_place.unwrap_or_else(|| match extension.as_str() {
        "json" => format!("{wanted:#}\n"),
        _ => document_as_yaml(&wanted),
    });
    std::fs::write(path, text).map_err(file("write"))?;
    Ok(kept)
}

/// Returns a configuration with the items in it.
fn extended(mut root: Value, keys: &[&str], items: &[Value], path: &Path) -> Result<Value, PlaceError> {
    let shape = |key: &str, wanted| PlaceError::Shape { key: key.to_owned(), path: path.to_owned(), wanted };
    let mut at = &mut root;
    if at.is_null() {
        *at = json!({});
    }
    for (depth, key) in keys.iter().enumerate() {
        let above = keys[..depth].join(".");
        let map: &mut Object = at.as_object_mut().ok_or_else(|| shape(&above, "a map in this file"))?;
        at = map.entry(*key).or_insert(Value::Null);
        if at.is_null() {
            *at = if depth + 1 == keys.len() { json!([]) } else { json!({}) };
        }
    }
    match at {
        Value::Array(list) => list.extend(items.iter().cloned()),
        // One file of tests, which stays the first.
        Value::String(_) => {
            let first = at.take();
            *at = std::iter::once(first).chain(items.iter().cloned()).collect();
        }
        _ => return Err(shape(&keys.join("."), "a list")),
    }
    Ok(root)
}

/// Returns the text of a configuration with the items put after the others of the list, if it is written line by line.
fn inserted(text: &str, keys: &[&str], items: &[Value]) -> Option<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let (at, new) = place(&lines, 0, lines.len(), 0, keys, items)?;
    lines.splice(at..at, new.lines().map(str::to_owned));
    Some(format!("{}\n", lines.join("\n")))
}

/// The place of new lines, and the lines: in a map between two lines, whose keys are at a column.
fn place(
    lines: &[String],
    start: usize,
    end: usize,
    column: usize,
    keys: &[&str],
    items: &[Value],
) -> Option<(usize, String)> {
    let (key, rest) = keys.split_first()?;
    let Some(line) = (start..end).find(|at| is_key(&lines[*at], column, key)) else {
        let mut new = String::new();
        for (depth, key) in keys.iter().enumerate() {
            new.push_str(&format!("{:width$}{key}:\n", "", width = column + 2 * depth));
        }
        new.push_str(&yaml::list(items, column + 2 * keys.len()));
        return Some((last_line(lines, start, end), new));
    };
    let begins_item = |at: usize| lines[at].trim_start().starts_with("- ") || lines[at].trim() == "-";
    let inside = |at: usize| {
        let width = indent(&lines[at]);
        is_blank(&lines[at]) || width > column || width == column && begins_item(at)
    };
    let end = (line + 1..end).find(|at| !inside(*at)).unwrap_or(end);
    let first = (line + 1..end).find(|at| !is_blank(&lines[*at]));
    let inner = first.map_or(column + 2, |at| indent(&lines[at]));
    if rest.is_empty() {
        return Some((last_line(lines, line + 1, end), yaml::list(items, inner)));
    }
    place(lines, line + 1, end, inner, rest, items)
}

/// The line after the last one that has something on it.
fn last_line(lines: &[String], start: usize, end: usize) -> usize {
    (start..end).rev().find(|at| !is_blank(&lines[*at])).map_or(start, |at| at + 1)
}

fn is_key(line: &str, column: usize, key: &str) -> bool {
    let text = line.trim_start();
    let after = ["", "\"", "'"].iter().find_map(|quote| {
        text.strip_prefix(quote)?.strip_prefix(key)?.strip_prefix(quote)?.strip_prefix(':')
    });
    indent(line) == column && after.is_some_and(|after| is_blank(after.trim_start()))
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Whether a line has nothing but a comment.
fn is_blank(line: &str) -> bool {
    let text = line.trim();
    text.is_empty() || text.starts_with('#')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(text: &str, keys: &[&str]) -> (bool, String) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("promptfooconfig.yaml");
        std::fs::write(&path, text).unwrap();
        let kept = add(&path, keys, &[json!({"vars": {"a": "new"}})]).unwrap();
        (kept, std::fs::read_to_string(&path).unwrap())
    }

    #[test]
    fn comments_and_order_are_kept() {
        let head = "# My suite\nprompts: ['{{a}}'] # one\n";
        let new = "  - vars:\n      a: new\n";
        let cases = [
            (
                format!("{head}tests:\n  # first\n  - vars: {{a: x}}\n\n# who answers\nproviders: [echo]\n"),
                format!(
                    "{head}tests:\n  # first\n  - vars: {{a: x}}\n{new}\n# who answers\nproviders: [echo]\n"
                ),
            ),
            (head.to_owned(), format!("{head}tests:\n{new}")),
            (format!("{head}tests: # none yet\n"), format!("{head}tests: # none yet\n{new}")),
            (
                format!("{head}tests:\n- vars: {{a: x}}\n"),
                format!("{head}tests:\n- vars: {{a: x}}\n- vars:\n    a: new\n"),
            ),
        ];
        for (before, after) in cases {
            assert_eq!(added(&before, &["tests"]), (true, after), "{before}");
        }
    }

    #[test]
    fn lists_inside_a_map_are_found() {
        let new = |column: usize| yaml::list(&[json!({"vars": {"a": "new"}})], column);
        let head = "prompts: ['{{a}}']\n";
        let keys = ["defaultTest", "assert"];
        let cases = [
            (head.to_owned(), format!("{head}defaultTest:\n  assert:\n{}", new(4))),
            (
                format!("defaultTest:\n    vars: {{a: 1}}\n{head}"),
                format!("defaultTest:\n    vars: {{a: 1}}\n    assert:\n{}{head}", new(6)),
            ),
            (
                format!("defaultTest:\n  assert:\n    - type: x # y\n  vars: {{}}\n{head}"),
                format!("defaultTest:\n  assert:\n    - type: x # y\n{}  vars: {{}}\n{head}", new(4)),
            ),
        ];
        for (before, after) in cases {
            assert_eq!(added(&before, &keys), (true, after), "{before}");
        }
    }

    #[test]
    fn what_is_on_one_line_is_written_anew() {
        let (kept, text) = added("prompts: [x]\ntests: file://tests.csv # mine\n", &["tests"]);
        let value = Node::parse(&text, &Path::new("x").into()).unwrap().to_value();
        assert_eq!(value, json!({"prompts": ["x"], "tests": ["file://tests.csv", {"vars": {"a": "new"}}]}));
        assert!(!kept);
    }

    #[test]
    fn what_is_no_list_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("promptfooconfig.yaml");
        let text = "defaultTest: file://default.yaml\n";
        std::fs::write(&path, text).unwrap();
        let error = add(&path, &["defaultTest", "assert"], &[json!(1)]).unwrap_err().to_string();
        assert!(error.starts_with("`defaultTest` of `"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        assert!(matches!(add(Path::new("x.mjs"), &["tests"], &[]), Err(PlaceError::Program(_))));
    }
}
