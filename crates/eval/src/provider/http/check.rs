//! Checks of the configuration of a target, before it is asked.

use std::path::Path;

use serde_json::Value;

use super::signature;
use crate::model::Object;
use crate::reading::files;

/// The way out where a request cannot be described.
const INSTEAD: &str = "make the request in a Python or JavaScript provider";
const TO_PEM: &str = "`openssl pkcs12 -in FILE -nodes -out client.pem` writes them as PEM";

/// Settings of `tls` that rustls does not have, or that are written otherwise.
const TLS: [(&str, &str); 9] = [
    ("pfx", "set `cert` and `key`"),
    ("pfxPath", "set `certPath` and `keyPath`"),
    ("jksPath", "set `certPath` and `keyPath`"),
    ("jksContent", "set `cert` and `key`"),
    ("passphrase", "remove the passphrase from the key"),
    ("ciphers", "the ciphers of TLS 1.2 and 1.3 cannot be chosen"),
    ("secureProtocol", "set `minVersion` and `maxVersion`"),
    ("servername", "use the name in `url`"),
    ("ALPNProtocols", "requests are HTTP/1.1"),
];

/// Returns what is wrong with the configuration of a target, and what to do.
pub fn problem(id: &str, config: &Object, base: &Path) -> Option<String> {
    let map = |key: &str| config.get(key).and_then(Value::as_object);
    map("auth")
        .and_then(|auth| of_auth(auth, base))
        .or_else(|| map("tls").and_then(|tls| of_tls(tls, base)))
        .or_else(|| map("signatureAuth").and_then(|settings| of_signature(settings, base)))
        .or_else(|| of_multipart(config, base))
        .or_else(|| of_session(config))
        .or_else(|| {
            given(config, "transformToolsFormat").then(|| {
                format!("`config.transformToolsFormat` is not supported; write `tools` as the service takes them, or {INSTEAD}")
            })
        })
        .or_else(|| of_prompt(id, config))
}

fn given(map: &Object, key: &str) -> bool {
    map.get(key).is_some_and(|value| !value.is_null() && value != "")
}

fn missing(of: &str, map: &Object, keys: &[&str]) -> Option<String> {
    let key = keys.iter().find(|key| !given(map, key))?;
    Some(format!("`config.{of}` needs `{key}`"))
}

/// The file of a setting that does not exist.
fn no_file(of: &str, map: &Object, keys: &[&str], base: &Path) -> Option<String> {
    keys.iter().find_map(|key| {
        let name =
            map.get(*key)?.as_str().filter(|name| !name.contains("{{") && !name.contains("-----BEGIN"))?;
        let path = files::resolve(base, files::split_name(name).0);
        (!path.is_file()).then(|| format!("`config.{of}.{key}`: file not found: `{}`", path.display()))
    })
}

pub fn of_auth(auth: &Object, base: &Path) -> Option<String> {
    match auth.get("type").and_then(Value::as_str) {
        Some("bearer") => missing("auth", auth, &["token"]),
        Some("basic") => missing("auth", auth, &["username", "password"]),
        Some("api_key") => missing("auth", auth, &["keyName", "value"]),
        Some("file") => missing("auth", auth, &["path"]).or_else(|| no_file("auth", auth, &["path"], base)),
        Some("oauth") => match auth.get("grantType").and_then(Value::as_str) {
            None | Some("client_credentials") => {
                missing("auth", auth, &["tokenUrl", "clientId", "clientSecret"])
            }
            Some("password") => missing("auth", auth, &["tokenUrl", "username", "password"]),
            Some(other) => Some(format!(
                "`config.auth.grantType`: unknown grant `{other}`; use client_credentials or password, or fetch the token with `type: file`"
            )),
        },
        other => Some(format!(
            "`config.auth` of type `{}` is not supported; use bearer, basic, api_key, oauth or file",
            other.unwrap_or_default()
        )),
    }
}

