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
    mask(&mut config);
    let mut document = json!({
        "evalId": evaluation.id,
        "results": {
            "version": 3,
            "timestamp": evaluation.created_at,
            "prompts": evaluation.columns,
            "results": [],
            "stats": evaluation.stats,
        },
        "config": config,
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

/// Hides values whose key says that they are secret.
fn mask(map: &mut Object) {
    for (key, value) in map.iter_mut() {
        let name: String = key.to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
        let secret = ["apikey", "secret", "password", "token", "authorization", "credential", "privatekey"]
            .iter()
            .any(|word| name.ends_with(word));
        match value {
            Value::String(text) if secret && !text.is_empty() && !text.contains("{{") => {
                *text = "[REDACTED]".to_owned();
            }
            Value::Object(inner) => mask(inner),
            Value::Array(items) => items.iter_mut().filter_map(Value::as_object_mut).for_each(mask),
            _ => {}
        }
    }
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
    fn indenting_is_what_the_serializer_does() {
        let value = json!({"a": [1, -2.5e-7, [], {}], "b\"\\{,": {"c": "x: [y, \n\\"}, "d": null, "e": [{"f": []}], "": ""});
        let whole = crate::template::json::stringify(&value, "  ");
        assert_eq!(indented(&value.to_string(), 0), whole);
        assert_eq!(indented(&value.to_string(), 6), whole.replace('\n', "\n      "));
    }
}
