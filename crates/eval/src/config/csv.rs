//! Tests from tables: every column is a variable, except those with a meaning.

use serde_json::{Value, json};

use crate::model::Object;
use crate::reading::diagnostic::nearest;
use crate::reading::files;
use crate::reading::list::quoted_list;
use crate::reading::schema::ASSERTION;

/// Reason why a table has no tests.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum TableError {
    /// The text is not CSV.
    #[error(transparent)]
    Csv(#[from] csv::Error),
    #[error(
        "line {line} has {cells} cells, and the header {columns}; put a cell with a comma in double quotes"
    )]
    TooManyCells { line: u64, cells: usize, columns: usize },
    /// A column sets what assertions do not have.
    #[error("unknown setting `{setting}` in the column `{column}`{}", near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default())]
    Setting { setting: String, column: String, near: Option<&'static str> },
    /// A cell sets a number to something else.
    #[error(
        "`{value}` in row {row}, column `{column}`, is not a number; leave the cell empty for the default"
    )]
    Number { value: String, row: usize, column: String },
}

/// A row of a table, by column.
pub type Record = indexmap::IndexMap<String, String>;

/// Reads the rows of a table with a header. Cells are kept as they are written, with the spaces around them; those that a row lacks are
/// empty.
///
/// # Errors
/// If the text is not a table, or a row has more cells than the header: a comma in a cell would move all that follow.
pub fn rows(text: &str) -> Result<Vec<Record>, TableError> {
    rows_with(text, b',')
}

/// Reads the rows of a table as [`rows`] does, with `delimiter` between cells where `PROMPTFOO_CSV_DELIMITER` names no other.
///
/// # Errors
/// See [`rows`].
pub fn rows_with(text: &str, delimiter: u8) -> Result<Vec<Record>, TableError> {
    Ok(rows_and_lines(text, delimiter)?.0)
}

/// Reads the rows of a table as [`rows_with`] does, and the line of each.
///
/// # Errors
/// See [`rows`].
pub fn rows_and_lines(text: &str, delimiter: u8) -> Result<(Vec<Record>, Vec<usize>), TableError> {
    let set = std::env::var("PROMPTFOO_CSV_DELIMITER").ok().and_then(|text| text.bytes().next());
    let delimiter = set.unwrap_or(delimiter);
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader =
        csv::ReaderBuilder::new().delimiter(delimiter).flexible(true).from_reader(text.as_bytes());
    let header = reader.headers()?.clone();
    let (mut rows, mut lines) = (Vec::new(), Vec::new());
    for record in reader.records() {
        let record = record?;
        if record.iter().skip(header.len()).any(|cell| !cell.trim().is_empty()) {
            let line = record.position().map_or(0, csv::Position::line);
            return Err(TableError::TooManyCells { line, cells: record.len(), columns: header.len() });
        }
        let cells = header
            .iter()
            .enumerate()
            .map(|(at, name)| (name.trim().to_owned(), record.get(at).unwrap_or_default().to_owned()));
        rows.push(cells.collect());
        lines.push(record.position().map_or(0, |at| usize::try_from(at.line()).unwrap_or_default()));
    }
    Ok((rows, lines))
}

/// Returns the tests that the rows of a table stand for.
///
/// # Errors
/// If a column sets what assertions do not have, or a number to something else.
pub fn tests(rows: &[Record]) -> Result<Vec<Object>, TableError> {
    for column in rows.first().into_iter().flat_map(Record::keys) {
        let setting = column.strip_prefix("__config:").and_then(|rest| rest.rsplit_once(':'));
        if let Some((_, setting)) = setting.filter(|(_, setting)| !ASSERTION.contains(setting)) {
            let near = nearest(setting, ASSERTION.iter().copied());
            return Err(TableError::Setting { setting: setting.to_owned(), column: column.clone(), near });
        }
        if setting.is_some_and(|(_, setting)| matches!(setting, "threshold" | "weight")) {
            check_numbers(rows, column)?;
        }
    }
    Ok(rows.iter().map(test_of).collect())
}

/// Checks that the cells of a column are numbers, where they are not empty.
fn check_numbers(rows: &[Record], column: &str) -> Result<(), TableError> {
    for (at, cell) in rows.iter().enumerate().filter_map(|(at, row)| Some((at, row.get(column)?.trim()))) {
        if !cell.is_empty() && !cell.parse::<f64>().is_ok_and(f64::is_finite) {
            return Err(TableError::Number {
                value: cell.to_owned(),
                row: at + 1,
                column: column.to_owned(),
            });
        }
    }
    Ok(())
}

