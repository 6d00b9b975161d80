//! Expanding tests into rows: files of variables, matrices of values, repetitions, and columns.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use base64::Engine;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::error::RowError;
use super::{RunError, asks_for_traces, compare};
use crate::calling::spec::{self, ProviderSpec};
use crate::config::prompts::{self, Prompt};
use crate::config::test_cases;
use crate::model::{Column, Object, TestCase};
use crate::reading::files;
use crate::reading::node::Node;
use crate::script::Workers;

/// A provider with a prompt, by their indices in the suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnPlan {
    /// The index of the provider.
    pub provider: usize,
    /// The index of the prompt.
    pub prompt: usize,
}

/// A map as JSON, which is parsed when a row needs it: there may be very many, and a map takes ten times the memory of its text.
#[derive(Debug)]
pub struct Packed {
    text: Box<str>,
    map: OnceLock<Arc<Object>>,
}

impl Packed {
    fn of(map: &Object) -> Self {
        Self { text: serde_json::to_string(map).unwrap_or_default().into(), map: OnceLock::new() }
    }

    fn map(&self) -> &Arc<Object> {
        self.map.get_or_init(|| {
            let mut text = serde_json::Deserializer::from_str(&self.text);
            // It was written above, and is as deep as a configuration may be.
            text.disable_recursion_limit();
            Arc::new(Object::deserialize(&mut text).unwrap_or_default())
        })
    }
}

/// A merged test, parsed when its first row begins and shared by all its rows.
#[derive(Debug)]
pub struct SharedTest {
    raw: Packed,
    parsed: OnceLock<TestCase>,
    /// Whether its rows are compared with each other.
    pub is_compared: bool,
    /// Whether it asks for traces.
    pub is_traced: bool,
    /// Whether its rows run one at a time, before all others.
    pub is_serial: bool,
    /// Whether its variables are made anew for each run.
    has_made_vars: bool,
}

impl SharedTest {
    /// Takes a merged test.
    pub fn new(raw: &Object) -> Self {
        Self {
            is_compared: compare::is_asked(raw),
            is_traced: raw.get("metadata").is_some_and(asks_for_traces),
            is_serial: test_cases::option(raw, "runSerially") == Some(&Value::Bool(true)),
            has_made_vars: test_cases::option(raw, "transformVars").is_some(),
            raw: Packed::of(raw),
            parsed: OnceLock::new(),
        }
    }

    /// Returns the test as it was written.
    pub fn raw(&self) -> &Object {
        self.raw.map()
    }

    /// Returns the parsed test.
    pub fn case(&self) -> &TestCase {
        self.parsed.get_or_init(|| test_cases::parse(Arc::clone(self.raw.map())))
    }
}

/// One row to be run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The test.
    pub test: Arc<SharedTest>,
    vars: Arc<Packed>,
    /// The number of the test after expansion and repetition.
    pub test_idx: usize,
    /// The column.
    pub prompt_idx: usize,
    /// The number of the repetition.
    pub repeat: usize,
    /// The reason why `transformVars` of the test failed.
    pub failed: Option<Arc<RowError>>,
}

/// The variables of a test after its `transformVars`, or the reason why it failed; nothing for a test without one.
pub type ChangedVars = Option<Result<Object, RowError>>;

impl Plan {
    /// Returns the plan with another test, whose variables are its row's.
    pub fn of(self, test: &Object) -> Self {
        let vars = test
            .get("vars")
            .and_then(Value::as_object)
            .map_or_else(|| Packed::of(&Object::new()), Packed::of);
        Self { test: Arc::new(SharedTest::new(test)), vars: Arc::new(vars), ..self }
    }

    /// Returns the variables, after expansion.
    pub fn vars(&self) -> &Object {
        self.vars.map()
    }

    /// Returns the parsed test.
    pub fn case(&self) -> &TestCase {
        self.test.case()
    }
}

