//! The messages of a chat that a rendered prompt stands for.

use serde_json::{Value, json};

use crate::calling::CallError;
use crate::reading::node::Node;

/// Returns the messages of a prompt: those of its JSON, those of its YAML if it begins with a role, else one message of the user.
///
/// # Errors
/// An error if it looks like JSON or like messages in YAML, and is malformed.
pub fn messages(prompt: &str) -> Result<Vec<Value>, CallError> {
    let trimmed = prompt.trim();
    if trimmed.starts_with("- role:") {
        let node = Node::parse(trimmed, &std::path::Path::new("prompt").into())
            .map_err(|error| CallError::MalformedMessages(error.to_string()))?;
        if let Value::Array(messages) = node.to_value() {
            return Ok(messages);
        }
    }
    json_messages(prompt)
}

/// Reads the messages of a chat as [`messages`] does, but not those in YAML.
///
/// # Errors
/// As [`messages`].
pub fn json_messages(prompt: &str) -> Result<Vec<Value>, CallError> {
    let trimmed = prompt.trim();
    let parsed = if trimmed.starts_with('[') || trimmed.starts_with('{') {
        match serde_json::from_str::<Value>(trimmed) {
            Ok(value) => Some(value),
            Err(error) => {
                let whole = (trimmed.starts_with('{') && trimmed.ends_with('}'))
                    || (trimmed.starts_with('[') && trimmed.ends_with(']'));
                if whole || crate::reading::env::is_on("PROMPTFOO_REQUIRE_JSON_PROMPTS") {
                    return Err(CallError::MalformedPrompt(error.to_string()));
                }
                None
            }
        }
    } else if crate::reading::env::is_on("PROMPTFOO_REQUIRE_JSON_PROMPTS") {
        return Err(CallError::PlainPrompt);
    } else {
        None
    };
    Ok(match parsed {
        Some(Value::Array(messages)) => messages,
        Some(other) if other.is_object() => vec![other],
        _ => vec![json!({"role": "user", "content": prompt})],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_become_messages() {
        assert_eq!(messages("hi").unwrap(), [json!({"role": "user", "content": "hi"})]);
        assert_eq!(messages(r#"[{"role":"system","content":"x"}]"#).unwrap()[0]["role"], "system");
        assert_eq!(
            messages("- role: user\n  content: hey").unwrap(),
            [json!({"role": "user", "content": "hey"})]
        );
        assert_eq!(messages("[see] this").unwrap()[0]["content"], "[see] this");
        assert!(messages("{\"a\": }").is_err());
        // A variable has a colon, and stands without quotes.
        assert!(messages("- role: user\n  content: one: two").is_err());
    }
}
