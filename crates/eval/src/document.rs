//! The result document that other tools read.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::model::{Evaluation, Object};

/// Reason why JSON is not a result document.
#[derive(Debug, thiserror::Error)]
#[error("invalid value at `{pointer}`")]
pub struct DocumentError {
    pointer: &'static str,
    #[source]
    source: serde_json::Error,
}

/// Returns the document without its rows.
pub fn document(evaluation: &Evaluation) -> Value {
    let mut config = evaluation.config.clone();
    for (key, default) in
        [("prompts", json!([])), ("providers", json!([])), ("tests", json!([])), ("extensions", json!([]))]
    {
        config.entry(key).or_insert(default);
    }
    mask(&mut config, false);
    let mut columns = json!(evaluation.columns);
    for column in columns.as_array_mut().into_iter().flatten() {
        if let Some(config) = column.get_mut("config") {
            mask_value(config, false, false);
        }
    }
    let mut document = json!({
        "evalId": evaluation.id,
        "results": {
            "version": 3,
            "timestamp": evaluation.created_at,
            "prompts": null,
            "results": [],
            "stats": evaluation.stats,
        },
        "config": null,
        "shareableUrl": null,
        "metadata": {
            "promptfooVersion": env!("CARGO_PKG_VERSION"),
            "nodeVersion": null,
            "platform": std::env::consts::OS,
            "arch": std::env::consts::ARCH,
            "exportedAt": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
            "evaluationCreatedAt": evaluation.created_at,
        },
        "runtimeOptions": evaluation.runtime_options,
    });
    // Moved to their places: within the macro they would be copied, and a configuration can be most of the memory of a run.
    document["results"]["prompts"] = columns;
    document["config"] = Value::Object(config);
    if !evaluation.vars.is_empty() {
        document["vars"] = json!(evaluation.vars);
    }
    document
}

/// Returns what [`document`] was made from.
///
/// # Errors
/// When the value is not a result document.
pub fn evaluation(mut document: Value) -> Result<Evaluation, DocumentError> {
    fn part<T: DeserializeOwned + Default>(
        document: &mut Value,
        pointer: &'static str,
    ) -> Result<T, DocumentError> {
        match document.pointer_mut(pointer).map(Value::take) {
            None | Some(Value::Null) => Ok(T::default()),
            Some(value) => serde_json::from_value(value).map_err(|source| DocumentError { pointer, source }),
        }
    }
    let config: Object = part(&mut document, "/config")?;
    let created: Option<String> = part(&mut document, "/metadata/evaluationCreatedAt")?;
    Ok(Evaluation {
        id: part(&mut document, "/evalId")?,
        created_at: created.map_or_else(|| part(&mut document, "/results/timestamp"), Ok)?,
        description: config.get("description").and_then(Value::as_str).map(str::to_owned),
        config,
        columns: part(&mut document, "/results/prompts")?,
        stats: part(&mut document, "/results/stats")?,
        vars: part(&mut document, "/vars")?,
        runtime_options: part::<Object>(&mut document, "/runtimeOptions").map(Value::Object)?,
        ..Evaluation::default()
    })
}

/// Ends of names of members whose values are secret; lowercase letters and digits only.
const SECRET_ENDS: [&str; 21] = [
    "accesskey",
    "accesskeyid",
    "apikey",
    "authorization",
    "certkey",
    "cookie",
    "credential",
    "credentials",
    "encryptionkey",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "pwd",
    "secret",
    "secretkey",
    "secrets",
    "sessionid",
    "signingkey",
    "token",
    "virtualkey",
];
/// Whole names of members whose values are secret.
const SECRET_NAMES: [&str; 7] = ["auth", "bearer", "pfx", "session", "sig", "signature", "xauth"];
/// Beginnings of keys of well-known services, and how many characters follow at least.
const KEYS: [(&str, usize); 4] = [("sk-", 20), ("key-", 20), ("AKIA", 16), ("AIza", 35)];
/// Minimum length of what follows the scheme in a header with credentials.
const MIN_CREDENTIALS: usize = 20;

/// Hides values that are secret by their name or by what they look like, as far as they are no templates.
fn mask(map: &mut Object, is_env: bool) {
    for (key, value) in map.iter_mut() {
        let name: String = key.to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
        let is_secret = SECRET_ENDS.iter().any(|end| name.ends_with(end))
            || SECRET_NAMES.contains(&name.as_str())
            || is_env && (name.ends_with("key") || name.ends_with("dsn"));
        mask_value(value, is_secret, name == "env");
    }
}

