//! From tests to rows: files of variables, matrices of values, repetitions, and who answers what.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use serde_json::{Value, json};

use crate::config::files;
use crate::config::prompts::{self, Prompt};
use crate::config::tests as suite_tests;
use crate::model::{Object, TestCase};
use crate::provider::spec::{self, ProviderSpec};

/// A provider with a prompt, by their places in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnPlan {
    /// Which provider.
    pub provider: usize,
    /// Which prompt.
    pub prompt: usize,
}

/// One row to be run. There may be very many, so that a test is read only when its row begins.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The test, as [`suite_tests::parse`] reads it.
    pub test: Arc<Object>,
    /// Its variables, after expansion.
    pub vars: Arc<Object>,
    /// Counts tests after expansion and repetition.
    pub test_idx: usize,
    /// The column.
    pub prompt_idx: usize,
    /// Which repetition.
    pub repeat: usize,
}

impl Plan {
    /// For the row itself.
    pub fn read(&self) -> RowPlan {
        RowPlan {
            test: suite_tests::parse((*self.test).clone()),
            vars: Arc::clone(&self.vars),
            test_idx: self.test_idx,
            prompt_idx: self.prompt_idx,
            repeat: self.repeat,
        }
    }
}

/// One row that is being run.
#[derive(Debug, Clone)]
pub struct RowPlan {
    /// The test.
    pub test: TestCase,
    /// Its variables, after expansion.
    pub vars: Arc<Object>,
    /// Counts tests after expansion and repetition.
    pub test_idx: usize,
    /// The column.
    pub prompt_idx: usize,
    /// Which repetition.
    pub repeat: usize,
}

/// The columns: all prompts of the first provider, then of the second.
pub fn columns(providers: &[ProviderSpec], all: &[Prompt]) -> Vec<ColumnPlan> {
    let mut columns = Vec::new();
    for (provider, spec) in providers.iter().enumerate() {
        for (prompt, text) in all.iter().enumerate() {
            if spec.prompts.is_empty() || spec.prompts.iter().any(|entry| prompts::is_meant(text, entry)) {
                columns.push(ColumnPlan { provider, prompt });
            }
        }
    }
    columns
}

/// All rows, by test, then by column.
///
/// # Errors
/// When a test names a provider or prompt that does not exist, or a file of variables cannot be read.
pub fn rows(
    tests: Vec<Object>,
    columns: &[ColumnPlan],
    providers: &[ProviderSpec],
    all: &[Prompt],
    repeat: usize,
    base: &Path,
) -> Result<Vec<Plan>, String> {
    let mut rows = Vec::new();
    let mut test_idx = 0;
    for (number, test) in tests.into_iter().enumerate() {
        let named = |key: &str| entries(test.get(key));
        for entry in named("providers") {
            if !providers.iter().any(|provider| spec::is_meant(provider, &entry)) {
                return Err(format!(
                    "test {} is for the provider `{entry}`, which does not exist",
                    number + 1
                ));
            }
        }
        for entry in named("prompts") {
            if !all.iter().any(|prompt| prompts::is_meant(prompt, &entry)) {
                return Err(format!("test {} is for the prompt `{entry}`, which does not exist", number + 1));
            }
        }
        let (wanted_providers, wanted_prompts) = (named("providers"), named("prompts"));
        let wanted = |column: &ColumnPlan| {
            (wanted_providers.is_empty()
                || wanted_providers.iter().any(|entry| spec::is_meant(&providers[column.provider], entry)))
                && (wanted_prompts.is_empty()
                    || wanted_prompts.iter().any(|entry| prompts::is_meant(&all[column.prompt], entry)))
        };
        let vars = test
            .get("vars")
            .and_then(Value::as_object)
            .map_or_else(|| Ok(Object::new()), |vars| load_vars(vars, base))?;
        let whole = suite_tests::option(&test, "disableVarExpansion") == Some(&json!(true))
            || crate::config::env::is_on("PROMPTFOO_DISABLE_VAR_EXPANSION");
        let combinations: Vec<Arc<Object>> = if whole {
            vec![Arc::new(vars)]
        } else {
            combinations(&vars).into_iter().map(Arc::new).collect()
        };
        let repeat = suite_tests::option(&test, "repeat")
            .and_then(Value::as_u64)
            .map_or(repeat, |n| n as usize)
            .max(1);
        let test = Arc::new(test);
        for repeat in 0..repeat {
            for vars in &combinations {
                for (prompt_idx, _) in columns.iter().enumerate().filter(|(_, column)| wanted(column)) {
                    let (test, vars) = (Arc::clone(&test), Arc::clone(vars));
                    rows.push(Plan { test, vars, test_idx, prompt_idx, repeat });
                }
                test_idx += 1;
            }
        }
    }
    Ok(rows)
}

