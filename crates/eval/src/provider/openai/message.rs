//! Messages of chats: what of a message is the answer differs between the services that speak the dialect.

use serde::de::IgnoredAny;
use serde_json::Value;

use crate::model::Object;

/// The answer where the service withheld it.
const FILTERED: &str = "Content filtered by provider";

/// An answer to a chat.
#[derive(Debug, PartialEq)]
pub struct Said {
    /// The text, the calls of tools, or the message that has both.
    pub output: Option<Value>,
    /// Whether the model refused, or the service withheld the answer.
    pub refused: bool,
}

/// Returns the answer of a message. `filtered` says that the service withheld it.
pub fn read(message: &Value, filtered: bool, service: &str, config: &Object) -> Said {
    let refusal = field(message, "refusal").filter(|refusal| *refusal != "");
    if let Some(refusal) = refusal {
        return Said { output: Some(refusal.clone()), refused: true };
    }
    if filtered {
        let content = field(message, "content").filter(|content| *content != "");
        let output = content.cloned().unwrap_or_else(|| Value::from(FILTERED));
        return Said { output: Some(output), refused: true };
    }
    Said { output: output(message, service, config), refused: false }
}

fn field<'a>(message: &'a Value, key: &str) -> Option<&'a Value> {
    message.get(key).filter(|value| !value.is_null())
}

fn output(message: &Value, service: &str, config: &Object) -> Option<Value> {
    // Some servers send an empty list with every answer.
    let has_calls = |calls: &&Value| calls.as_array().is_none_or(|calls| !calls.is_empty());
    let calls = field(message, "tool_calls").filter(has_calls).or_else(|| field(message, "function_call"));
    let content = field(message, "content");
    let content = if service == "mistral" { content.map(joined) } else { content.cloned() };
    let content = content.filter(|content| *content != "" || calls.is_none());
    let thought = |key: &str| field(message, key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let hidden = ["azure", "mistral"].contains(&service) || config.get("showThinking") == Some(&false.into());
    let shown = |text: &&str| !hidden && !text.is_empty();
    let thoughts = thought("reasoning").or_else(|| thought("reasoning_content")).filter(shown);
    let output = match (content, calls) {
        (_, Some(calls)) if service == "openrouter" => calls.clone(),
        (content, None) if service == "openrouter" && is_blank(content.as_ref()) => {
            return Some(Value::from(thoughts.unwrap_or_default()));
        }
        (Some(content), Some(_)) if service == "azure" || thought("reasoning").is_some() => content,
        (Some(content), Some(_)) => {
            let mut whole = message.clone();
            whole["content"] = content;
            whole
        }
        (Some(content), None) => content,
        (None, calls) => calls?.clone(),
    };
    // A structured answer stands alone.
    let is_structured = |text: &str| wants_schema(config) && serde_json::from_str::<IgnoredAny>(text).is_ok();
    Some(match (output, thoughts) {
        (Value::String(text), Some(thoughts)) if !is_structured(&text) => {
            Value::from(format!("Thinking: {thoughts}\n\n{text}"))
        }
        (output, _) => output,
    })
}

/// Whether a model is asked for JSON of a schema.
pub fn wants_schema(config: &Object) -> bool {
    config.get("response_format").and_then(|format| format.get("type")) == Some(&"json_schema".into())
}

fn is_blank(content: Option<&Value>) -> bool {
    content.is_none_or(|content| content.as_str().is_some_and(|text| text.trim().is_empty()))
}

/// Returns the texts of a content that is a list of texts and thoughts, as one.
fn joined(content: &Value) -> Value {
    let Some(parts) = content.as_array() else { return content.clone() };
    let is = |part: &Value, kind: &str| part.get("type").and_then(Value::as_str) == Some(kind);
    if !parts.iter().all(|part| is(part, "text") || is(part, "thinking")) {
        return content.clone();
    }
    let texts = parts.iter().filter(|part| is(part, "text")).filter_map(|part| part.get("text")?.as_str());
    let texts: Vec<&str> = texts.collect();
    if texts.is_empty() { content.clone() } else { Value::from(texts.concat()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(service: &str, config: Value, message: Value) -> Option<Value> {
        read(&message, false, service, config.as_object().unwrap()).output
    }

    #[test]
    fn withheld_answers_are_refusals() {
        let withheld = |message: Value| read(&message, true, "openai", &Object::new());
        let refused = |text: &str| Said { output: Some(json!(text)), refused: true };
        assert_eq!(withheld(json!({"content": null})), refused("Content filtered by provider"));
        assert_eq!(withheld(json!({"content": ""})), refused("Content filtered by provider"));
        assert_eq!(withheld(json!({"content": "the first half"})), refused("the first half"));
        assert_eq!(withheld(json!({"content": null, "refusal": "no"})), refused("no"));
    }

    #[test]
    fn thoughts_stand_before_the_answer() {
        let thoughtful = json!({"content": "4", "reasoning": "2+2"});
        let shown = Some(json!("Thinking: 2+2\n\n4"));
        assert_eq!(of("groq", json!({}), thoughtful.clone()), shown);
        assert_eq!(of("deepseek", json!({}), json!({"content": "4", "reasoning_content": "2+2"})), shown);
        assert_eq!(of("groq", json!({"showThinking": false}), thoughtful.clone()), Some(json!("4")));
        assert_eq!(of("azure", json!({}), thoughtful.clone()), Some(json!("4")));
        let schema = json!({"response_format": {"type": "json_schema"}});
        assert_eq!(of("groq", schema, thoughtful), Some(json!("4")));
        let calling = json!({"content": null, "reasoning": "a tool", "tool_calls": [{"id": "1"}]});
        assert_eq!(of("groq", json!({}), calling), Some(json!([{"id": "1"}])));
    }

    #[test]
    fn text_beside_calls_is_what_the_service_makes_of_it() {
        let both = json!({"content": "hello", "tool_calls": [{"id": "1"}]});
        assert_eq!(of("openai", json!({}), both.clone()), Some(both.clone()));
        assert_eq!(of("openrouter", json!({}), both.clone()), Some(json!([{"id": "1"}])));
        assert_eq!(of("azure", json!({}), both), Some(json!("hello")));
        let none = json!({"content": "hello", "tool_calls": []});
        assert_eq!(of("openai", json!({}), none), Some(json!("hello")));
    }

    #[test]
    fn openrouter_answers_with_thoughts_alone() {
        let thoughtful = json!({"content": " ", "reasoning": "2+2"});
        assert_eq!(of("openrouter", json!({}), thoughtful.clone()), Some(json!("2+2")));
        assert_eq!(of("openrouter", json!({"showThinking": false}), thoughtful), Some(json!("")));
    }

    #[test]
    fn parts_of_mistral_are_one_text() {
        let parts = json!([{"type": "thinking", "thinking": []}, {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        assert_eq!(of("mistral", json!({}), json!({"content": parts})), Some(json!("ab")));
        let both = json!({"content": parts, "tool_calls": [{"id": "1"}]});
        assert_eq!(
            of("mistral", json!({}), both),
            Some(json!({"content": "ab", "tool_calls": [{"id": "1"}]}))
        );
        let other = json!([{"type": "text", "text": "a"}, {"type": "reference"}]);
        assert_eq!(of("mistral", json!({}), json!({"content": other})), Some(other));
    }
}
