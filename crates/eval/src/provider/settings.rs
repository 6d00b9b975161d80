//! Settings of providers that are in files: data, and tools that a function returns.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use crate::calling::CallError;
use crate::model::Object;
use crate::reading::files;
use crate::reading::references::{self, ReferenceError};
use crate::script::{EntryPoint, Language, ScriptCall, Workers};

/// Settings whose values a function may return.
const SCRIPTED: &[&str] = &["tools", "functions", "response_format"];

/// The functions of Python files that are called where none is named.
const FUNCTIONS: &[&str] = &["get_tools", "get_functions", "get_response_format"];

/// The files and functions that the settings of one provider name.
#[derive(Debug)]
pub struct Settings {
    workers: Arc<Workers>,
    base: PathBuf,
    /// Values that functions returned. Each is called once in a run.
    returned: Mutex<HashMap<String, Value>>,
}

impl Settings {
    /// Settings whose files are relative to `base`, and whose functions `workers` run.
    pub fn new(workers: Arc<Workers>, base: &Path) -> Self {
        Self { workers, base: base.to_owned(), returned: Mutex::default() }
    }

    /// Returns the settings with files and functions replaced by what they hold; nothing if there are none.
    pub async fn load(&self, config: &Object) -> Result<Option<Object>, CallError> {
        if !config.values().any(names_a_file) && !has_lists_of_lists(config) {
            return Ok(None);
        }
        let mut config = data(config, &self.base)?.unwrap_or_else(|| config.clone());
        for name in SCRIPTED {
            if let Some(value) = config.get_mut(*name) {
                self.call_functions(name, value).await?;
            }
        }
        Ok(Some(config))
    }

    /// Replaces a function of the setting `name` by what it returns. The lists that the functions and files of a list hold become one.
    async fn call_functions(&self, name: &str, value: &mut Value) -> Result<(), CallError> {
        match value {
            Value::String(text) if is_function(text) => *value = self.returned_by(name, text).await?,
            Value::Array(items) => {
                let mut all = Vec::new();
                for item in std::mem::take(items) {
                    let item = match item.as_str().filter(|text| is_function(text)) {
                        Some(text) => self.returned_by(name, text).await?,
                        None => item,
                    };
                    match item {
                        Value::Array(more) => all.extend(more),
                        one => all.push(one),
                    }
                }
                *items = all;
            }
            _ => {}
        }
        Ok(())
    }

    async fn returned_by(&self, name: &str, reference: &str) -> Result<Value, CallError> {
        let failed = |reason| CallError::Setting { name: name.to_owned(), reason };
        let known = || self.returned.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = known().get(reference) {
            return Ok(value.clone());
        }
        let language = Language::of_file(reference);
        let entry = EntryPoint::function(&self.base, reference, language, FUNCTIONS);
        let reply = self.workers.call(ScriptCall::new(language, entry, Vec::new())).await;
        let value = reply.map_err(|error| failed(error.to_string()))?.value;
        if !value.is_array() && !value.is_object() {
            return Err(failed(format!("`{reference}` must return a list or an object, not {value}")));
        }
        known().insert(reference.to_owned(), value.clone());
        Ok(value)
    }
}

/// Returns settings with the files of data replaced by what they hold, relative to `base`; nothing if there are none.
///
/// # Errors
/// When a file cannot be read or parsed.
pub fn data(config: &Object, base: &Path) -> Result<Option<Object>, CallError> {
    if !config.values().any(names_a_file) {
        return Ok(None);
    }
    let mut config = config.clone();
    for (name, value) in config.iter_mut().filter(|(name, _)| *name != references::SENT) {
        let failed =
            |error: ReferenceError| CallError::Setting { name: name.clone(), reason: error.to_string() };
        references::resolve(value, base).map_err(failed)?;
    }
    Ok(Some(config))
}

/// Returns the files of functions in settings that may have some.
pub fn functions<'a>(config: &'a Object, base: &'a Path) -> impl Iterator<Item = PathBuf> + 'a {
    let values = SCRIPTED.iter().filter_map(|name| config.get(*name));
    let texts = values.flat_map(|value| match value {
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect(),
        other => other.as_str().into_iter().collect::<Vec<_>>(),
    });
    texts
        .filter(|text| is_function(text) && !text.contains("{{"))
        .map(|text| files::resolve(base, files::split_name(text).0))
}

fn is_function(text: &str) -> bool {
    let extension = files::extension(text);
    text.starts_with("file://") && (extension == "py" || files::is_javascript(&extension))
}

/// Whether the files of a list were read before, and held lists.
fn has_lists_of_lists(config: &Object) -> bool {
    let lists = SCRIPTED.iter().filter_map(|name| config.get(*name)?.as_array());
    lists.flatten().any(Value::is_array)
}

fn names_a_file(value: &Value) -> bool {
    match value {
        Value::String(text) => text.starts_with("file://"),
        Value::Array(items) => items.iter().any(names_a_file),
        Value::Object(map) => map.values().any(names_a_file),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::reading::Env;

    #[tokio::test]
    async fn functions_return_settings_once() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        write(
            "tools.py",
            "calls = 0\ndef get_tools():\n    global calls\n    calls += 1\n    return [{'name': f'call {calls}'}]\n",
        );
        write("more.json", r#"{"name": "from a file"}"#);
        let workers = Arc::new(Workers::new(directory.path().to_owned(), Env::default(), 1));
        let settings = Settings::new(workers, directory.path());
        let config = json!({
            "tools": ["file://tools.py", "file://more.json", {"name": "own"}, [{"name": "read before"}]],
            "functions": "file://tools.py:get_tools", "transform": "file://code.js", "n": 1,
        });
        let config = config.as_object().unwrap();
        let expected = json!({
            "tools": [{"name": "call 1"}, {"name": "from a file"}, {"name": "own"}, {"name": "read before"}],
            "functions": [{"name": "call 2"}], "transform": "file://code.js", "n": 1,
        });
        for _ in 0..2 {
            assert_eq!(Value::Object(settings.load(config).await.unwrap().unwrap()), expected);
        }
        assert_eq!(settings.load(json!({"n": 1}).as_object().unwrap()).await, Ok(None));
        let wrong = json!({"tools": "file://none.py"});
        assert!(settings.load(wrong.as_object().unwrap()).await.is_err());
        let named: Vec<PathBuf> = functions(config, Path::new("/base")).collect();
        assert_eq!(named, [PathBuf::from("/base/tools.py"), PathBuf::from("/base/tools.py")]);
    }
}
