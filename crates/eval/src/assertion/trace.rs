//! Checks of the spans of a trace: how many, how long, how many errors.

use serde_json::Value;

use super::error::CheckError;
use super::pattern;
use crate::grading::{Grader, GradingContext};
use crate::model::{GradingResult, number};
use crate::template::value::{to_number, to_text};
use crate::traces::{Span, Trace};

/// The types about spans.
pub const GRADERS: &[(&str, Grader)] = &[
    ("trace-span-count", Grader::Pure(span_count)),
    ("trace-span-duration", Grader::Pure(span_duration)),
    ("trace-error-spans", Grader::Pure(error_spans)),
];

/// Returns the trace of the row.
///
/// # Errors
/// An error if the row is not traced.
pub fn trace_of<'a>(cx: &'a GradingContext<'a>) -> Result<&'a Trace, CheckError> {
    cx.trace.ok_or_else(|| CheckError::NoTrace(cx.assertion.full_kind()))
}

/// Returns the verdict of a check, or that it is not decided.
pub fn graded(decide: impl FnOnce() -> Result<GradingResult, CheckError>) -> GradingResult {
    decide().unwrap_or_else(GradingResult::broken)
}

/// The verdict with its reason, which tells what was found either way.
fn verdict(cx: &GradingContext<'_>, holds: bool, reason: String) -> GradingResult {
    let pass = holds != cx.assertion.negated;
    GradingResult { pass, score: f64::from(u8::from(pass)), reason, ..GradingResult::default() }
}

fn bound(value: &Value, key: &str) -> Option<f64> {
    value.get(key).filter(|bound| bound.is_number()).map(to_number)
}

fn matching<'a>(trace: &'a Trace, wanted: &str) -> Vec<&'a Span> {
    trace.spans.iter().filter(|span| pattern::matches(wanted, &span.name)).collect()
}

fn span_count(cx: &GradingContext<'_>) -> GradingResult {
    graded(|| {
        let trace = trace_of(cx)?;
        let value = cx.value.filter(|value| value.is_object());
        let wanted =
            value.and_then(|value| value.get("pattern")).map(to_text).filter(|text| !text.is_empty());
        let (Some(value), Some(wanted)) = (value, wanted) else {
            let needed = "a value with `pattern`, and `min` or `max`";
            return Err(CheckError::Value { kind: "trace-span-count", needed });
        };
        let found = matching(trace, &wanted);
        let (min, max) = (bound(value, "min"), bound(value, "max"));
        let count = found.len() as f64;
        let holds = min.is_none_or(|min| count >= min) && max.is_none_or(|max| count <= max);
        let mut names: Vec<&str> = Vec::new();
        for span in &found {
            if !names.contains(&span.name.as_str()) {
                names.push(&span.name);
            }
        }
        let names = if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
        let expected = bounds(min, max);
        Ok(verdict(cx, holds, format!("Found {count} spans that match `{wanted}`{expected}{names}")))
    })
}

/// Returns what a count must be, for a reason.
pub fn bounds(min: Option<f64>, max: Option<f64>) -> String {
    let text = number::text;
    match (min, max) {
        (None, None) => String::new(),
        (Some(min), None) => format!(" (expected at least {})", text(min)),
        (None, Some(max)) => format!(" (expected at most {})", text(max)),
        (Some(min), Some(max)) => format!(" (expected {} to {})", text(min), text(max)),
    }
}

fn span_duration(cx: &GradingContext<'_>) -> GradingResult {
    graded(|| {
        let trace = trace_of(cx)?;
        let Some((value, max)) = cx.value.and_then(|value| Some((value, bound(value, "max")?))) else {
            let needed = "a value with `max`, in milliseconds";
            return Err(CheckError::Value { kind: "trace-span-duration", needed });
        };
        let wanted = value.get("pattern").map_or_else(|| "*".to_owned(), to_text);
        let timed = |span: &Span| Some((span.name.clone(), span.end_time? - span.start_time));
        let mut times: Vec<(String, f64)> = matching(trace, &wanted).into_iter().filter_map(timed).collect();
        times.sort_by(|a, b| b.1.total_cmp(&a.1));
        let Some((name, slowest)) = times.first() else {
            return Ok(verdict(cx, true, format!("No finished span matches `{wanted}`")));
        };
        let limit = number::text(max);
        let Some(percentile) = bound(value, "percentile") else {
            let slow = times.iter().filter(|(_, time)| *time > max).count();
            let reason = format!(
                "{slow} of {} spans that match `{wanted}` took longer than {limit} ms; the slowest is {name} ({slowest:.1} ms)",
                times.len()
            );
            return Ok(verdict(cx, slow == 0, reason));
        };
        let rank = (percentile / 100.0 * times.len() as f64).ceil().max(1.0) as usize;
        let (_, at) = times[times.len() - rank.min(times.len())];
        let reason = format!(
            "Percentile {} of the duration is {at:.1} ms (expected at most {limit} ms)",
            number::text(percentile)
        );
        Ok(verdict(cx, at <= max, reason))
    })
}