/// Returns the test that a row stands for, as a configuration would write it.
pub fn test_of(row: &Record) -> Object {
    let mut vars = Object::new();
    let mut asserts: Vec<Object> = Vec::new();
    let (mut options, mut metadata) = (Object::new(), Object::new());
    let mut settings: Vec<(String, String, String)> = Vec::new();
    let mut test = Object::new();
    let mut metric = None;
    for (key, value) in row {
        let name = key.strip_prefix("__");
        match name {
            Some(name) if name.starts_with("expected") => {
                if !value.trim().is_empty() {
                    let mut assertion = expected(value);
                    assertion.insert("\u{0}column".to_owned(), name.into());
                    asserts.push(assertion);
                }
            }
            Some("prefix") => insert_text(&mut options, "prefix", value),
            Some("suffix") => insert_text(&mut options, "suffix", value),
            Some("description") => insert_text(&mut test, "description", value),
            Some("providerOutput") => insert_text(&mut test, "providerOutput", value),
            Some("metric") => metric = Some(value.clone()).filter(|metric| !metric.is_empty()),
            Some("threshold") => {
                if let Ok(threshold) = value.trim().parse::<f64>() {
                    test.insert("threshold".to_owned(), crate::model::number_value(threshold));
                }
            }
            Some(name) if name.starts_with("metadata:") && !value.trim().is_empty() => {
                let key = &name["metadata:".len()..];
                match key.strip_suffix("[]") {
                    Some(key) => metadata.insert(key.to_owned(), json!(list(value))),
                    None => metadata.insert(key.to_owned(), json!(value)),
                };
            }
            // Without a key it is about nothing.
            Some(name) if name == "metadata" || name.starts_with("metadata:") => {}
            Some(name) if name.starts_with("config:") => {
                let mut parts = name["config:".len()..].trim_start_matches('_').splitn(2, ':');
                if let (Some(column), Some(setting)) = (parts.next(), parts.next()) {
                    settings.push((column.to_owned(), setting.to_owned(), value.clone()));
                }
            }
            _ => {
                vars.insert(key.clone(), Value::String(value.clone()));
            }
        }
    }
    for assertion in &mut asserts {
        let column = assertion.shift_remove("\u{0}column").unwrap_or_default();
        for (of, setting, value) in &settings {
            let same = column == *of
                || (of == "expected" && column == "expected1")
                || (of == "expected1" && column == "expected");
            if same && !value.is_empty() {
                let value = value.parse::<f64>().map_or_else(|_| json!(value), crate::model::number_value);
                metadata.insert(setting.clone(), value.clone());
                assertion.insert(setting.clone(), value);
            }
        }
        if let Some(metric) = &metric {
            assertion.insert("metric".to_owned(), json!(metric));
        }
    }
    test.insert("vars".to_owned(), Value::Object(vars));
    test.insert("assert".to_owned(), Value::Array(asserts.into_iter().map(Value::Object).collect()));
    test.insert("options".to_owned(), Value::Object(options));
    if !metadata.is_empty() {
        test.insert("metadata".to_owned(), Value::Object(metadata));
    }
    test
}

fn insert_text(map: &mut Object, key: &str, value: &str) {
    if !value.is_empty() {
        map.insert(key.to_owned(), json!(value));
    }
}

/// A list in one cell: commas separate, `\,` is a comma.
fn list(text: &str) -> Vec<String> {
    let marked = text.replace("\\,", "\u{0}");
    marked.split(',').map(|item| item.trim().replace('\u{0}', ",")).collect()
}

