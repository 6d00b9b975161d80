//! Settings of promptfoo's providers that are not supported, and would be missed without a word.

use std::path::Path;

use serde_json::Value;

use super::{Family, http, mcp, websocket};
use crate::model::Object;

/// Returns what is wrong with the configuration of a provider that has a setting which is not supported, and what to do. Files of
/// settings are relative to `base`.
pub fn setting(id: &str, family: &Family, config: &Object, base: &Path) -> Option<String> {
    let known: &[&str] = match family {
        Family::Http => return http::check::problem(config, base),
        Family::Mcp => return mcp::problem(config, base),
        Family::WebSocket => return websocket::WebSocket::problem(id, config),
        Family::OpenAi(_) | Family::Azure(_) | Family::Google(_) | Family::Bedrock(_) => {
            &["mcp", "functionToolCallbacks"]
        }
        Family::Anthropic => &["mcp"],
        _ => return None,
    };
    let instead = "call the model from a Python or JavaScript provider, which runs its tools";
    let key = known.iter().find(|key| config.get(**key).is_some_and(|value| !is_off(value)))?;
    Some(format!("`config.{key}` is not supported by models; {instead}"))
}

/// Whether a setting is switched off: `mcp: {enabled: false}`.
fn is_off(value: &Value) -> bool {
    matches!(value, Value::Null | Value::Bool(false)) || value.get("enabled") == Some(&Value::Bool(false))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_without_an_effect_are_named() {
        let of = |family: &Family, config: Value| {
            setting("x", family, config.as_object().unwrap(), Path::new("/"))
        };
        assert!(of(&Family::Http, json!({"tls": {"cert": "x"}})).unwrap().contains("`config.tls`"));
        assert!(of(&Family::Anthropic, json!({"mcp": {"enabled": true}})).is_some());
        assert_eq!(of(&Family::Anthropic, json!({"mcp": {"enabled": false}})), None);
        assert_eq!(of(&Family::Ollama, json!({"tls": 1, "auth": {"type": "oauth"}})), None);
    }
}
