//! Settings of promptfoo's providers that are not supported, and would be missed without a word.

use serde_json::Value;

use super::Family;
use crate::model::Object;

/// Returns what is wrong with the configuration of a provider that has a setting which is not supported, and what to do.
pub fn setting(family: &Family, config: &Object) -> Option<String> {
    let (kind, known): (&str, &[&str]) = match family {
        Family::Http => ("http", &["multipart", "signatureAuth", "tls", "session"]),
        Family::OpenAi(_) | Family::Azure(_) | Family::Google(_) | Family::Bedrock(_) => {
            ("models", &["mcp", "functionToolCallbacks"])
        }
        Family::Anthropic => ("models", &["mcp"]),
        _ => return None,
    };
    let instead = match family {
        Family::Http => "make the request in a Python or JavaScript provider",
        _ => "call the model from a Python or JavaScript provider, which runs its tools",
    };
    let given = |key: &&&str| config.get(**key).is_some_and(|value| !is_off(value));
    if let Some(key) = known.iter().find(given) {
        return Some(format!("`config.{key}` is not supported by {kind}; {instead}"));
    }
    let auth = config.get("auth").and_then(|auth| auth.get("type")).and_then(Value::as_str);
    match auth.filter(|_| *family == Family::Http) {
        None | Some("bearer" | "basic" | "api_key") => None,
        Some(other) => Some(format!(
            "`config.auth` of type `{other}` is not supported; use bearer, basic or api_key, or {instead}"
        )),
    }
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
        let of = |family: &Family, config: Value| setting(family, config.as_object().unwrap());
        assert!(of(&Family::Http, json!({"tls": {"cert": "x"}})).unwrap().contains("`config.tls`"));
        assert!(of(&Family::Http, json!({"auth": {"type": "oauth"}})).unwrap().contains("`oauth`"));
        assert_eq!(of(&Family::Http, json!({"auth": {"type": "bearer"}, "sessionParser": "x"})), None);
        assert!(of(&Family::Anthropic, json!({"mcp": {"enabled": true}})).is_some());
        assert_eq!(of(&Family::Anthropic, json!({"mcp": {"enabled": false}})), None);
        assert_eq!(of(&Family::Ollama, json!({"tls": 1, "auth": {"type": "oauth"}})), None);
    }
}
