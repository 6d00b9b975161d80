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

    /// Returns these variables with others over them, such as the `env` of a provider.
    #[must_use]
    pub fn with(&self, over: &Object) -> Self {
        if over.is_empty() {
            return self.clone();
        }
        let mut own = (*self.0).clone();
        own.extend(over.clone());
        Self::new(own)
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

    /// Whether a switch is on: in the configuration, or in the process's environment where that says nothing.
    pub fn is_on(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| means_on(&value))
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

/// Reads a `.env` file as Node's `dotenv` does: quoted values may have several lines, only double quotes know `\n` and `\r`, a quote
/// after a backslash does not end a value, and `$` means nothing.
fn parse(text: &str, vars: &mut Object) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n").replace('\r', "\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let mut read = 0;
        if let Some((name, at)) = assignment(line(rest)) {
            let (value, length) = value(&rest[at..]);
            vars.insert(name.to_owned(), json!(value));
            read = at + length;
        }
        let next = rest[read..].find('\n').map_or(rest.len(), |end| read + end + 1);
        rest = &rest[next..];
    }
}

fn line(text: &str) -> &str {
    text.split('\n').next().unwrap_or_default()
}

/// The name that a line sets, and where its value begins.
fn assignment(line: &str) -> Option<(&str, usize)> {
    let start = line.trim_start();
    let start = match start.strip_prefix("export") {
        Some(after) if after.starts_with(char::is_whitespace) => after.trim_start(),
        _ => start,
    };
    let end = start.find(|c: char| !(c.is_ascii_alphanumeric() || "_.-".contains(c)))?;
    let (name, after) = start.split_at(end);
    let value = after.trim_start().strip_prefix('=').or_else(|| after.strip_prefix(": "))?;
    (!name.is_empty()).then(|| (name, line.len() - value.len()))
}

/// The value at the beginning of a text, and how long it is as written.
fn value(text: &str) -> (String, usize) {
    let blank = text.len() - text.trim_start_matches([' ', '\t']).len();
    let written = &text[blank..];
    if let Some(quote) = written.chars().next().filter(|c| "\"'`".contains(*c))
        && let Some(end) = closing(written, quote)
    {
        let after = line(&written[end + 1..]).trim();
        if after.is_empty() || after.starts_with('#') {
            return (unescaped(&written[1..end], quote), blank + end + 1);
        }
    }
    let line = line(text);
    let plain = line.split('#').next().unwrap_or_default().trim();
    // Quotes around a value go, also when there are more inside.
    let quote =
        plain.chars().next().filter(|c| "\"'`".contains(*c) && plain.len() > 1 && plain.ends_with(*c));
    let value = match quote {
        Some(quote) => unescaped(&plain[1..plain.len() - 1], quote),
        None => plain.to_owned(),
    };
    (value, line.len())
}

/// Where the quote that ends a quoted text stands.
fn closing(text: &str, quote: char) -> Option<usize> {
    let mut found = text.char_indices().skip(1).filter(|(_, c)| *c == quote).map(|(at, _)| at);
    found.find(|at| !text[..*at].ends_with('\\'))
}

fn unescaped(text: &str, quote: char) -> String {
    if quote == '"' { text.replace("\\n", "\n").replace("\\r", "\r") } else { text.to_owned() }
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
    std::env::var(name).is_ok_and(|value| means_on(&value))
}

fn means_on(value: &str) -> bool {
    matches!(value.to_lowercase().as_str(), "1" | "true" | "yes" | "yup" | "yeppers")
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
        let text = "# no\nA=1\nexport B=\"x y\\n\" # c\nC='q' \nD=a b # c\nnot a line\n=x\n\n\
            KEY=\"-----BEGIN\nline # two\n-----END\"\nQUOTED=\"with \\\"quotes\\\" in it\"\n\
            PRICE='$5 \\n' # c\nE=\nF: yes\nG=\"open\nH=`a \"b\" 'c'`\r\nI=x#y\nJ = spaced\nlast.one-x=z";
        let mut vars = Object::new();
        parse(text, &mut vars);
        let expected = json!({
            "A": "1", "B": "x y\n", "C": "q", "D": "a b", "KEY": "-----BEGIN\nline # two\n-----END",
            "QUOTED": "with \\\"quotes\\\" in it", "PRICE": "$5 \\n", "E": "", "F": "yes", "G": "\"open",
            "H": "a \"b\" 'c'", "I": "x", "J": "spaced", "last.one-x": "z",
        });
        assert_eq!(Value::Object(vars), expected);
    }
}
