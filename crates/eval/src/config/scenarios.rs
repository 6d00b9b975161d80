//! Scenarios: every entry of `config` with every one of `tests`.

use std::path::Path;

use serde_json::{Value, json};

use super::test_cases;
use crate::model::Object;
use crate::reading::diagnostic::{Findings, Position};
use crate::reading::node::{Kind, Node};
use crate::reading::schema::{SCENARIO, check_keys, wrong_shape};
use crate::script::Workers;

/// Reads a `scenarios` value into tests.
pub async fn read(mut node: Node, base: &Path, workers: &Workers, findings: &mut Findings) -> Vec<Object> {
    let Kind::List(items) = &mut node.kind else {
        if !node.is_null() {
            wrong_shape(&node, "`scenarios`", "a list", findings);
        }
        return Vec::new();
    };
    let mut all = Vec::new();
    for (at, scenario) in items.iter_mut().enumerate() {
        check_keys(scenario, SCENARIO, "a scenario", findings);
        let at_scenario = scenario.at.clone();
        let empty = || Node::of(json!([{}]), at_scenario.clone());
        let configs =
            test_cases::read(scenario.take("config").unwrap_or_else(&empty), base, workers, findings).await;
        let own =
            test_cases::read(scenario.take("tests").unwrap_or_else(&empty), base, workers, findings).await;
        for config in &configs {
            for test in &own {
                let mut merged = test_cases::merge(config, test.clone());
                let conversation = json!(format!("__scenario_{at}__"));
                if let Some(Value::Object(metadata)) = merged.get_mut("metadata") {
                    metadata.entry("conversationId").or_insert(conversation);
                }
                all.push(merged);
            }
        }
    }
    all
}

/// Reads scenarios that a hook made; none if they are malformed.
pub async fn of_value(scenarios: Value, workers: &Workers) -> Option<Vec<Object>> {
    let position = Position { file: Path::new("hook").into(), line: 1, column: 1 };
    let mut findings = Findings::default();
    let tests = read(Node::of(scenarios, position), workers.base(), workers, &mut findings).await;
    (!findings.failed()).then_some(tests)
}
