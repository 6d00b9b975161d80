//! Settings of providers that cannot work, or are not supported and would be missed without a word.

use std::path::Path;

use super::{Family, http, mcp, websocket};
use crate::model::Object;

/// Returns what is wrong with the configuration of a provider that has a setting which is not supported, and what to do. Files of
/// settings are relative to `base`.
pub fn setting(id: &str, family: &Family, config: &Object, base: &Path) -> Option<String> {
    match family {
        Family::Http => http::check::problem(id, config, base),
        Family::Mcp => mcp::problem(config, base),
        Family::WebSocket => websocket::WebSocket::problem(id, config),
        Family::OpenAi(_) | Family::Azure(_) | Family::Google(_) | Family::Bedrock(_) | Family::Anthropic => {
            mcp::problem_of_model(config, base)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn settings_without_an_effect_are_named() {
        let of = |family: &Family, config: Value| {
            setting("x", family, config.as_object().unwrap(), Path::new("/"))
        };
        assert!(of(&Family::Http, json!({"tls": {"cert": "x"}})).unwrap().contains("`config.tls`"));
        assert!(
            of(&Family::Anthropic, json!({"mcp": {"enabled": true}}))
                .unwrap()
                .contains("`server` or `servers`")
        );
        assert_eq!(of(&Family::Anthropic, json!({"mcp": {"enabled": false}})), None);
        assert_eq!(of(&Family::Ollama, json!({"tls": 1, "auth": {"type": "oauth"}})), None);
    }
}
