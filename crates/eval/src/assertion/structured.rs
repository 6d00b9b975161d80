//! Checks of JSON.

use sandcove_formats::Schema;
use serde_json::Value;

use super::error::CheckError;
use crate::grading::{Grader, GradingContext};
use crate::model::GradingResult;
use crate::reading::env::is_on;
use crate::reading::node::Node;
use crate::template::value::to_text;

pub const GRADERS: &[(&str, Grader)] =
    &[("is-json", Grader::Pure(is_json)), ("contains-json", Grader::Pure(contains_json))];

/// The longest piece of text that is tried as JSON, in bytes.
const MAX_JSON: usize = 100_000;

/// The shape that an answer must have: any JSON, or that of a schema.
fn schema(cx: &GradingContext<'_>) -> Result<Option<Schema>, CheckError> {
    let value = match cx.value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) if text.trim().is_empty() => return Ok(None),
        Some(Value::String(text)) => Node::parse(text, &std::path::Path::new("schema").into())
            .map_err(CheckError::ParseSchema)?
            .to_value(),
        Some(other) => other.clone(),
    };
    compiled(&value).map(Some)
}

fn compiled(schema: &Value) -> Result<Schema, CheckError> {
    Ok(Schema::new(schema, !is_on("PROMPTFOO_DISABLE_AJV_STRICT_MODE"))?)
}

/// Returns why a value does not match a schema, if it does not.
///
/// # Errors
/// If the schema is not valid.
pub fn schema_problem(schema: &Value, value: &Value) -> Result<Option<String>, CheckError> {
    Ok(compiled(schema)?.problem(value))
}

fn problem(schema: Option<&Schema>, value: &Value) -> Option<String> {
    schema?.problem(value)
}

fn is_json(cx: &GradingContext<'_>) -> GradingResult {
    let Ok(value) = serde_json::from_str::<Value>(cx.output_text) else {
        return GradingResult::of(cx.assertion, false, || "Expected output to be valid JSON".to_owned());
    };
    // What is no JSON needs no schema, also one that is broken.
    let schema = match schema(cx) {
        Ok(schema) => schema,
        Err(error) => return GradingResult::broken(error),
    };
    let problem = problem(schema.as_ref(), &value);
    GradingResult::of(cx.assertion, problem.is_none(), || match problem {
        Some(problem) => format!("JSON does not conform to the provided schema. Errors: {problem}"),
        None => "Output is valid JSON, expected it not to be".to_owned(),
    })
}

fn contains_json(cx: &GradingContext<'_>) -> GradingResult {
    let found = objects(cx.output_text);
    let schema = match schema(cx) {
        Ok(schema) => schema,
        Err(_) if found.is_empty() => None,
        Err(error) => return GradingResult::broken(error),
    };
    let problems: Vec<Option<String>> = found.iter().map(|value| problem(schema.as_ref(), value)).collect();
    let holds = problems.iter().any(Option::is_none);
    GradingResult::of(cx.assertion, holds, || match problems.into_iter().flatten().next() {
        Some(problem) => format!("JSON does not conform to the provided schema. Errors: {problem}"),
        None if cx.assertion.negated => "Output contains JSON, expected it not to".to_owned(),
        None => "Expected output to contain valid JSON".to_owned(),
    })
}

/// The JSON objects inside a text. Single quotes, comments, bare keys and a missing end are forgiven.
pub fn objects(text: &str) -> Vec<Value> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = text[at..].find('{').map(|offset| at + offset) {
        let rest = &text[start..];
        // A quote may also be a part of bare text.
        match object_at(rest, true).or_else(|| object_at(rest, false)) {
            Some((value, length)) => {
                found.push(value);
                at = start + length;
            }
            None => at = start + 1,
        }
    }
    found
}

/// Returns the member of an answer that is an object, or of the first object in its text that has it.
pub fn member(said: &Value, key: &str) -> Option<Value> {
    match said {
        Value::Object(_) => said.get(key).cloned(),
        other => objects(&to_text(other)).into_iter().find_map(|object| object.get(key).cloned()),
    }
}