/// Returns the columns: all prompts of the first provider, then of the second.
pub fn columns(providers: &[ProviderSpec], all: &[Prompt]) -> Vec<ColumnPlan> {
    let mut columns = Vec::new();
    for (provider, spec) in providers.iter().enumerate() {
        for (prompt, text) in all.iter().enumerate() {
            let named = |list: &Vec<String>| list.iter().any(|entry| prompts::is_meant(text, entry));
            if spec.prompts.as_ref().is_none_or(named) {
                columns.push(ColumnPlan { provider, prompt });
            }
        }
    }
    columns
}

/// Returns all rows, by test, then by column. `changed` has the variables of the tests that change them.
///
/// # Errors
/// When a test names a provider or prompt that does not exist, or a file of variables cannot be read.
pub fn rows(
    tests: Vec<Object>,
    changed: Vec<ChangedVars>,
    columns: &[ColumnPlan],
    providers: &[ProviderSpec],
    all: &[Prompt],
    repeat: usize,
    workers: &Workers,
) -> Result<Vec<Plan>, RunError> {
    let base = workers.base();
    let all_whole = workers.env().is_on("PROMPTFOO_DISABLE_VAR_EXPANSION");
    let mut rows = Vec::new();
    let mut test_idx = 0;
    for (number, (test, changed)) in tests.into_iter().zip(changed).enumerate() {
        let named = |key: &str| entries(test.get(key));
        for name in named("providers") {
            if !providers.iter().any(|provider| spec::is_meant(provider, &name)) {
                return Err(RunError::UnknownProvider { test: number + 1, name });
            }
        }
        for name in named("prompts") {
            if !all.iter().any(|prompt| prompts::is_meant(prompt, &name)) {
                return Err(RunError::UnknownPrompt { test: number + 1, name });
            }
        }
        let (wanted_providers, wanted_prompts) = (named("providers"), named("prompts"));
        let wanted = |column: &ColumnPlan| {
            (wanted_providers.is_empty()
                || wanted_providers.iter().any(|entry| spec::is_meant(&providers[column.provider], entry)))
                && (wanted_prompts.is_empty()
                    || wanted_prompts.iter().any(|entry| prompts::is_meant(&all[column.prompt], entry)))
        };
        let whole = test_cases::option(&test, "disableVarExpansion") == Some(&json!(true)) || all_whole;
        let own = || test.get("vars").and_then(Value::as_object).cloned().unwrap_or_default();
        let (vars, failed) = match changed {
            None => (own(), None),
            Some(Ok(vars)) => (vars, None),
            Some(Err(error)) => (own(), Some(Arc::new(error))),
        };
        let vars = load_vars(&vars, base, whole)?;
        let combinations: Vec<Arc<Packed>> = if whole {
            vec![Arc::new(Packed::of(&vars))]
        } else {
            let too_many = RunError::TooManyRows { test: number + 1, max: MAX_COMBINATIONS };
            combinations(&vars).ok_or(too_many)?.map(|vars| Arc::new(Packed::of(&vars))).collect()
        };
        let repeat =
            test_cases::option(&test, "repeat").and_then(Value::as_u64).map_or(repeat, |n| n as usize).max(1);
        let test = Arc::new(SharedTest::new(&test));
        for repeat in 0..repeat {
            for vars in &combinations {
                for (prompt_idx, _) in columns.iter().enumerate().filter(|(_, column)| wanted(column)) {
                    let (test, vars, failed) = (Arc::clone(&test), Arc::clone(vars), Option::clone(&failed));
                    rows.push(Plan { test, vars, test_idx, prompt_idx, repeat, failed });
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

/// Maximum number of combinations of the variables of a test; more are a mistake, and would not fit into memory.
const MAX_COMBINATIONS: usize = 1_000_000;

/// Every combination of the variables that are lists of text; the last variable changes fastest. `None` for more than the maximum.
fn combinations(vars: &Object) -> Option<impl Iterator<Item = Object>> {
    let choices: Vec<(&String, &[Value])> = vars
        .iter()
        .map(|(name, value)| match value {
            Value::Array(items) if items.first().is_some_and(Value::is_string) => (name, &items[..]),
            _ => (name, std::slice::from_ref(value)),
        })
        .collect();
    let count = choices.iter().try_fold(1_usize, |count, (_, choices)| count.checked_mul(choices.len()))?;
    let nth = move |number: usize| {
        let mut step = count;
        let choose = |(name, choices): &(&String, &[Value])| {
            step /= choices.len();
            ((*name).clone(), choices[number / step % choices.len()].clone())
        };
        choices.iter().map(choose).collect()
    };
    (count <= MAX_COMBINATIONS).then(|| (0..count).map(nth))
}

/// Reads variables that are `file://` paths, and such entries of the lists that multiply a test; code is left for the row.
fn load_vars(vars: &Object, base: &Path, whole: bool) -> Result<Object, RunError> {
    let mut loaded = Object::with_capacity(vars.len());
    for (name, value) in vars {
        let value = match value {
            Value::String(text) => load_text(name, text, base)?,
            Value::Array(items) if !whole && items.first().is_some_and(Value::is_string) => {
                let mut all = Vec::new();
                for item in items {
                    match item.as_str().map(|text| load_text(name, text, base)).transpose()? {
                        Some(Value::Array(files)) => all.extend(files),
                        Some(one) => all.push(one),
                        None => all.push(item.clone()),
                    }
                }
                Value::Array(all)
            }
            other => other.clone(),
        };
        loaded.insert(name.clone(), value);
    }
    Ok(loaded)
}

/// The text itself, or that of the file it names; a list for a glob.
fn load_text(name: &str, text: &str, base: &Path) -> Result<Value, RunError> {
    if !text.starts_with("file://") || is_code(text) {
        return Ok(json!(text));
    }
    let path = files::resolve(base, text);
    if path.is_file() || !files::is_glob(text) {
        return Ok(json!(load(name, &path)?));
    }
    let found = files::expand(&path.to_string_lossy());
    if found.is_empty() {
        return Err(RunError::NoFiles { pattern: text.to_owned(), name: name.to_owned() });
    }
    let texts = found.iter().map(|path| load(name, path)).collect::<Result<Vec<_>, _>>();
    Ok(json!(texts?))
}

/// Extensions of files with sound, whose content is a variable in base64.
const AUDIO: [&str; 11] = ["mp3", "wav", "ogg", "m4a", "aac", "flac", "wma", "aiff", "aif", "aifc", "opus"];
/// Extensions of films, likewise.
const VIDEO: [&str; 12] =
    ["mp4", "webm", "mov", "avi", "wmv", "mkv", "m4v", "mpeg", "mpg", "flv", "3gp", "3gpp"];

/// Whether a `file://` value is a script.
pub fn is_code(reference: &str) -> bool {
    let extension = files::extension(reference);
    extension == "py" || files::is_javascript(&extension)
}

/// The content of a file as the value of the variable `name`.
fn load(name: &str, path: &Path) -> Result<String, RunError> {
    let read = |error| RunError::ReadVariable { name: name.to_owned(), path: path.to_owned(), error };
    let extension = files::extension(&path.to_string_lossy());
    let media: BTreeMap<&str, &str> = BTreeMap::from([
        ("png", "image/png"),
        ("jpg", "image/jpeg"),
        ("jpeg", "image/jpeg"),
        ("gif", "image/gif"),
        ("webp", "image/webp"),
        ("bmp", "image/bmp"),
        ("tif", "image/tiff"),
        ("tiff", "image/tiff"),
        ("avif", "image/avif"),
        ("heic", "image/heic"),
        ("heif", "image/heif"),
        ("svg", "image/svg+xml"),
    ]);
    if let Some(kind) = media.get(extension.as_str()) {
        let bytes = std::fs::read(path).map_err(read)?;
        return Ok(format!("data:{kind};base64,{}", base64::engine::general_purpose::STANDARD.encode(bytes)));
    }
    if AUDIO.contains(&extension.as_str()) || VIDEO.contains(&extension.as_str()) {
        let bytes = std::fs::read(path).map_err(read)?;
        return Ok(base64::engine::general_purpose::STANDARD.encode(bytes));
    }
    let text = std::fs::read_to_string(path).map_err(read)?;
    match extension.as_str() {
        "yaml" | "yml" => {
            let parsed = |error| RunError::ParseVariable { name: name.to_owned(), error };
            let node = Node::parse(&text, &path.into()).map_err(parsed)?;
            Ok(node.to_value().to_string())
        }
        _ => Ok(text.trim_start_matches('\u{feff}').trim().to_owned()),
    }
}

/// Identifies the rows of a run: two runs with the same fingerprint have the same rows.
pub fn fingerprint(columns: &[Column], plans: &[Plan]) -> String {
    let mut digest = Sha256::new();
    for column in columns {
        digest.update(json!([column.id, column.provider]).to_string());
    }
    for plan in plans {
        // Variables that are made anew for each run, such as identifiers, are the same row's.
        let vars = if plan.test.has_made_vars { "null" } else { &plan.vars.text };
        digest.update(format!("[{},{},{},{vars}]", plan.test_idx, plan.prompt_idx, plan.repeat));
        // The text of a test is the same for all its rows, so it is added once.
        if plan.prompt_idx == 0 {
            digest.update(plan.test.raw.text.as_bytes());
        }
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_text_multiply() {
        let vars = json!({"a": ["x", "y"], "n": [1, 2], "b": ["1", "2"]});
        let all: Vec<Object> = combinations(vars.as_object().unwrap()).unwrap().collect();
        let shown: Vec<String> = all.iter().map(|map| format!("{}{}", map["a"], map["b"])).collect();
        assert_eq!(shown, ["\"x\"\"1\"", "\"x\"\"2\"", "\"y\"\"1\"", "\"y\"\"2\""]);
        assert_eq!(all[0]["n"], json!([1, 2]));
        assert_eq!(combinations(&Object::new()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_packed_comes_back_as_it_was() {
        let mut deep = json!({"z": 0.1, "a": 1e300, "b": "\u{0}\u{1f600}", "n": 9_007_199_254_740_993_u64});
        for _ in 0..199 {
            deep = json!({"in": deep});
        }
        let map = deep.as_object().unwrap();
        let packed = Packed::of(map);
        assert_eq!(**packed.map(), *map);
        assert_eq!(serde_json::to_string(&**packed.map()).unwrap(), *packed.text);
    }

    #[test]
    fn lists_with_too_many_combinations_are_refused() {
        let lists = |count: usize| -> Object {
            (0..count).map(|name| (name.to_string(), json!(["a", "b", "c", "d"]))).collect()
        };
        assert!(combinations(&lists(9)).is_some());
        assert!(combinations(&lists(10)).is_none());
        assert!(combinations(&lists(64)).is_none());
    }

    #[test]
    fn entries_of_lists_may_be_files() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a.txt"), "from a\n").unwrap();
        let vars = json!({"d": ["file://a.txt", "inline", "file://code.py"]});
        let vars = vars.as_object().unwrap();
        let loaded = load_vars(vars, directory.path(), false).unwrap();
        assert_eq!(loaded["d"], json!(["from a", "inline", "file://code.py"]));
        assert_eq!(load_vars(vars, directory.path(), true).unwrap(), *vars);
    }

    #[test]
    fn pictures_sound_and_films_are_base64() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a.bmp", "a.TIFF", "a.flac", "a.mov"] {
            std::fs::write(directory.path().join(name), b"\xff\xfe").unwrap();
        }
        let vars =
            json!({"a": "file://a.bmp", "b": "file://a.TIFF", "c": "file://a.flac", "d": "file://a.mov"});
        let loaded = load_vars(vars.as_object().unwrap(), directory.path(), false).unwrap();
        let picture = |kind| format!("data:image/{kind};base64,//4=");
        assert_eq!(
            json!(loaded),
            json!({"a": picture("bmp"), "b": picture("tiff"), "c": "//4=", "d": "//4="})
        );
    }
}
