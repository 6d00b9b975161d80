//! Assertions: one reader, which checks them while their location is known.

use std::path::Path;

use serde_json::Value;

use super::csv;
use crate::assertion::{meteor, registry};
use crate::model::{Assertion, Object};
use crate::reading::diagnostic::{Findings, Position, Severity, nearest};
use crate::reading::files;
use crate::reading::node::{Kind, Node};
use crate::reading::schema::{ASSERTION, check_code, check_keys, wrong_shape};

/// Reads a list of assertions and reports what is wrong with it. Items that are not maps are left out.
pub fn read(node: &Node, base: &Path, findings: &mut Findings) -> Vec<Assertion> {
    let Some(items) = node.items() else {
        if !node.is_null() {
            wrong_shape(node, "`assert`", "a list of assertions", findings);
        }
        return Vec::new();
    };
    items.iter().filter_map(|item| read_one(item, false, base, findings)).collect()
}

/// Reads a list of assertions that was checked before it was merged with others, or that a hook returned.
pub fn of_value(list: Option<&Value>) -> Vec<Assertion> {
    let Some(list) = list.filter(|list| list.is_array()) else { return Vec::new() };
    let at = Position { file: Path::new("assert").into(), line: 1, column: 1 };
    read(&Node::of(list.clone(), at), Path::new(""), &mut Findings::default())
}

fn read_one(node: &Node, in_set: bool, base: &Path, findings: &mut Findings) -> Option<Assertion> {
    if !node.is_map() {
        wrong_shape(node, "an assertion", "a map with a `type`", findings);
        return None;
    }
    check_keys(node, ASSERTION, "an assertion", findings);
    let kind = read_kind(node, findings);
    let (kind, negated, known) = kind.unwrap_or_else(|| (String::new(), false, false));
    if known {
        check(node, &kind, negated, findings);
        check_files(node, &kind, base, findings);
        if kind == "meteor"
            && let Some(hint) = meteor::missing(base)
        {
            let message = "`meteor` needs the files of WordNet, which are not here";
            findings.hint(Severity::Error, Some(&node.at), message, hint);
        }
    }
    let children = match node.get("assert") {
        Some(_) if known && in_set && kind == "assert-set" => {
            findings.add(Severity::Error, Some(&node.at), "sets of assertions do not nest");
            Vec::new()
        }
        Some(children) => {
            // Only those of a set are used, so others are not worth a finding.
            let mut ignored = Findings::default();
            let findings = if known && kind == "assert-set" { findings } else { &mut ignored };
            let items = children.items().unwrap_or_default();
            items.iter().filter_map(|item| read_one(item, true, base, findings)).collect()
        }
        None => Vec::new(),
    };
    let Value::Object(raw) = node.to_value() else { return None };
    Some(assertion(kind, negated, children, raw))
}

/// Reads the type: its name without `not-`, whether it has that, and whether assertions of the type can be graded.
fn read_kind(node: &Node, findings: &mut Findings) -> Option<(String, bool, bool)> {
    let Some(kind) = node.get("type") else {
        let keys = node.entries().iter().map(|entry| entry.key.as_str());
        let found = keys.into_iter().find(|key| registry::known(key.trim_start_matches("not-")));
        match found {
            Some(key) => {
                let hint = format!("write `type: {key}` and `value: …`");
                findings.hint(Severity::Error, Some(&node.at), "an assertion without `type`", hint);
            }
            None => findings.add(Severity::Error, Some(&node.at), "an assertion without `type`"),
        }
        return None;
    };
    let Some(name) = kind.text() else {
        wrong_shape(kind, "the `type` of an assertion", "text", findings);
        return None;
    };
    let (base, negated) = match name.strip_prefix("not-") {
        Some(base) => (base, true),
        None => (name, false),
    };
    let known = registry::known(base);
    if !known {
        unknown_type(kind, name, base, findings);
    }
    Some((base.to_owned(), negated, known))
}

fn unknown_type(kind: &Node, name: &str, base: &str, findings: &mut Findings) {
    let message = format!("unknown assertion type `{name}`");
    match nearest(base, registry::all_names()) {
        Some(near) => {
            let near = if base == name { near.to_owned() } else { format!("not-{near}") };
            findings.hint(Severity::Error, Some(&kind.at), message, format!("did you mean `{near}`?"));
        }
        None => findings.add(Severity::Error, Some(&kind.at), message),
    }
}