fn mask_value(value: &mut Value, is_secret: bool, is_env: bool) {
    match value {
        Value::String(text) if !text.is_empty() && !text.contains("{{") && (is_secret || is_key(text)) => {
            *text = "[REDACTED]".to_owned();
        }
        Value::Object(inner) => mask(inner, is_env),
        Value::Array(items) => items.iter_mut().for_each(|item| mask_value(item, is_secret, is_env)),
        _ => {}
    }
}

/// Whether a text is the key of a service, or a header's value with credentials. Texts that only begin like one have spaces or more dashes.
fn is_key(text: &str) -> bool {
    if let Some((scheme, credentials)) = text.split_once(' ') {
        let is_scheme = ["basic", "bearer"].contains(&scheme.to_lowercase().as_str());
        return is_scheme
            && credentials.len() >= MIN_CREDENTIALS
            && !credentials.contains(char::is_whitespace);
    }
    KEYS.iter().any(|(start, min)| {
        let rest = text.strip_prefix(start).unwrap_or_default();
        let fits = |c: char| c.is_ascii_alphanumeric() || *start != "key-" && (c == '-' || c == '_');
        rest.len() >= *min && rest.chars().all(fits)
    })
}

/// JSON without spaces as [`stringify`](crate::template::json::stringify) shows it two spaces a level, within a document that is at
/// `indent` spaces. Nothing is read and written again, so numbers stay as they are.
pub fn indented(text: &str, indent: usize) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let (mut depth, mut quoted, mut escaped, mut opened) = (indent, false, false, false);
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', depth));
    };
    for c in text.chars() {
        if quoted {
            quoted = escaped || c != '"';
            escaped = !escaped && c == '\\';
            out.push(c);
            continue;
        }
        if matches!(c, '}' | ']') {
            depth -= 2;
            // What is empty stays on its line.
            if !opened {
                line(&mut out, depth);
            }
        } else if opened {
            line(&mut out, depth);
        }
        opened = matches!(c, '{' | '[');
        out.push(c);
        match c {
            '"' => quoted = true,
            '{' | '[' => depth += 2,
            ',' => line(&mut out, depth),
            ':' => out.push(' '),
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_and_templates_are_not() {
        let mut config = json!({
            "secretAccessKey": "a", "apiKey": "{{ env.KEY }}", "headers": {"Cookie": "b", "X-Trace": "c", "X-Own": format!("Bearer {}", "d".repeat(20))},
            "env": {"OPENAI_KEY": "e", "DB_DSN": "f", "MODE": "g"}, "sort_key": "h", "tokens": ["i"], "passwords": [], "secrets": ["j"],
            "text": "sk-a short text", "own": format!("sk-{}", "k".repeat(20)), "max_tokens": 5,
            "topic": "Basic arithmetic for everybody who likes it", "slug": "key-value-stores-and-what-they-keep",
        });
        mask_value(&mut config, false, false);
        let hidden = "[REDACTED]";
        let expected = json!({
            "secretAccessKey": hidden, "apiKey": "{{ env.KEY }}", "headers": {"Cookie": hidden, "X-Trace": "c", "X-Own": hidden},
            "env": {"OPENAI_KEY": hidden, "DB_DSN": hidden, "MODE": "g"}, "sort_key": "h", "tokens": ["i"], "passwords": [], "secrets": [hidden],
            "text": "sk-a short text", "own": hidden, "max_tokens": 5,
            "topic": "Basic arithmetic for everybody who likes it", "slug": "key-value-stores-and-what-they-keep",
        });
        assert_eq!(config, expected);
    }

    #[test]
    fn indenting_is_what_the_serializer_does() {
        let value = json!({"a": [1, -2.5e-7, [], {}], "b\"\\{,": {"c": "x: [y, \n\\"}, "d": null, "e": [{"f": []}], "": ""});
        let whole = crate::template::json::stringify(&value, "  ");
        assert_eq!(indented(&value.to_string(), 0), whole);
        assert_eq!(indented(&value.to_string(), 6), whole.replace('\n', "\n      "));
    }
}
