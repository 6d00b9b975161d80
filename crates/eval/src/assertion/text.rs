//! Checks of the answer as text.

use serde_json::Value;

use crate::grading::{Grader, GradingContext};
use crate::model::GradingResult;
use crate::template::value::to_text;

pub const GRADERS: &[(&str, Grader)] = &[
    ("equals", Grader::Pure(equals)),
    ("contains", Grader::Pure(contains)),
    ("icontains", Grader::Pure(contains)),
    ("contains-any", Grader::Pure(contains_any)),
    ("icontains-any", Grader::Pure(contains_any)),
    ("contains-all", Grader::Pure(contains_all)),
    ("icontains-all", Grader::Pure(contains_all)),
    ("starts-with", Grader::Pure(starts_with)),
    ("regex", Grader::Pure(regex)),
    ("levenshtein", Grader::Pure(levenshtein)),
    ("word-count", Grader::Pure(word_count)),
];

fn not<'a>(cx: &GradingContext<'_>) -> &'a str {
    if cx.assertion.negated { " not" } else { "" }
}

fn equals(cx: &GradingContext<'_>) -> GradingResult {
    let expected = cx.value.unwrap_or(&Value::Null);
    let (holds, shown) = match expected {
        Value::Object(_) | Value::Array(_) => {
            let parsed = match cx.output {
                Value::String(text) => serde_json::from_str::<Value>(text).ok(),
                other => Some(other.clone()),
            };
            (parsed.is_some_and(|parsed| same(&parsed, expected)), expected.to_string())
        }
        scalar => {
            let text = to_text(scalar);
            (cx.output_text == text, text)
        }
    };
    GradingResult::of(cx.assertion, holds, || {
        format!("Expected output \"{}\" to{} equal \"{shown}\"", cx.output_text, not(cx))
    })
}

/// Whether two values are the same, whatever the order of keys and the writing of numbers.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

/// The output and a function that prepares what is looked for: `i…` types ignore case.
fn folded(cx: &GradingContext<'_>) -> (String, bool) {
    let fold = cx.assertion.kind.starts_with('i');
    (if fold { cx.output_text.to_lowercase() } else { cx.output_text.to_owned() }, fold)
}

fn contains(cx: &GradingContext<'_>) -> GradingResult {
    if !matches!(cx.value, Some(Value::String(_) | Value::Number(_))) {
        let kind = cx.assertion.full_kind();
        return GradingResult::broken(format!(
            "`{kind}` needs text or a number as its `value`; put quotes around it"
        ));
    }
    let (output, fold) = folded(cx);
    let wanted = cx.value.map(to_text).unwrap_or_default();
    let holds = output.contains(&if fold { wanted.to_lowercase() } else { wanted.clone() });
    GradingResult::of(cx.assertion, holds, || format!("Expected output to{} contain \"{wanted}\"", not(cx)))
}

/// The items of a list value; text is split at commas, with quotes as in tables.
pub fn list(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::Array(items)) => items.iter().map(to_text).collect(),
        Some(Value::Null) | None => Vec::new(),
        Some(other) => crate::reading::list::quoted_list(&to_text(other)),
    }
}

fn contains_any(cx: &GradingContext<'_>) -> GradingResult {
    let (output, fold) = folded(cx);
    let wanted = list(cx.value);
    let holds = wanted
        .iter()
        .any(|item| if fold { output.contains(&item.to_lowercase()) } else { output.contains(item) });
    GradingResult::of(cx.assertion, holds, || {
        format!("Expected output to{} contain one of \"{}\"", not(cx), wanted.join(", "))
    })
}

