//! Scenarios: every entry of `config` with every one of `tests`.

use std::path::Path;

use serde_json::{Value, json};

use super::diagnostic::{Findings, Position};
use super::node::{Kind, Node};
use super::schema::{SCENARIO, check_keys, wrong_shape};
use super::tests;
use crate::model::Object;
use crate::services::Services;

/// Reads a `scenarios` value into tests.
pub async fn read(mut node: Node, base: &Path, services: &Services, findings: &mut Findings) -> Vec<Object> {
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
            tests::read(scenario.take("config").unwrap_or_else(&empty), base, services, findings).await;
        let own = tests::read(scenario.take("tests").unwrap_or_else(&empty), base, services, findings).await;
        for config in &configs {
            for test in &own {
                let mut merged = tests::merge(config, test.clone());
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

/// Reads scenarios that a hook made; nothing if they are wrong.
pub async fn of_value(scenarios: Value, services: &Services) -> Option<Vec<Object>> {
    let position = Position { file: Path::new("hook").into(), line: 1, column: 1 };
    let mut findings = Findings::default();
    let tests = read(Node::of(scenarios, position), &services.base, services, &mut findings).await;
    (!findings.failed()).then_some(tests)
}
