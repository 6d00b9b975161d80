//! Scenarios: every entry of `config` with every one of `tests`.

use std::path::Path;

use serde_json::{Value, json};

use super::test_cases;
use crate::model::Object;
use crate::reading::diagnostic::{Findings, Position, Severity};
use crate::reading::node::{Kind, Node};
use crate::reading::schema::{SCENARIO, check_keys, wrong_shape};
use crate::reading::{document, files};
use crate::script::Workers;

/// Reads a `scenarios` value into tests: a list of scenarios and of files that hold one or several, or one such file.
pub async fn read(node: Node, base: &Path, workers: &Workers, findings: &mut Findings) -> Vec<Object> {
    let items = match node.kind {
        Kind::List(items) => items,
        Kind::Scalar(Value::String(_)) => vec![node],
        Kind::Scalar(Value::Null) => Vec::new(),
        _ => {
            wrong_shape(&node, "`scenarios`", "a list", findings);
            Vec::new()
        }
    };
    let mut scenarios = Vec::new();
    for item in items {
        match item.text() {
            Some(reference) => scenarios.extend(from_files(reference, &item.at, base, findings)),
            None => scenarios.push(item),
        }
    }
    let mut all = Vec::new();
    let mut conversations = 0;
    for scenario in &mut scenarios {
        if !scenario.is_map() {
            wrong_shape(scenario, "a scenario", "a map or a path", findings);
            continue;
        }
        check_keys(scenario, SCENARIO, "a scenario", findings);
        let configs = match scenario.take("config") {
            Some(node) => test_cases::read_parts(node, base, workers, findings).await,
            None => vec![Object::new()],
        };
        let own = match scenario.take("tests") {
            Some(node) => test_cases::read(node, base, workers, findings).await,
            None => vec![Object::new()],
        };
        for config in &configs {
            let conversation = json!(format!("__scenario_{conversations}__"));
            conversations += 1;
            for test in &own {
                let mut merged = test_cases::merge(config, test.clone());
                for (key, value) in config {
                    merged.entry(key).or_insert_with(|| value.clone());
                }
                if let Some(Value::Object(metadata)) = merged.get_mut("metadata") {
                    metadata.entry("conversationId").or_insert_with(|| conversation.clone());
                }
                all.push(merged);
            }
        }
    }
    all
}

/// The scenarios of the files that a path or glob names.
fn from_files(reference: &str, at: &Position, base: &Path, findings: &mut Findings) -> Vec<Node> {
    let path = files::resolve(base, reference);
    let found = if path.is_file() { vec![path] } else { files::expand(&path.to_string_lossy()) };
    if found.is_empty() {
        findings.add(Severity::Error, Some(at), format!("file of scenarios not found: `{reference}`"));
    }
    let mut scenarios = Vec::new();
    for file in found {
        match document::read(&file, findings) {
            Ok(Node { kind: Kind::List(items), .. }) => scenarios.extend(items),
            Ok(one) => scenarios.push(one),
            Err(error) => findings.add(Severity::Error, Some(at), error.to_string()),
        }
    }
    scenarios
}

/// Reads scenarios that a hook made; none if they are malformed.
pub async fn of_value(scenarios: Value, workers: &Workers) -> Option<Vec<Object>> {
    let position = Position { file: Path::new("hook").into(), line: 1, column: 1 };
    let mut findings = Findings::default();
    let tests = read(Node::of(scenarios, position), workers.base(), workers, &mut findings).await;
    (!findings.failed()).then_some(tests)
}
