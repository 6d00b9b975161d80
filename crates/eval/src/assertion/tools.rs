//! Checks of the tools an answer calls.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Grader, GradingContext};
use crate::model::{GradingResult, number};

pub const GRADERS: &[(&str, Grader)] = &[("tool-call-f1", Grader::Pure(tool_call_f1))];

fn tool_call_f1(cx: &GradingContext<'_>) -> GradingResult {
    let wanted: BTreeSet<String> = super::text::list(cx.value).into_iter().collect();
    if wanted.is_empty() {
        return GradingResult::broken("`tool-call-f1` needs the names of tools");
    }
    let mut called = BTreeSet::new();
    names(cx.output, &mut called);
    if let Value::String(text) = cx.output {
        for line in std::iter::once(text.as_str()).chain(text.lines()) {
            if let Ok(value @ (Value::Array(_) | Value::Object(_))) = serde_json::from_str(line.trim()) {
                names(&value, &mut called);
            }
        }
    }
    let matched = wanted.intersection(&called).count() as f64;
    let share = |total: usize| if total == 0 { 0.0 } else { matched / total as f64 };
    let (precision, recall) = (share(called.len()), share(wanted.len()));
    let f1 = if matched == 0.0 { 0.0 } else { 2.0 * precision * recall / (precision + recall) };
    let threshold = cx.assertion.threshold.unwrap_or(1.0);
    let list = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
    GradingResult {
        pass: (f1 >= threshold) != cx.assertion.negated,
        score: f1,
        reason: format!(
            "Tool Call F1: {f1:.3} (precision={precision:.3}, recall={recall:.3}). Expected: [{}], Called: [{}]{}",
            list(&wanted),
            list(&called),
            if f1 < threshold { format!(", threshold {}", number::text(threshold)) } else { String::new() },
        ),
        ..GradingResult::default()
    }
}

/// The names of called tools, in the shapes of the large services.
fn names(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| names(item, found)),
        Value::Object(map) => {
            let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
            let function = map
                .get("function")
                .or_else(|| map.get("functionCall"))
                .and_then(|call| text(call.get("name")));
            let typed = matches!(map.get("type").and_then(Value::as_str), Some("tool_use" | "function_call"));
            let bare = map.contains_key("arguments") || map.contains_key("args") || typed;
            found.extend(function.or_else(|| if bare { text(map.get("name")) } else { None }));
            for key in ["tool_calls", "toolCalls", "content", "parts", "toolCall", "functionCalls"] {
                if let Some(inner) = map.get(key) {
                    names(inner, found);
                }
            }
        }
        _ => {}
    }
}