/// Reports what is wrong with an assertion of a known type.
fn check(node: &Node, kind: &str, negated: bool, findings: &mut Findings) {
    let name = if negated { format!("not-{kind}") } else { kind.to_owned() };
    let type_at = node.get("type").map_or(&node.at, |kind| &kind.at);
    if negated && matches!(kind, "select-best" | "max-score" | "human" | "assert-set") {
        findings.add(Severity::Error, Some(type_at), format!("`{kind}` has no `not-` form"));
    }
    for key in ["threshold", "weight"] {
        if let Some(value) = node.get(key)
            && !matches!(value.kind, Kind::Scalar(Value::Number(_) | Value::Null))
        {
            wrong_shape(value, &format!("`{key}`"), "a number", findings);
        }
    }
    if kind == "assert-set" {
        if node.get("assert").is_none() {
            let message = "an `assert-set` needs `assert`, its list of assertions";
            findings.add(Severity::Error, Some(&node.at), message);
        }
        return;
    }
    if matches!(kind, "code-run" | "code-tests" | "code-safety")
        && let Some(value) = node.get("value")
    {
        check_code(value, findings);
    }
    // A distance to nothing is one.
    let empty = |value: &Node| value.is_null() || (value.text() == Some("") && kind != "levenshtein");
    if registry::needs_value(kind) && node.get("value").is_none_or(empty) {
        findings.add(Severity::Error, Some(&node.at), format!("`{name}` needs a `value`"));
    }
    if matches!(kind, "latency" | "cost") && node.get("threshold").is_none() {
        findings.add(Severity::Error, Some(&node.at), format!("`{name}` needs a `threshold`"));
    }
}

/// Reports files of a check that do not exist, before any model is paid. Programs have to be there; what is compared may be made by a hook.
fn check_files(node: &Node, kind: &str, base: &Path, findings: &mut Findings) {
    for (key, is_program) in [
        ("value", is_program(kind)),
        ("transform", true),
        ("contextTransform", true),
        ("rubricPrompt", false),
    ] {
        let severity = if is_program { Severity::Error } else { Severity::Warning };
        if let Some(value) = node.get(key) {
            check_file(value, severity, base, findings);
        }
    }
}

/// Reports that the file that a setting names does not exist.
pub(super) fn check_file(value: &Node, severity: Severity, base: &Path, findings: &mut Findings) {
    if let Some(path) = value.text().and_then(|text| missing_file(text, base)) {
        findings.add(severity, Some(&value.at), format!("file of a check not found: `{path}`"));
    }
}

/// Reports files of the checks of a table's row that do not exist. `row` counts rows below the header from 1, as descriptions of tests do.
pub(super) fn check_cells<'a>(
    cells: impl Iterator<Item = (&'a str, &'a str)>,
    row: Option<usize>,
    at: &Position,
    base: &Path,
    findings: &mut Findings,
) {
    for (column, cell) in
        cells.filter(|(column, cell)| column.starts_with("__expected") && cell.contains("file://"))
    {
        let assertion = csv::expected(cell);
        let text = |key: &str| assertion.get(key).and_then(Value::as_str).unwrap_or_default();
        if let Some(path) = missing_file(text("value"), base) {
            let severity = if is_program(text("type").trim_start_matches("not-")) {
                Severity::Error
            } else {
                Severity::Warning
            };
            let row = row.map(|row| format!("row {row}, ")).unwrap_or_default();
            let message = format!("file of a check not found: `{path}` ({row}column `{column}`)");
            findings.add(severity, Some(at), message);
        }
    }
}

/// Returns the path of a reference to a file that does not exist. What is made by a template is not known yet.
fn missing_file<'a>(reference: &'a str, base: &Path) -> Option<&'a str> {
    if !reference.starts_with("file://") || reference.contains("{{") || reference.contains("{%") {
        return None;
    }
    let (path, _) = files::split_name(reference);
    (!base.join(path).is_file()).then_some(path)
}

/// Whether the value of an assertion is a program.
fn is_program(kind: &str) -> bool {
    matches!(kind, "javascript" | "python" | "ruby")
}

fn assertion(kind: String, negated: bool, children: Vec<Assertion>, raw: Object) -> Assertion {
    let present = |key: &str| raw.get(key).filter(|value| !value.is_null()).cloned();
    Assertion {
        kind,
        negated,
        value: present("value"),
        threshold: raw.get("threshold").and_then(Value::as_f64),
        weight: raw.get("weight").and_then(Value::as_f64),
        metric: raw.get("metric").and_then(Value::as_str).map(str::to_owned),
        transform: present("transform"),
        context_transform: present("contextTransform"),
        provider: present("provider"),
        rubric_prompt: present("rubricPrompt"),
        config: raw.get("config").and_then(Value::as_object).cloned(),
        children,
        raw,
    }
}
