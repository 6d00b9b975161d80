//! Bodies of requests to any service.

use serde_json::{Value, json};

use crate::model::Object;
use crate::template::value::to_text;
use crate::template::{TemplateError, Templates};

/// Whether the body of a request is JSON: its header says so, or nothing says otherwise and it is no text.
pub fn has_json_body(config: &Object) -> bool {
    if config.contains_key("request") {
        return false;
    }
    let mut headers = config.get("headers").and_then(Value::as_object).into_iter().flatten();
    let kind = headers.find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    match kind {
        Some((_, kind)) => to_text(kind).contains("json"),
        None => !matches!(config.get("body"), Some(Value::String(_))),
    }
}

/// Returns the object that a body is, or whose text it is.
pub fn object_of(body: Option<&Value>) -> Object {
    match body {
        Some(Value::Object(map)) => map.clone(),
        Some(Value::String(text)) => serde_json::from_str(text).unwrap_or_default(),
        _ => Object::new(),
    }
}

/// Renders a body leaf by leaf. A body that is JSON text is taken apart first, so that no value can break it.
///
/// # Errors
/// [`TemplateError`] for a body with a malformed template.
pub fn fill(body: &Value, vars: &Object, templates: &Templates) -> Result<Value, TemplateError> {
    let render = |value: &Value| templates.render_value(value, vars);
    Ok(match body {
        Value::String(text) => match serde_json::from_str::<Value>(text) {
            Ok(value) if value.is_object() || value.is_array() => render(&value)?,
            _ => {
                let plain = render(body)?;
                if !text.trim_start().starts_with(['{', '[']) {
                    return Ok(plain);
                }
                // Written with filters, as in `{{prompt | dump}}`, it is JSON as it is.
                if let Some(value) = plain.as_str().and_then(|text| serde_json::from_str(text).ok()) {
                    return Ok(value);
                }
                let escaped: Object =
                    vars.iter().map(|(name, value)| (name.clone(), in_quotes(value))).collect();
                let filled = templates.render(text, &escaped)?;
                serde_json::from_str(&filled).unwrap_or(plain)
            }
        },
        other => parsed(render(other)?),
    })
}

/// Replaces texts that are lists and maps of JSON by what they say: a chat, written where a body has the prompt, is a list.
fn parsed(value: Value) -> Value {
    match value {
        Value::String(text) if text.trim_start().starts_with(['{', '[']) => {
            let read =
                serde_json::from_str::<Value>(&text).ok().filter(|read| read.is_object() || read.is_array());
            read.unwrap_or(Value::String(text))
        }
        Value::Array(items) => items.into_iter().map(parsed).collect(),
        Value::Object(map) => {
            Value::Object(map.into_iter().map(|(key, value)| (key, parsed(value))).collect())
        }
        other => other,
    }
}

/// A text as it stands between the quotes of JSON.
fn in_quotes(value: &Value) -> Value {
    match value {
        Value::String(text) => {
            let quoted = Value::String(text.clone()).to_string();
            json!(quoted[1..quoted.len() - 1])
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_of_json_are_told_apart() {
        let is_json = |config: Value| has_json_body(config.as_object().unwrap());
        assert!(is_json(json!({"body": {}})) && is_json(json!({})));
        assert!(is_json(json!({"body": "{}", "headers": {"Content-Type": "application/json"}})));
        assert!(!is_json(json!({"body": "a={{prompt}}"})));
        assert!(!is_json(json!({"body": {}, "headers": {"content-type": "text/plain"}})));
        assert!(!is_json(json!({"request": "POST / HTTP/1.1"})));
        assert_eq!(object_of(Some(&json!("{\"a\": 1}"))).len(), 1);
        assert_eq!(object_of(Some(&json!("text"))).len(), 0);
    }

    #[test]
    fn a_chat_in_a_body_is_a_list() {
        let templates = Templates::new(Object::new());
        let vars = json!({"prompt": "[{\"role\": \"user\"}]", "odd": "[see]"});
        let filled = fill(
            &json!({"messages": "{{prompt}}", "text": "{{odd}}"}),
            vars.as_object().unwrap(),
            &templates,
        );
        assert_eq!(filled.unwrap(), json!({"messages": [{"role": "user"}], "text": "[see]"}));
    }

    #[test]
    fn values_cannot_break_a_body() {
        let templates = Templates::new(Object::new());
        let vars = json!({"prompt": "say \"hi\"\n"});
        let vars = vars.as_object().unwrap();
        let expected = json!({"q": "say \"hi\"\n"});
        assert_eq!(fill(&json!({"q": "{{prompt}}"}), vars, &templates).unwrap(), expected);
        assert_eq!(fill(&json!("{\"q\": \"{{prompt}}\"}"), vars, &templates).unwrap(), expected);
        assert_eq!(fill(&json!("{\"q\": {{prompt | dump}}}"), vars, &templates).unwrap(), expected);
    }
}
