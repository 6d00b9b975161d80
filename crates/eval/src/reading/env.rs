//! Variables of the environment: `.env` files and the process's own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::diagnostic::{Findings, Severity};
use crate::model::Object;

/// The `env` map of a configuration, which takes precedence over the process's own variables. Clones share one map.
#[derive(Debug, Clone, Default)]
pub struct Env(Arc<Object>);

impl Env {
    /// Takes the variables of a configuration.
    pub fn new(own: Object) -> Self {
        Self(Arc::new(own))
    }

    /// Returns the variables of the configuration alone.
    pub fn own(&self) -> &Object {
        &self.0
    }

    /// Returns a variable: the configuration's, else the process's.
    pub fn get(&self, name: &str) -> Option<String> {
        match self.0.get(name) {
            Some(Value::String(text)) => Some(text.clone()),
            Some(other) => Some(other.to_string()),
            None => std::env::var(name).ok(),
        }
    }

    /// Returns all variables: the process's, with the configuration's over them.
    pub fn all(&self) -> Object {
        let mut all: Object = std::env::vars().map(|(key, value)| (key, json!(value))).collect();
        all.extend((*self.0).clone());
        all
    }
}

/// Reads the variables of `.env` in `directory` and of the named files. The process's own go before those of `.env`.
pub fn read(directory: &Path, files: &[PathBuf], findings: &mut Findings) -> Object {
    let mut vars = Object::new();
    if let Ok(text) = std::fs::read_to_string(directory.join(".env")) {
        parse(&text, &mut vars);
    }
    for file in files {
        match std::fs::read_to_string(directory.join(file)) {
            Ok(text) => parse(&text, &mut vars),
            Err(error) => {
                findings.add(Severity::Error, None, format!("failed to read `{}`: {error}", file.display()));
            }
        }
    }
    vars.retain(|key, _| std::env::var_os(key).is_none());
    vars
}

fn parse(text: &str, vars: &mut Object) {
    for line in text.lines() {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line);
        let Some((key, value)) = line.split_once('=') else { continue };
        if line.starts_with('#') {
            continue;
        }
        let value = value.trim();
        let value = match value.chars().next() {
            Some(quote @ ('"' | '\'' | '`')) => {
                let inner = &value[1..];
                let inner = inner.find(quote).map_or(inner, |end| &inner[..end]);
                if quote == '"' { inner.replace("\\n", "\n") } else { inner.to_owned() }
            }
            _ => value.split(" #").next().unwrap_or_default().trim().to_owned(),
        };
        vars.insert(key.trim().to_owned(), json!(value));
    }
}

/// Returns what templates see as `env`.
pub fn for_templates(config: &Object) -> Object {
    let hidden = ["PROMPTFOO_DISABLE_TEMPLATE_ENV_VARS", "PROMPTFOO_SELF_HOSTED"];
    let mut env: Object = if hidden.iter().any(|name| is_on(name)) {
        Object::new()
    } else {
        std::env::vars().map(|(key, value)| (key, Value::String(value))).collect()
    };
    env.extend(config.clone());
    env
}

/// Whether a switch of the environment is on.
pub fn is_on(name: &str) -> bool {
    std::env::var(name)
        .is_ok_and(|value| matches!(value.to_lowercase().as_str(), "1" | "true" | "yes" | "yup" | "yeppers"))
}

/// Whether a switch of the environment is off.
pub fn is_off(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| matches!(value.to_lowercase().as_str(), "0" | "false" | "no"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_variables_are_read() {
        let mut vars = Object::new();
        parse("# no\nA=1\nexport B=\"x y\\n\" # c\nC='q' \nD=a b # c\n", &mut vars);
        assert_eq!(Value::Object(vars), json!({"A": "1", "B": "x y\n", "C": "q", "D": "a b"}));
    }
}
