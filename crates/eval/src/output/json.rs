//! The result document that other tools read.

use serde_json::{Value, json};

use crate::model::{Evaluation, Object};

/// The whole document.
pub fn document(evaluation: &Evaluation) -> Value {
    let mut config = evaluation.config.clone();
    for (key, default) in [
        ("tags", json!({})),
        ("description", Value::Null),
        ("prompts", json!([])),
        ("providers", json!([])),
        ("tests", json!([])),
    ] {
        if !default.is_null() {
            config.entry(key).or_insert(default);
        }
    }
    mask(&mut config);
    json!({
        "evalId": evaluation.id,
        "results": {
            "version": 3,
            "timestamp": evaluation.created_at,
            "prompts": evaluation.columns,
            "results": evaluation.rows,
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
        "vars": evaluation.vars,
        "runtimeOptions": evaluation.runtime_options,
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