fn contains_all(cx: &GradingContext<'_>) -> GradingResult {
    let (output, fold) = folded(cx);
    let wanted = list(cx.value);
    let has = |item: &&String| {
        if fold { output.contains(&item.to_lowercase()) } else { output.contains(item.as_str()) }
    };
    let missing: Vec<&str> = wanted.iter().filter(|item| !has(item)).map(String::as_str).collect();
    GradingResult::of(cx.assertion, missing.is_empty(), || {
        format!(
            "Expected output to{} contain all of [{}]. Missing: [{}]",
            not(cx),
            wanted.join(", "),
            missing.join(", ")
        )
    })
}

fn starts_with(cx: &GradingContext<'_>) -> GradingResult {
    let wanted = cx.value.map(to_text).unwrap_or_default();
    let holds = cx.output_text.starts_with(&wanted);
    GradingResult::of(cx.assertion, holds, || {
        format!("Expected output to{} start with \"{wanted}\"", not(cx))
    })
}

fn regex(cx: &GradingContext<'_>) -> GradingResult {
    let pattern = cx.value.map(to_text).unwrap_or_default();
    let arguments = [pattern.clone().into(), cx.output_text.into()];
    match crate::javascript::call("(p, t) => new RegExp(p).test(t)", &arguments) {
        Ok(found) => GradingResult::of(cx.assertion, found == Value::Bool(true), || {
            format!("Expected output to{} match regex \"{pattern}\"", not(cx))
        }),
        Err(error) => GradingResult::failed(format!("Invalid regex pattern: {error}")),
    }
}

fn levenshtein(cx: &GradingContext<'_>) -> GradingResult {
    let wanted = cx.value.map(to_text).unwrap_or_default();
    let threshold = cx.assertion.threshold.unwrap_or(5.0);
    // Counted as JavaScript counts, where a character beyond the basic plane is two.
    let units = |text: &str| text.encode_utf16().collect::<Vec<_>>();
    let (own, wanted) = (units(cx.output_text), units(&wanted));
    let distance = strsim::generic_levenshtein(&own, &wanted);
    GradingResult::of(cx.assertion, distance as f64 <= threshold, || {
        let compared = if cx.assertion.negated { "less than or equal to" } else { "greater than" };
        format!("Levenshtein distance {distance} is {compared} threshold {threshold}")
    })
}

fn word_count(cx: &GradingContext<'_>) -> GradingResult {
    let count = cx.output_text.split_whitespace().count() as f64;
    let bound = |key: &str| cx.value.and_then(|value| value.get(key)).map(crate::template::value::to_number);
    let exact = match cx.value {
        Some(Value::Object(_)) | None => None,
        Some(other) => Some(crate::template::value::to_number(other)),
    };
    let (min, max) = (bound("min"), bound("max"));
    if exact.is_none() && min.is_none() && max.is_none() {
        return GradingResult::broken("`word-count` needs a number, or a map with `min` or `max`");
    }
    if exact.is_some_and(f64::is_nan) {
        return GradingResult::broken("the `value` of `word-count` is not a number");
    }
    let holds = match exact {
        Some(exact) => count == exact,
        None => min.is_none_or(|min| count >= min) && max.is_none_or(|max| count <= max),
    };
    GradingResult::of(cx.assertion, holds, || {
        let bounds = (exact, min, max.unwrap_or(f64::INFINITY));
        if cx.assertion.negated {
            let wanted = match bounds {
                (Some(exact), ..) => format!("not equal {exact}"),
                (None, Some(min), f64::INFINITY) => format!("be less than {min}"),
                (None, Some(min), max) => format!("not be between {min} and {max}"),
                (None, None, max) => format!("be greater than {max}"),
            };
            return format!("Expected word count to {wanted}, but got {count}");
        }
        match bounds {
            (Some(exact), ..) => format!("Word count {count} does not equal expected {exact}"),
            (None, Some(min), f64::INFINITY) => format!("Word count {count} is less than minimum {min}"),
            (None, Some(min), max) => format!("Word count {count} is not between {min} and {max}"),
            (None, None, max) => format!("Word count {count} is greater than maximum {max}"),
        }
    })
}