fn of_tls(tls: &Object, base: &Path) -> Option<String> {
    if let Some((key, instead)) = TLS.iter().find(|(key, _)| given(tls, key)) {
        let hint = if key.starts_with("pfx") || key.starts_with("jks") {
            format!("; {TO_PEM}")
        } else {
            String::new()
        };
        return Some(format!("`config.tls.{key}` is not supported; {instead}{hint}"));
    }
    let has = |inline: &str, path: &str| given(tls, inline) || given(tls, path);
    if has("cert", "certPath") != has("key", "keyPath") {
        return Some("`config.tls`: a certificate of the client needs both `cert` and `key`".to_owned());
    }
    if matches!(tls.get("maxVersion").and_then(Value::as_str), Some("TLSv1" | "TLSv1.1")) {
        return Some("`config.tls.maxVersion`: TLS 1.2 is the oldest version that is spoken".to_owned());
    }
    no_file("tls", tls, &["caPath", "certPath", "keyPath"], base)
}

fn of_signature(settings: &Object, base: &Path) -> Option<String> {
    let named = settings.get("certificateFilename").and_then(Value::as_str).unwrap_or_default();
    let store =
        ["pfxPath", "pfxContent", "keystorePath", "keystoreContent"].iter().find(|key| given(settings, key));
    if let Some(key) = store {
        return Some(format!(
            "`config.signatureAuth.{key}` is not supported; set `privateKeyPath`; {TO_PEM}"
        ));
    }
    if settings.get("type").and_then(Value::as_str) == Some("jks")
        || [".p12", ".pfx", ".jks"].iter().any(|ending| named.to_lowercase().ends_with(ending))
    {
        return Some(format!("`config.signatureAuth` takes keys in PEM; {TO_PEM}"));
    }
    let keys = ["privateKey", "privateKeyPath", "keyPath", "keyContent", "certificateContent"];
    if !keys.iter().any(|key| given(settings, key)) {
        return Some("`config.signatureAuth` needs `privateKey` or `privateKeyPath`".to_owned());
    }
    let algorithm = settings.get("signatureAlgorithm").and_then(Value::as_str).unwrap_or("SHA256");
    if let Err(error) = signature::digest(algorithm) {
        return Some(format!("`config.signatureAuth.signatureAlgorithm`: {error}"));
    }
    no_file("signatureAuth", settings, &["privateKeyPath", "keyPath"], base)
}

fn of_multipart(config: &Object, base: &Path) -> Option<String> {
    let form = config.get("multipart").filter(|form| !form.is_null())?;
    if let Some(other) = ["request", "body"].iter().find(|key| given(config, key)) {
        return Some(format!("`config` has both `multipart` and `{other}`; use one of them"));
    }
    if matches!(config.get("method").and_then(Value::as_str), Some("GET" | "HEAD" | "get" | "head")) {
        return Some("`config.multipart` needs a method with a body, such as POST".to_owned());
    }
    let parts = form.get("parts").and_then(Value::as_array).filter(|parts| !parts.is_empty());
    let Some(parts) = parts else { return Some("`config.multipart` needs a list `parts`".to_owned()) };
    parts.iter().enumerate().find_map(|(index, part)| {
        let at = format!("multipart.parts[{index}]");
        let Some(part) = part.as_object() else { return Some(format!("`config.{at}` must be a map")) };
        if !given(part, "name") {
            return Some(format!("`config.{at}` needs `name`"));
        }
        let kind = part.get("kind").and_then(Value::as_str);
        match (kind, part.get("source").and_then(Value::as_object)) {
            (Some("field"), _) if part.contains_key("value") => None,
            (Some("field"), _) => Some(format!("`config.{at}` needs `value`")),
            (Some("file"), Some(source)) => of_source(&at, source, base),
            (Some("file"), None) => Some(format!("`config.{at}` needs `source`")),
            _ => Some(format!("`config.{at}.kind` must be `field` or `file`")),
        }
    })
}

fn of_source(at: &str, source: &Object, base: &Path) -> Option<String> {
    match source.get("type").and_then(Value::as_str) {
        Some("path") => missing(&format!("{at}.source"), source, &["path"])
            .or_else(|| no_file(&format!("{at}.source"), source, &["path"], base)),
        Some("generated") => match source.get("format").and_then(Value::as_str) {
            None | Some("pdf" | "png") => None,
            Some(other) => Some(format!(
                "`config.{at}.source.format`: documents of format `{other}` are not made; use pdf or png, or a file by `type: path`"
            )),
        },
        _ => Some(format!("`config.{at}.source.type` must be `path` or `generated`")),
    }
}

