//! The skills that an agent used, which its provider reports in `metadata.skillCalls`.

use serde_json::Value;

use super::error::CheckError;
use super::pattern;
use crate::grading::{Grader, GradingContext};
use crate::model::GradingResult;

/// The type about skills.
pub const GRADERS: &[(&str, Grader)] = &[(KIND, Grader::Pure(skill_used))];

/// The calls that the value asks for.
enum ExpectedCalls {
    /// All of these names.
    Names(Vec<String>),
    /// A number of calls of skills that match.
    Count { name: Option<String>, pattern: Option<String>, min: Option<u64>, max: Option<u64> },
}

/// The type of these assertions, for errors.
const KIND: &str = "skill-used";

fn expected_calls(value: Option<&Value>) -> Result<ExpectedCalls, CheckError> {
    let text = |value: Option<&Value>| {
        value.and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let needed = "a name, a list of names, or `name` or `pattern` with `min` and `max`";
    let wrong = || CheckError::Value { kind: KIND, needed };
    match value {
        Some(Value::Object(map)) => {
            let (name, pattern) = (text(map.get("name")), text(map.get("pattern")));
            if name.is_none() && pattern.is_none() {
                return Err(wrong());
            }
            let bound = |key: &'static str| match map.get(key) {
                None => Ok(None),
                Some(value) => value.as_u64().map(Some).ok_or_else(|| CheckError::Bound {
                    kind: KIND,
                    key,
                    value: value.clone(),
                }),
            };
            let (min, max) = (bound("min")?, bound("max")?);
            if min.zip(max).is_some_and(|(min, max)| max < min) {
                return Err(CheckError::Bounds(KIND));
            }
            Ok(ExpectedCalls::Count { name, pattern, min, max })
        }
        Some(Value::Array(items)) if !items.is_empty() => items
            .iter()
            .map(|item| text(Some(item)))
            .collect::<Option<_>>()
            .map(ExpectedCalls::Names)
            .ok_or_else(wrong),
        other => text(other).map(|name| ExpectedCalls::Names(vec![name])).ok_or_else(wrong),
    }
}

fn skill_used(cx: &GradingContext<'_>) -> GradingResult {
    let expected = match expected_calls(cx.value) {
        Ok(expected) => expected,
        Err(error) => return GradingResult::broken(error),
    };
    let calls = cx.response.metadata.as_ref().and_then(|metadata| metadata.get("skillCalls")?.as_array());
    let used: Vec<&str> = calls
        .into_iter()
        .flatten()
        .filter(|call| call.get("is_error") != Some(&Value::Bool(true)))
        .filter_map(|call| call.get("name")?.as_str())
        .collect();
    let actual = if used.is_empty() { "(none)".to_owned() } else { used.join(", ") };
    let negated = cx.assertion.negated;
    let verdict = |pass: bool, reason: String| GradingResult {
        pass,
        score: f64::from(u8::from(pass)),
        reason: format!("{reason}. Actual skills: {actual}"),
        ..GradingResult::default()
    };
    match expected {
        ExpectedCalls::Names(names) => {
            let (there, missing): (Vec<&str>, Vec<&str>) =
                names.iter().map(String::as_str).partition(|name| used.contains(name));
            match negated {
                true if there.is_empty() => {
                    verdict(true, format!("Forbidden skills were not used: {}", names.join(", ")))
                }
                true => verdict(false, format!("Forbidden skills were used: {}", there.join(", "))),
                false if missing.is_empty() => {
                    verdict(true, format!("Observed required skills: {}", names.join(", ")))
                }
                false => verdict(false, format!("Missing required skills: {}", missing.join(", "))),
            }
        }
        ExpectedCalls::Count { name, pattern, min, max } => {
            let fits = |used: &str| {
                name.as_deref().is_none_or(|name| name == used)
                    && pattern.as_deref().is_none_or(|wanted| pattern::matches(wanted, used))
            };
            let count = used.iter().filter(|used| fits(used)).count() as u64;
            let shown = pattern.as_deref().or(name.as_deref()).unwrap_or_default();
            if negated {
                if min.is_some() || max.is_some_and(|max| max != 0) {
                    return GradingResult::broken("`not-skill-used` takes no bounds, other than `max: 0`");
                }
                return verdict(count == 0, format!("Forbidden skill `{shown}` was used {count} times"));
            }
            let least = min.unwrap_or(if max.is_some() { 0 } else { 1 });
            let bounds = max.map_or_else(|| format!("at least {least}"), |max| format!("{least} to {max}"));
            let pass = count >= least && max.is_none_or(|max| count <= max);
            verdict(pass, format!("Skill `{shown}` was used {count} times (expected {bounds})"))
        }
    }
}
