//! The servers that a configuration names, and what is wrong with it.

use std::path::Path;

use serde_json::{Value, json};

use crate::model::Object;
use crate::provider::http::check::of_auth;
use crate::reading::files;

/// The servers of a configuration, in order.
pub fn servers(config: &Object) -> impl Iterator<Item = &Object> {
    let many = config.get("servers").and_then(Value::as_array);
    let one = config.get("server").filter(|_| many.is_none());
    many.into_iter().flatten().chain(one).filter_map(Value::as_object)
}

/// The name of a server in messages.
pub fn name(server: &Object) -> String {
    let keys = ["name", "url", "path", "command"];
    keys.iter().find_map(|key| server.get(*key)?.as_str()).unwrap_or("default").to_owned()
}

/// The credentials of a server, with what they have by default.
pub fn auth(server: &Object) -> Option<Object> {
    let mut auth = server.get("auth")?.as_object()?.clone();
    let kind = auth.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    match kind.as_str() {
        "" | "none" | "no_auth" => return None,
        "api_key" => {
            auth.entry("keyName").or_insert_with(|| json!("X-API-Key"));
            if let Some(value) = auth.get("api_key").cloned() {
                auth.entry("value").or_insert(value);
            }
        }
        _ => {}
    }
    Some(auth)
}

/// Returns what is wrong with a configuration, and what to do.
pub fn problem(config: &Object, base: &Path) -> Option<String> {
    if config.get("enabled") != Some(&Value::Bool(true)) {
        return Some("the provider `mcp` connects to no server; set `config.enabled: true`".to_owned());
    }
    if servers(config).next().is_none() {
        return Some("the provider `mcp` needs `config.server` or `config.servers`".to_owned());
    }
    servers(config).find_map(|server| {
        of_server(server, base).map(|problem| format!("server `{}`: {problem}", name(server)))
    })
}

/// Returns what is wrong with the block `mcp` of a model, and what to do.
pub fn problem_of_model(config: &Object, base: &Path) -> Option<String> {
    let block = match config.get("mcp")? {
        Value::Null | Value::Bool(false) => return None,
        Value::Object(block) => block,
        _ => return Some("`config.mcp` must be a map".to_owned()),
    };
    if block.get("enabled") == Some(&Value::Bool(false)) {
        return None;
    }
    if block.get("enabled") != Some(&Value::Bool(true)) {
        return Some("`config.mcp` connects to no server; set `config.mcp.enabled: true`".to_owned());
    }
    if servers(block).next().is_none() {
        return Some("`config.mcp` needs `server` or `servers`".to_owned());
    }
    servers(block).find_map(|server| {
        of_server(server, base).map(|problem| format!("server `{}` of `config.mcp`: {problem}", name(server)))
    })
}

fn of_server(server: &Object, base: &Path) -> Option<String> {
    let text = |key: &str| server.get(key).and_then(Value::as_str);
    if text("command").is_some() {
        return None;
    }
    if let Some(path) = text("path") {
        let file = files::resolve(base, path);
        return match file.extension().and_then(|extension| extension.to_str()) {
            Some("js" | "py") if file.is_file() => None,
            Some("js" | "py") => Some(format!("file not found: `{}`", file.display())),
            _ => Some(
                "`path` must be a file of JavaScript or Python; start others by `command` and `args`"
                    .to_owned(),
            ),
        };
    }
    if text("url").is_none() {
        return Some("one of `command`, `path` and `url` must be set".to_owned());
    }
    match auth(server) {
        Some(auth) if auth.get("type").and_then(Value::as_str) == Some("file") => Some(
            "`auth` of type `file` is for targets of HTTP; use bearer, basic, api_key or oauth".to_owned(),
        ),
        Some(auth) => of_auth(&auth, base),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_of_a_server_is_named() {
        let of = |config: Value| problem(config.as_object().unwrap(), Path::new("/")).unwrap_or_default();
        assert!(of(json!({"server": {"url": "x"}})).contains("enabled: true"));
        assert!(of(json!({"enabled": true})).contains("config.server"));
        assert!(of(json!({"enabled": true, "servers": [{}]})).contains("one of `command`"));
        assert!(of(json!({"enabled": true, "server": {"path": "x.rb"}})).contains("`command` and `args`"));
        assert!(of(json!({"enabled": true, "server": {"path": "none.py"}})).contains("file not found"));
        let oauth = json!({"type": "oauth", "clientId": "a", "clientSecret": "b"});
        assert!(of(json!({"enabled": true, "server": {"url": "x", "auth": oauth}})).contains("`tokenUrl`"));
        assert_eq!(
            of(json!({"enabled": true, "server": {"url": "x", "auth": {"type": "api_key", "api_key": "k"}}})),
            ""
        );
        assert_eq!(of(json!({"enabled": true, "server": {"command": "x", "args": []}})), "");
        let of = |block: Value| problem_of_model(json!({"mcp": block}).as_object().unwrap(), Path::new("/"));
        assert_eq!(of(json!({"enabled": true, "server": {"command": "x"}})), None);
        assert_eq!(of(json!({"enabled": false})), None);
        assert!(of(json!({"server": {"command": "x"}})).unwrap().contains("enabled: true"));
        assert!(of(json!({"enabled": true, "servers": [{}]})).unwrap().contains("one of `command`"));
    }
}