fn error_spans(cx: &GradingContext<'_>) -> GradingResult {
    graded(|| {
        let trace = trace_of(cx)?;
        let value = cx.value.unwrap_or(&Value::Null);
        let mut most = value.as_f64().or_else(|| bound(value, "max_count"));
        let share = bound(value, "max_percentage");
        if most.is_none() && share.is_none() {
            most = Some(0.0);
        }
        let wanted = value.get("pattern").map_or_else(|| "*".to_owned(), to_text);
        let spans = matching(trace, &wanted);
        if spans.is_empty() {
            return Ok(verdict(cx, true, format!("No span matches `{wanted}`")));
        }
        let errors: Vec<&&Span> = spans.iter().filter(|span| is_error(span)).collect();
        let percentage = errors.len() as f64 / spans.len() as f64 * 100.0;
        let holds = most.is_none_or(|most| errors.len() as f64 <= most)
            && share.is_none_or(|share| percentage <= share);
        let expected = match (most, share) {
            (Some(most), _) => format!("at most {}", number::text(most)),
            (None, share) => format!("at most {} %", number::text(share.unwrap_or_default())),
        };
        let shown = errors.iter().take(3).map(|span| match span.status_message.as_deref() {
            Some(message) if !message.is_empty() => format!("{} ({message})", span.name),
            _ => span.name.clone(),
        });
        let shown = shown.collect::<Vec<_>>().join(", ");
        let shown = if shown.is_empty() { shown } else { format!(": {shown}") };
        let (found, all) = (errors.len(), spans.len());
        Ok(verdict(cx, holds, format!("{found} of {all} spans have errors (expected {expected}){shown}")))
    })
}

/// Whether a span says that it went wrong, by one of the ways in which programs say it.
fn is_error(span: &Span) -> bool {
    const WORDS: &[&str] = &["error", "failed", "failure", "exception", "timeout", "abort"];
    let attribute = |name: &str| span.attributes.get(name).unwrap_or(&Value::Null);
    let flagged = |name: &&str| match attribute(name) {
        Value::Bool(flag) => *flag,
        Value::String(text) => text == "true",
        Value::Object(_) | Value::Array(_) => true,
        Value::Null | Value::Number(_) => false,
    };
    let status = match attribute("http.status_code") {
        Value::Null => f64::NAN,
        value => to_number(value),
    };
    let message = span.status_message.as_deref().unwrap_or_default().to_lowercase();
    span.status_code.is_some_and(|code| code == 2 || code >= 400)
        || ["error", "exception", "failed", "failure"].iter().any(flagged)
        || status >= 400.0
        || ["otel.status_code", "status.code"].iter().any(|name| attribute(name) == "ERROR")
        || WORDS.iter().any(|word| message.contains(word))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn programs_say_in_many_ways_that_something_failed() {
        let span = |attributes: Value, code, message: Option<&str>| Span {
            span_id: "a".to_owned(),
            parent_span_id: None,
            name: "a".to_owned(),
            start_time: 0.0,
            end_time: None,
            attributes: attributes.as_object().cloned().unwrap_or_default(),
            status_code: code,
            status_message: message.map(str::to_owned),
        };
        assert!(is_error(&span(json!({}), Some(2), None)));
        assert!(is_error(&span(json!({}), None, Some("Request TIMEOUT"))));
        assert!(is_error(&span(json!({"http.status_code": "503"}), None, None)));
        assert!(is_error(&span(json!({"exception": {"type": "x"}}), None, None)));
        assert!(is_error(&span(json!({"error": "true"}), Some(1), None)));
        assert!(!is_error(&span(json!({"error": "false", "http.status_code": 200}), Some(1), Some("fine"))));
    }
}