fn entries(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

/// Every combination of the variables that are lists of text; the last variable changes fastest.
fn combinations(vars: &Object) -> Vec<Object> {
    let mut all = vec![Object::new()];
    for (name, value) in vars {
        let choices: &[Value] = match value {
            Value::Array(items) if items.first().is_some_and(Value::is_string) => items,
            _ => std::slice::from_ref(value),
        };
        let with = |(map, choice): (&Object, &Value)| {
            let mut map = map.clone();
            map.insert(name.clone(), choice.clone());
            map
        };
        all = all.iter().flat_map(|map| choices.iter().map(move |choice| (map, choice))).map(with).collect();
    }
    all
}

/// Reads variables that are `file://` paths; code is left for the row.
fn load_vars(vars: &Object, base: &Path) -> Result<Object, String> {
    let mut loaded = Object::new();
    for (name, value) in vars {
        let value = match value {
            Value::String(text) if text.starts_with("file://") && !is_code(text) => {
                let path = files::resolve(base, text);
                if path.is_file() || !files::is_glob(text) {
                    json!(
                        load(&path)
                            .map_err(|error| format!("failed to read the variable `{name}`: {error}"))?
                    )
                } else {
                    let found = files::expand(&path.to_string_lossy());
                    if found.is_empty() {
                        return Err(format!("no file matches `{text}`, the variable `{name}`"));
                    }
                    json!(found.iter().map(|path| load(path)).collect::<Result<Vec<_>, _>>()?)
                }
            }
            other => other.clone(),
        };
        loaded.insert(name.clone(), value);
    }
    Ok(loaded)
}

/// Whether a `file://` value is a script.
pub fn is_code(reference: &str) -> bool {
    let extension = files::extension(reference);
    extension == "py" || files::is_javascript(&extension)
}

fn load(path: &Path) -> Result<String, String> {
    let read = |error: std::io::Error| format!("`{}`: {error}", path.display());
    let extension = files::extension(&path.to_string_lossy());
    let media: BTreeMap<&str, &str> = BTreeMap::from([
        ("png", "image/png"),
        ("jpg", "image/jpeg"),
        ("jpeg", "image/jpeg"),
        ("gif", "image/gif"),
        ("webp", "image/webp"),
        ("svg", "image/svg+xml"),
    ]);
    if let Some(kind) = media.get(extension.as_str()) {
        let bytes = std::fs::read(path).map_err(read)?;
        return Ok(format!("data:{kind};base64,{}", base64::engine::general_purpose::STANDARD.encode(bytes)));
    }
    if matches!(extension.as_str(), "mp3" | "wav" | "ogg" | "m4a" | "mp4" | "webm") {
        let bytes = std::fs::read(path).map_err(read)?;
        return Ok(base64::engine::general_purpose::STANDARD.encode(bytes));
    }
    let text = std::fs::read_to_string(path).map_err(read)?;
    match extension.as_str() {
        "yaml" | "yml" | "json" => {
            let node = crate::config::node::Node::parse(&text, &path.into())
                .map_err(|finding| finding.to_string())?;
            Ok(node.to_value().to_string())
        }
        _ => Ok(text.trim().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_text_multiply() {
        let vars = json!({"a": ["x", "y"], "n": [1, 2], "b": ["1", "2"]});
        let all = combinations(vars.as_object().unwrap());
        let shown: Vec<String> = all.iter().map(|map| format!("{}{}", map["a"], map["b"])).collect();
        assert_eq!(shown, ["\"x\"\"1\"", "\"x\"\"2\"", "\"y\"\"1\"", "\"y\"\"2\""]);
        assert_eq!(all[0]["n"], json!([1, 2]));
    }
}