/// Returns the assertion that an `__expected` cell stands for.
pub fn expected(cell: &str) -> Object {
    let of = |kind: &str, value: Value| {
        let mut assertion = Object::new();
        assertion.insert("type".to_owned(), json!(kind));
        assertion.insert("value".to_owned(), value);
        assertion
    };
    let cell = cell.trim();
    for (prefixes, kind) in [
        (&["javascript:", "fn:", "eval:"][..], "javascript"),
        (&["python:"][..], "python"),
        (&["grade:", "llm-rubric:"][..], "llm-rubric"),
    ] {
        if let Some(value) = prefixes.iter().find_map(|prefix| cell.strip_prefix(prefix)) {
            return of(kind, json!(if kind == "llm-rubric" { value } else { value.trim() }));
        }
    }
    if cell.starts_with("file://") {
        let kind = if files::extension(cell) == "py" { "python" } else { "javascript" };
        return of(kind, json!(cell));
    }
    let head = cell.split(':').next().unwrap_or_default();
    let (name, threshold) = match head.split_once('(') {
        Some((name, rest)) => {
            (name, rest.strip_suffix(')').and_then(|number| number.trim().parse::<f64>().ok()))
        }
        None => (head, None),
    };
    let (name, base) = (name.trim(), name.trim().trim_start_matches("not-"));
    if !crate::assertion::registry::known(base) || (head.contains('(') && threshold.is_none()) {
        return of("equals", json!(cell));
    }
    let value = cell.get(head.len() + 1..).map(str::trim).unwrap_or_default();
    let value = if base.ends_with("-any") || base.ends_with("-all") {
        json!(quoted_list(value))
    } else {
        json!(value)
    };
    let mut assertion = of(name, value);
    let scored = [
        "similar",
        "levenshtein",
        "classifier",
        "rouge-n",
        "answer-relevance",
        "context-recall",
        "context-relevance",
        "context-faithfulness",
        "cost",
        "latency",
        "perplexity",
        "perplexity-score",
        "starts-with",
    ];
    let default = match base {
        "similar" => Some(0.8),
        "starts-with" | "cost" | "latency" => None,
        base if scored.contains(&base) => Some(0.75),
        _ => None,
    };
    if let Some(threshold) = threshold.or(default) {
        assertion.insert("threshold".to_owned(), crate::model::number_value(threshold));
    }
    if cell.len() <= head.len() {
        assertion.shift_remove("value");
    }
    assertion
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_become_assertions() {
        let of = |cell: &str| Value::Object(expected(cell));
        assert_eq!(of("hello"), json!({"type": "equals", "value": "hello"}));
        assert_eq!(of("contains: x"), json!({"type": "contains", "value": "x"}));
        assert_eq!(of("not-contains:x"), json!({"type": "not-contains", "value": "x"}));
        assert_eq!(
            of("javascript: output.length > 1"),
            json!({"type": "javascript", "value": "output.length > 1"})
        );
        assert_eq!(of("contains-any: a, \"b, c\""), json!({"type": "contains-any", "value": ["a", "b, c"]}));
        assert_eq!(of("similar(0.9):hi"), json!({"type": "similar", "value": "hi", "threshold": 0.9}));
        assert_eq!(of("similar:hi"), json!({"type": "similar", "value": "hi", "threshold": 0.8}));
        assert_eq!(of("is-json"), json!({"type": "is-json"}));
        assert_eq!(of("note: this"), json!({"type": "equals", "value": "note: this"}));
        assert_eq!(of("file://a.py"), json!({"type": "python", "value": "file://a.py"}));
    }

    #[test]
    fn cells_keep_their_spaces() {
        let test =
            Value::Object(test_of(&rows("q,__prefix,__expected\n hi ,P ,  contains: h\n").unwrap()[0]));
        assert_eq!(test["vars"], json!({"q": " hi "}));
        assert_eq!(test["options"], json!({"prefix": "P "}));
        assert_eq!(test["assert"], json!([{"type": "contains", "value": "h"}]));
    }

    #[test]
    fn columns_have_meanings() {
        let text = "q,__expected,__expected2,__metric,__metadata:tags[],__config:__expected2:threshold,__description\n\
            hi,contains:a,levenshtein:b,m,\"x,y\\,z\",3,first\n";
        let test = Value::Object(test_of(&rows(text).unwrap()[0]));
        assert_eq!(test["vars"], json!({"q": "hi"}));
        assert_eq!(test["description"], "first");
        assert_eq!(test["metadata"], json!({"tags": ["x", "y,z"], "threshold": 3}));
        assert_eq!(test["assert"][0], json!({"type": "contains", "value": "a", "metric": "m"}));
        assert_eq!(
            test["assert"][1],
            json!({"type": "levenshtein", "value": "b", "threshold": 3, "metric": "m"})
        );
    }

    #[test]
    fn rows_that_do_not_fit_their_header_are_refused() {
        let surplus = rows("q,__expected\nfine,\nHello, world,contains:x\n").unwrap_err().to_string();
        assert!(surplus.starts_with("line 3 has 3 cells, and the header 2"), "{surplus}");
        assert_eq!(rows("a,b\n1\n1,2,\n").unwrap().len(), 2);
        let wrong = tests(&rows("q,__expected,__config:__expected:treshold\na,contains:a,1\n").unwrap());
        assert!(wrong.unwrap_err().to_string().ends_with("did you mean `threshold`?"));
        let numbers = "q,__expected,__config:__expected:threshold\na,levenshtein:a,\nb,levenshtein:b,high\n";
        let wrong = tests(&rows(numbers).unwrap()).unwrap_err().to_string();
        assert!(wrong.starts_with("`high` in row 2, column `__config:__expected:threshold`"), "{wrong}");
    }
}
