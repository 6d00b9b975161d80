//! Tests: inline, from files of many formats, and from scripts.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::xlsx::{self, XlsxError};
use crate::model::{Object, TestCase};
use crate::reading::diagnostic::{Findings, Position, Severity};
use crate::reading::node::{Entry, Kind, Node};
use crate::reading::schema::{TEST, check_keys, wrong_shape};
use crate::reading::{document, files, references};
use crate::script::{EntryPoint, Language, ScriptCall, ScriptError, Workers};
use crate::template::value::to_text;

/// The time limit of a script that makes tests.
const GENERATOR_LIMIT: Duration = Duration::from_secs(300);

/// The keys of which a test has at least one. `transform` counts as one of `options`.
const CONTENT: [&str; 8] =
    ["vars", "assert", "options", "metadata", "provider", "providerOutput", "threshold", "transform"];

/// Reason why a file gave no tests.
#[derive(Debug, thiserror::Error)]
enum TestsError {
    #[error(transparent)]
    Read(#[from] std::io::Error),
    #[error(transparent)]
    Table(#[from] super::csv::TableError),
    #[error("line {line}: {error}")]
    Line { line: usize, error: serde_json::Error },
    #[error(transparent)]
    Generator(#[from] ScriptError),
    #[error("the generator did not return a list")]
    NotAList,
    #[error(transparent)]
    Spreadsheet(#[from] XlsxError),
    #[error("unknown file extension `.{0}`; use .csv, .tsv, .xlsx, .json, .jsonl, .yaml, .py or .js")]
    Extension(String),
}

/// Reads a `tests` value into the tests it stands for, as objects.
pub async fn read(node: Node, base: &Path, workers: &Workers, findings: &mut Findings) -> Vec<Object> {
    let maps = node.items().into_iter().flatten().filter(|item| item.is_map() && !is_generator(item));
    maps.for_each(|item| check_content(item, findings));
    read_parts(node, base, workers, findings).await
}

/// Reports a test that has nothing of a test.
fn check_content(node: &Node, findings: &mut Findings) {
    let has = |key| node.get(key).is_some_and(|value: &Node| !value.is_null());
    if !CONTENT.iter().any(|key| has(key)) {
        let message = "a test needs at least one of `vars`, `assert`, `options`, `metadata`, `provider`, \
                       `providerOutput` and `threshold`";
        findings.add(Severity::Error, Some(&node.at), message);
    }
}

/// Reads parts of tests, which may be empty.
pub async fn read_parts(node: Node, base: &Path, workers: &Workers, findings: &mut Findings) -> Vec<Object> {
    let mut tests = Vec::new();
    match node.kind {
        Kind::Scalar(Value::Null) => {}
        Kind::Scalar(Value::String(reference)) => {
            from_reference(&reference, None, &node.at, base, workers, findings, &mut tests).await;
        }
        // Taken one by one, so that a long list is not there twice.
        Kind::List(items) => {
            for item in items {
                match &item.kind {
                    Kind::Scalar(Value::String(reference)) => {
                        from_reference(reference, None, &item.at, base, workers, findings, &mut tests).await;
                    }
                    Kind::Map(_) if is_generator(&item) => {
                        from_generator(&item, base, workers, findings, &mut tests).await;
                    }
                    Kind::Map(_) => tests.push(inline(item, base, workers.base(), findings)),
                    _ => wrong_shape(&item, "a test", "a map or a path", findings),
                }
            }
        }
        Kind::Map(_) if is_generator(&node) => {
            from_generator(&node, base, workers, findings, &mut tests).await;
        }
        _ => wrong_shape(&node, "`tests`", "a list or a path", findings),
    }
    tests
}

fn is_generator(node: &Node) -> bool {
    node.get("path").is_some()
        && node.entries().iter().all(|entry| entry.key == "path" || entry.key == "config")
}

async fn from_generator(
    node: &Node,
    base: &Path,
    workers: &Workers,
    findings: &mut Findings,
    tests: &mut Vec<Object>,
) {
    let Some(path) = node.get("path").and_then(Node::text) else {
        return wrong_shape(node, "`path` of a test generator", "text", findings);
    };
    let mut config = node.get("config").map(Node::to_value);
    if let Some(Err(problem)) = config.as_mut().map(|config| references::resolve(config, base)) {
        return findings.add(Severity::Error, Some(&node.at), problem.to_string());
    }
    from_reference(path, config, &node.at, base, workers, findings, tests).await;
}

/// Checks one test and turns it into an object; a `vars` that is a path is read. The files of its checks are relative to `root`, the
/// directory of the run.
pub fn inline(mut node: Node, base: &Path, root: &Path, findings: &mut Findings) -> Object {
    check(&mut node, root, findings);
    let vars = node.get("vars").filter(|vars| !vars.is_map());
    let loaded = vars.map(|vars| vars_from_files(vars, base, findings));
    let Value::Object(mut test) = node.into_value() else { return Object::new() };
    if let Some(vars) = loaded {
        test.insert("vars".to_owned(), Value::Object(vars));
    }
    test
}

fn check(node: &mut Node, root: &Path, findings: &mut Findings) {
    if let Kind::Map(entries) = &mut node.kind
        && let Some(at) = entries.iter().position(|entry| entry.key == "transform")
    {
        let entry = entries.remove(at);
        let message = "`transform` of a test is taken as `options.transform`";
        findings.add(Severity::Notice, Some(&entry.at), message);
        match entries.iter_mut().find(|entry| entry.key == "options") {
            Some(Entry { value: Node { kind: Kind::Map(options), .. }, .. }) => options.push(entry),
            _ => {
                let value = Node { at: entry.at.clone(), kind: Kind::Map(vec![entry.clone()]) };
                entries.push(Entry { key: "options".to_owned(), at: entry.at, value });
            }
        }
    }
    check_keys(node, TEST, "a test", findings);
    if let Some(asserts) = node.get("assert") {
        super::assertions::read(asserts, root, findings);
    }
    let transform = node.get("options").and_then(|options| options.get("transform"));
    for file in transform.into_iter().chain(node.get("assertScoringFunction")) {
        super::assertions::check_file(file, Severity::Error, root, findings);
    }
    if let Some(provider) = node.get("provider") {
        super::providers::check_override(provider, root, findings);
    }
    for key in ["options", "metadata"] {
        if let Some(value) = node.get(key)
            && !value.is_map()
            && !value.is_null()
        {
            wrong_shape(value, &format!("`{key}`"), "a map", findings);
        }
    }
    if let Some(value) = node.get("threshold")
        && !matches!(value.kind, Kind::Scalar(Value::Number(_) | Value::Null))
    {
        wrong_shape(value, "`threshold`", "a number", findings);
    }
}

/// `vars` given as a path or a list of paths to YAML files.
fn vars_from_files(node: &Node, base: &Path, findings: &mut Findings) -> Object {
    let mut vars = Object::new();
    let paths: Vec<&Node> = node.items().map_or_else(|| vec![node], |items| items.iter().collect());
    for path in paths {
        let Some(text) = path.text() else {
            wrong_shape(path, "`vars`", "a map, a path or a list of paths", findings);
            continue;
        };
        let found = files::expand(&files::resolve(base, text).to_string_lossy());
        if found.is_empty() {
            findings.add(Severity::Error, Some(&path.at), format!("file of variables not found: `{text}`"));
        }
        for file in found {
            if let Ok(node) = document::read(&file, findings) {
                vars.extend(node.to_value().as_object().cloned().unwrap_or_default());
            }
        }
    }
    vars
}

async fn from_reference(
    reference: &str,
    config: Option<Value>,
    at: &Position,
    base: &Path,
    workers: &Workers,
    findings: &mut Findings,
    tests: &mut Vec<Object>,
) {
    if reference.starts_with("http://")
        || reference.starts_with("https://")
        || reference.contains("://") && !reference.starts_with("file://")
    {
        let message = format!("tests cannot be read from `{reference}`");
        return findings.hint(Severity::Error, Some(at), message, "save them as a CSV, JSON or YAML file");
    }
    let (path, name) = files::split_name(reference);
    let (path, sheet) = xlsx::split_sheet(path);
    let name = name.or(sheet);
    let whole = files::resolve(base, path);
    let found = if whole.is_file() { vec![whole] } else { files::expand(&whole.to_string_lossy()) };
    if found.is_empty() {
        return findings.add(Severity::Error, Some(at), format!("file of tests not found: `{path}`"));
    }
    for file in found {
        let before = tests.len();
        let read = from_file(&file, name, config.clone(), base, workers, findings, tests).await;
        if let Err(error) = read {
            findings.add(
                Severity::Error,
                Some(at),
                format!("failed to read tests from `{}`: {error}", file.display()),
            );
        }
        let table = matches!(files::extension(&file.to_string_lossy()).as_str(), "csv" | "tsv" | "xlsx");
        for (at, test) in tests[before..].iter_mut().enumerate().filter(|_| table) {
            if !test.contains_key("description") {
                test.insert("description".to_owned(), json!(format!("Row #{}", at + 1)));
            }
        }
    }
}

/// Reads the tests of one file. Mistakes within a document become findings.
async fn from_file(
    file: &Path,
    name: Option<&str>,
    config: Option<Value>,
    base: &Path,
    workers: &Workers,
    findings: &mut Findings,
    tests: &mut Vec<Object>,
) -> Result<(), TestsError> {
    match files::extension(&file.to_string_lossy()).as_str() {
        extension @ ("csv" | "tsv") => {
            let delimiter = if extension == "tsv" { b'\t' } else { b',' };
            let (rows, lines) = super::csv::rows_and_lines(&std::fs::read_to_string(file)?, delimiter)?;
            check_rows(&rows, |row| lines.get(row).copied(), file, workers.base(), findings);
            tests.extend(super::csv::tests(&rows)?);
        }
        "xlsx" => {
            let rows = xlsx::rows(&std::fs::read(file)?, name)?;
            check_rows(&rows, |_| None, file, workers.base(), findings);
            tests.extend(super::csv::tests(&rows)?);
        }
        "jsonl" => {
            let text = std::fs::read_to_string(file)?;
            from_lines(&text, file, (base, workers.base()), findings, tests)?;
        }
        "json" | "yaml" | "yml" => {
            if let Ok(node) = document::read(file, findings) {
                from_document(node, (base, workers.base()), findings, tests);
            }
        }
        "py" => generate(file, name, Language::Python, config, workers, findings, tests).await?,
        extension if files::is_javascript(extension) => {
            generate(file, name, Language::JavaScript, config, workers, findings, tests).await?;
        }
        other => return Err(TestsError::Extension(other.to_owned())),
    }
    Ok(())
}

/// Reports files of checks in the cells of a table that do not exist.
fn check_rows(
    rows: &[super::csv::Record],
    line: impl Fn(usize) -> Option<usize>,
    file: &Path,
    root: &Path,
    findings: &mut Findings,
) {
    let file: Arc<Path> = file.into();
    for (at, row) in rows.iter().enumerate() {
        let position = Position { file: file.clone(), line: line(at).unwrap_or(at + 2), column: 1 };
        let cells = row.iter().map(|(column, cell)| (column.as_str(), cell.as_str()));
        super::assertions::check_cells(cells, Some(at + 1), &position, root, findings);
    }
}

fn from_lines(
    text: &str,
    file: &Path,
    (base, root): (&Path, &Path),
    findings: &mut Findings,
    tests: &mut Vec<Object>,
) -> Result<(), TestsError> {
    let file: Arc<Path> = file.into();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let position = Position { file: file.clone(), line: at + 1, column: 1 };
        let value: Value =
            serde_json::from_str(line).map_err(|error| TestsError::Line { line: at + 1, error })?;
        let node = Node::of(value, position);
        check_content(&node, findings);
        tests.push(inline(node, base, root, findings));
    }
    Ok(())
}

fn from_document(node: Node, bases: (&Path, &Path), findings: &mut Findings, tests: &mut Vec<Object>) {
    match node.kind {
        Kind::List(items) => {
            items.into_iter().for_each(|item| from_document_item(item, bases, findings, tests));
        }
        Kind::Map(_) => from_document_item(node, bases, findings, tests),
        _ => wrong_shape(&node, "a file of tests", "a list of tests", findings),
    }
}

/// A map with no key of a test is a row of a table.
fn from_document_item(
    node: Node,
    (base, root): (&Path, &Path),
    findings: &mut Findings,
    tests: &mut Vec<Object>,
) {
    let is_row = node.is_map() && !node.entries().iter().any(|entry| TEST.contains(&entry.key.as_str()));
    if !is_row || node.entries().is_empty() {
        check_content(&node, findings);
        return tests.push(inline(node, base, root, findings));
    }
    let cells = node.entries().iter().map(|entry| (entry.key.clone(), to_text(&entry.value.to_value())));
    let row: super::csv::Record = cells.collect();
    let cells = row.iter().map(|(column, cell)| (column.as_str(), cell.as_str()));
    super::assertions::check_cells(cells, None, &node.at, root, findings);
    tests.push(super::csv::test_of(&row));
}

async fn generate(
    file: &Path,
    name: Option<&str>,
    language: Language,
    config: Option<Value>,
    workers: &Workers,
    findings: &mut Findings,
    tests: &mut Vec<Object>,
) -> Result<(), TestsError> {
    let default: &[&str] = if language == Language::Python { &["generate_tests"] } else { &["default"] };
    let path = file.canonicalize()?;
    // Functions in tests can be called again where the tests can be made again: without a name and settings.
    let entry = match (language, name, &config) {
        (Language::JavaScript, None, None) => EntryPoint::Tests { path },
        _ => EntryPoint::Function { path, name: name.map(str::to_owned), default },
    };
    let call = ScriptCall::new(language, entry, config.into_iter().collect()).within(GENERATOR_LIMIT);
    let reply = workers.call(call).await?;
    let Value::Array(items) = reply.value else {
        return Err(TestsError::NotAList);
    };
    let position = Position { file: file.into(), line: 1, column: 1 };
    let base = workers.base();
    tests
        .extend(items.into_iter().map(|item| inline(Node::of(item, position.clone()), base, base, findings)));
    Ok(())
}

/// Merges a test over defaults: variables, options and metadata key by key, assertions after each other.
pub fn merge(defaults: &Object, mut test: Object) -> Object {
    // There may be very many tests, so none has room for more.
    let mut merged = Object::with_capacity(3 + test.len());
    let no_defaults = option(&test, "disableDefaultAsserts") == Some(&json!(true));
    let mut joined = |key: &str| {
        let own = match test.get_mut(key).map(Value::take) {
            Some(Value::Object(own)) => own,
            _ => Object::new(),
        };
        let Some(Value::Object(defaults)) = defaults.get(key) else { return Value::Object(own) };
        let mut map = defaults.clone();
        map.extend(own);
        Value::Object(map)
    };
    let (vars, mut options, metadata) = (joined("vars"), joined("options"), joined("metadata"));
    // An empty affix of a test is none.
    for affix in ["prefix", "suffix"] {
        if options.get(affix) == Some(&json!(""))
            && let Some(default) = option(defaults, affix)
        {
            options[affix] = default.clone();
        }
    }
    let mut asserts = match defaults.get("assert") {
        Some(Value::Array(asserts)) if !no_defaults => asserts.clone(),
        _ => Vec::new(),
    };
    if let Some(Value::Array(own)) = test.get_mut("assert").map(Value::take) {
        match asserts.is_empty() {
            true => asserts = own,
            false => asserts.extend(own),
        }
    }
    if let Some(description) = test.get_mut("description").map(Value::take) {
        merged.insert("description".to_owned(), description);
    }
    merged.insert("vars".to_owned(), vars);
    merged.insert("assert".to_owned(), Value::Array(asserts));
    merged.insert("options".to_owned(), options);
    merged.insert("metadata".to_owned(), metadata);
    for key in ["threshold", "provider", "providers", "prompts", "assertScoringFunction"] {
        let own = test.get_mut(key).map(Value::take).filter(|value| !value.is_null());
        if let Some(value) = own.or_else(|| defaults.get(key).cloned()) {
            merged.insert(key.to_owned(), value);
        }
    }
    for (key, value) in test {
        merged.entry(key).or_insert(value);
    }
    merged
}

/// Returns an option of a test.
pub fn option<'a>(test: &'a Object, key: &str) -> Option<&'a Value> {
    test.get("options")?.get(key)
}

/// Parses a merged test.
pub fn parse(raw: Arc<Object>) -> TestCase {
    let map = |key: &str| raw.get(key).and_then(Value::as_object).cloned().unwrap_or_default();
    TestCase {
        description: raw.get("description").and_then(Value::as_str).map(str::to_owned),
        assertions: super::assertions::of_value(raw.get("assert")),
        threshold: raw.get("threshold").and_then(Value::as_f64),
        options: map("options"),
        metadata: map("metadata"),
        // What JavaScript takes for false is no answer.
        provider_output: raw
            .get("providerOutput")
            .filter(|value| {
                !matches!(value, Value::Null | Value::Bool(false)) && **value != "" && **value != 0
            })
            .cloned(),
        scoring_function: raw.get("assertScoringFunction").filter(|value| !value.is_null()).cloned(),
        raw,
    }
}
