//! Assertions: checking them while their place is known, and reading them.

use serde_json::Value;

use super::diagnostic::{Findings, Severity, nearest};
use super::node::{Kind, Node};
use super::schema::{ASSERTION, check_code, check_keys, wrong_shape};
use crate::assertion::registry;
use crate::model::{Assertion, Object};

/// Reports what is wrong with a list of assertions.
pub fn check(node: &Node, findings: &mut Findings) {
    let Some(items) = node.items() else {
        if !node.is_null() {
            wrong_shape(node, "`assert`", "a list of assertions", findings);
        }
        return;
    };
    items.iter().for_each(|item| check_one(item, false, findings));
}

fn check_one(node: &Node, in_set: bool, findings: &mut Findings) {
    let Kind::Map(entries) = &node.kind else {
        return wrong_shape(node, "an assertion", "a map with a `type`", findings);
    };
    check_keys(node, ASSERTION, "an assertion", findings);
    let Some(kind) = node.get("type") else {
        let keys: Vec<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
        let found = keys.iter().find(|key| registry::known(key.trim_start_matches("not-")));
        return match found {
            Some(key) => {
                let hint = format!("write `type: {key}` and `value: …`");
                findings.hint(Severity::Error, Some(&node.at), "an assertion without `type`", hint);
            }
            None => findings.add(Severity::Error, Some(&node.at), "an assertion without `type`"),
        };
    };
    let Some(name) = kind.text() else {
        return wrong_shape(kind, "the `type` of an assertion", "text", findings);
    };
    let (base, negated) = match name.strip_prefix("not-") {
        Some(base) => (base, true),
        None => (name, false),
    };
    if !registry::known(base) {
        let message = format!("there is no assertion type `{name}`");
        return match nearest(base, registry::all_names()) {
            Some(near) => {
                let near = if negated { format!("not-{near}") } else { near.to_owned() };
                findings.hint(Severity::Error, Some(&kind.at), message, format!("did you mean `{near}`?"));
            }
            None if registry::unsupported(base) => {
                findings.add(
                    Severity::Error,
                    Some(&kind.at),
                    format!("the assertion type `{name}` is not supported"),
                );
            }
            None => findings.add(Severity::Error, Some(&kind.at), message),
        };
    }
    if negated && matches!(base, "select-best" | "max-score" | "human" | "assert-set") {
        findings.add(Severity::Error, Some(&kind.at), format!("`{base}` has no `not-` form"));
    }
    for key in ["threshold", "weight"] {
        if let Some(value) = node.get(key)
            && !matches!(value.kind, Kind::Scalar(Value::Number(_) | Value::Null))
        {
            wrong_shape(value, &format!("`{key}`"), "a number", findings);
        }
    }
    if base == "assert-set" {
        match node.get("assert") {
            Some(_) if in_set => {
                findings.add(Severity::Error, Some(&node.at), "sets of assertions do not nest");
            }
            Some(children) => {
                for item in children.items().unwrap_or_default() {
                    check_one(item, true, findings);
                }
            }
            None => findings.add(
                Severity::Error,
                Some(&node.at),
                "an `assert-set` needs `assert`, its list of assertions",
            ),
        }
        return;
    }
    if matches!(base, "code-run" | "code-tests" | "code-safety")
        && let Some(value) = node.get("value")
    {
        check_code(value, findings);
    }
    if registry::needs_value(base)
        && node.get("value").is_none_or(|value| value.is_null() || value.text() == Some(""))
    {
        findings.add(Severity::Error, Some(&node.at), format!("`{name}` needs a `value`"));
    }
    if matches!(base, "latency" | "cost") && node.get("threshold").is_none() {
        findings.add(Severity::Error, Some(&node.at), format!("`{name}` needs a `threshold`"));
    }
}

/// Reads an assertion that was checked; what makes no sense is left out.
pub fn parse(raw: &Object) -> Assertion {
    let text = |key: &str| raw.get(key).and_then(Value::as_str).map(str::to_owned);
    let kind = text("type").unwrap_or_default();
    let (kind, negated) = match kind.strip_prefix("not-") {
        Some(base) => (base.to_owned(), true),
        None => (kind, false),
    };
    let present = |key: &str| raw.get(key).filter(|value| !value.is_null()).cloned();
    Assertion {
        kind,
        negated,
        value: present("value"),
        threshold: raw.get("threshold").and_then(Value::as_f64),
        weight: raw.get("weight").and_then(Value::as_f64),
        metric: text("metric"),
        transform: present("transform"),
        context_transform: present("contextTransform"),
        provider: present("provider"),
        rubric_prompt: present("rubricPrompt"),
        config: raw.get("config").and_then(Value::as_object).cloned(),
        children: parse_all(raw.get("assert")),
        raw: raw.clone(),
    }
}

/// Reads a list of assertions.
pub fn parse_all(list: Option<&Value>) -> Vec<Assertion> {
    list.and_then(Value::as_array)
        .map(|items| items.iter().filter_map(Value::as_object).map(parse).collect())
        .unwrap_or_default()
}