/// A request without a body that has nothing of a template is the same for every prompt.
pub fn of_prompt(id: &str, config: &Object) -> Option<String> {
    let has_body =
        ["body", "request", "multipart", "transformRequest"].iter().any(|key| config.contains_key(*key));
    let asks = matches!(config.get("method").and_then(Value::as_str), Some(method) if method.eq_ignore_ascii_case("get"));
    let named = ["url", "queryParams", "headers"].iter().filter_map(|key| config.get(*key));
    let is_template = named.map(ToString::to_string).any(|text| text.contains("{{"));
    let is_template = is_template || id.contains("{{");
    (!has_body && !asks && !is_template)
        .then(|| "the prompt is not sent to the target: set `config.body`, or `method: GET`".to_owned())
}

fn of_session(config: &Object) -> Option<String> {
    let session = config.get("session").filter(|session| !session.is_null())?;
    let Some(session) = session.as_object() else { return Some("`config.session` must be a map".to_owned()) };
    missing("session", session, &["url", "responseParser"])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_target_cannot_have_is_named() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("key.pem"), "x").unwrap();
        let of = |config: Value| problem("https://host/ask", config.as_object().unwrap(), directory.path());
        let refused = [
            (json!({}), "the prompt is not sent"),
            (json!({"method": "POST", "headers": {"x": "y"}}), "the prompt is not sent"),
            (json!({"tls": {"pfxPath": "x.p12"}}), "`config.tls.pfxPath`"),
            (json!({"tls": {"servername": "x"}}), "`config.tls.servername`"),
            (json!({"tls": {"cert": "x"}}), "both `cert` and `key`"),
            (json!({"tls": {"caPath": "none.pem"}}), "file not found"),
            (json!({"auth": {"type": "digest"}}), "`digest`"),
            (json!({"auth": {"type": "oauth", "tokenUrl": "x"}}), "needs `clientId`"),
            (json!({"auth": {"type": "oauth", "grantType": "code"}}), "unknown grant `code`"),
            (json!({"auth": {"type": "file", "path": "file://none.js"}}), "file not found"),
            (json!({"signatureAuth": {}}), "needs `privateKey`"),
            (json!({"signatureAuth": {"pfxPath": "x"}}), "`config.signatureAuth.pfxPath`"),
            (json!({"signatureAuth": {"privateKey": "x", "signatureAlgorithm": "md5"}}), "`md5`"),
            (json!({"multipart": {"parts": []}}), "needs a list `parts`"),
            (
                json!({"multipart": {"parts": [{"kind": "field", "name": "a", "value": 1}]}, "body": {}}),
                "both",
            ),
            (json!({"multipart": {"parts": [{"kind": "file", "name": "a"}]}}), "needs `source`"),
            (
                json!({"multipart": {"parts": [{"kind": "file", "name": "a", "source": {"type": "generated", "format": "jpeg"}}]}}),
                "`jpeg`",
            ),
            (json!({"session": {"url": "x"}}), "needs `responseParser`"),
            (json!({"transformToolsFormat": "openai"}), "`config.transformToolsFormat`"),
        ];
        for (config, text) in refused {
            let said = of(config.clone()).unwrap_or_default();
            assert!(said.contains(text), "{config}: {said}");
        }
        let taken = [
            json!({"tls": {"ca": "x", "rejectUnauthorized": false, "minVersion": "TLSv1"}}),
            json!({"tls": {"certPath": "key.pem", "keyPath": "file://key.pem"}}),
            json!({"auth": {"type": "oauth", "grantType": "password", "tokenUrl": "x", "username": "u", "password": "p"}}),
            json!({"signatureAuth": {"privateKeyPath": "key.pem", "signatureAlgorithm": "RSA-SHA384"}}),
            json!({"signatureAuth": {"keyPath": "{{file}}", "certPath": "x"}}),
            json!({"session": {"url": "x", "responseParser": "x"}, "sessionParser": "x"}),
        ];
        for mut config in taken {
            config["body"] = json!("{{prompt}}");
            assert_eq!(of(config.clone()), None, "{config}");
        }
        let asking = [
            json!({"method": "GET"}),
            json!({"queryParams": {"q": "{{prompt}}"}}),
            json!({"request": "GET /?q={{prompt}} HTTP/1.1"}),
            json!({"transformRequest": "{q: prompt}"}),
        ];
        for config in asking {
            assert_eq!(of(config.clone()), None, "{config}");
        }
        assert_eq!(problem("https://host/?q={{prompt}}", &Object::new(), directory.path()), None);
    }
}