/// The object a text begins with, and its length. With `quotes`, braces between quotes do not count.
fn object_at(text: &str, quotes: bool) -> Option<(Value, usize)> {
    let mut depth = 0usize;
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in text.char_indices().take_while(|(at, _)| *at < MAX_JSON) {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' if quotes => quoted = !quoted,
            '{' if !quoted => depth += 1,
            '}' if !quoted => {
                depth -= 1;
                if depth == 0 {
                    let piece = &text[..=at];
                    return lenient(piece).map(|value| (value, piece.len()));
                }
            }
            _ => {}
        }
    }
    if text.len() > MAX_JSON {
        return None;
    }
    // Cut off in the middle: closed for it.
    let closed = format!("{text}{}{}", if quoted { "\"" } else { "" }, "}".repeat(depth));
    lenient(&closed).map(|value| (value, text.len()))
}

fn lenient(piece: &str) -> Option<Value> {
    if let Ok(value) = serde_json::from_str(piece) {
        return Some(value);
    }
    let lines: Vec<String> = piece.lines().map(commented).collect();
    let node = Node::parse(&lines.join("\n"), &std::path::Path::new("output").into()).ok()?;
    // `{{x}}` and `{a}` are YAML, but nobody's JSON.
    let unset = node.entries().iter().filter(|entry| entry.value.is_null()).count();
    let written = piece.split(':').skip(1).filter(|rest| rest.trim_start().starts_with("null")).count();
    (node.is_map() && unset <= written).then(|| node.to_value())
}

/// Returns a line with its comment, from `//` on, as YAML has it: `#`. Within words, as in `http://host`, and in quoted texts there is none.
fn commented(line: &str) -> String {
    let (mut quote, mut before, mut escaped) = (None, ' ', false);
    for (at, c) in line.char_indices() {
        let rest = &line[at..];
        match quote {
            Some(open) => {
                let next = rest[c.len_utf8()..].chars().next();
                // An apostrophe is a part of its word.
                let is_end = c == open && (c == '"' || next.is_none_or(|next| !next.is_ascii_alphabetic()));
                if is_end && !escaped {
                    quote = None;
                }
                escaped = c == '\\' && !escaped;
            }
            None if c == '"' || (c == '\'' && !before.is_ascii_alphabetic()) => quote = Some(c),
            None if rest.starts_with("//") && (before.is_whitespace() || "[]{},\"'".contains(before)) => {
                return format!("{} #{}", &line[..at], rest.trim_start_matches('/'));
            }
            None => {}
        }
        before = c;
    }
    line.to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_found_in_text() {
        assert_eq!(
            objects("Sure:\n```json\n{\"a\": {\"b\": 1}}\n``` and {'c': 2}"),
            [json!({"a": {"b": 1}}), json!({"c": 2})]
        );
        assert_eq!(objects("cut {\"a\": [1, 2], \"b\": {\"c\": 1"), [json!({"a": [1, 2], "b": {"c": 1}})]);
        assert_eq!(objects("[1, 2] no"), Vec::<Value>::new());
        assert_eq!(objects("{\n// note\n\"a\": 1}"), [json!({"a": 1})]);
        assert_eq!(objects("{\"a\": 1, // note's end\n\"b\": 2 /// more\n}"), [json!({"a": 1, "b": 2})]);
        assert_eq!(objects("{a: http://x/y, 'b': 'c // d'}"), [json!({"a": "http://x/y", "b": "c // d"})]);
        assert_eq!(objects("{path: a//b}"), [json!({"path": "a//b"})]);
        assert_eq!(objects("{'a': 1,// note\n'b': {}// note\n}"), [json!({"a": 1, "b": {}})]);
        assert_eq!(objects("{nullable} {annulled: null, x} {a, b: 1}"), Vec::<Value>::new());
        assert_eq!(objects("{'a': 'x', 'b': null}"), [json!({"a": "x", "b": null})]);
        assert_eq!(objects("{a: 5\" pipe} {b: 1}"), [json!({"a": "5\" pipe"}), json!({"b": 1})]);
        assert_eq!(objects("{{name}} {bare}"), Vec::<Value>::new());
        assert_eq!(objects("{\n\t'a': 1,\n\t'b': 2,\n}"), [json!({"a": 1, "b": 2})]);
    }
}
