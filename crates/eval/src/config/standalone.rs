//! Assertions about given outputs: `--assertions` with `--model-outputs`.

use std::path::Path;

use serde_json::{Value, json};

use super::options::LoadOptions;
use super::suite::ConfigError;
use crate::model::Object;
use crate::reading::diagnostic::{Findings, Position, Severity};
use crate::reading::document::{self, ConfigFile};
use crate::reading::node::Node;

/// The keys of a configuration that the options replace.
pub const KEYS: &[&str] = &["prompts", "providers", "targets", "tests", "scenarios"];

/// Makes a configuration that echoes every output and checks it with the assertions.
///
/// # Errors
/// When the files cannot be read; what is wrong inside becomes a finding.
pub fn read(options: &LoadOptions, findings: &mut Findings) -> Result<Option<ConfigFile>, ConfigError> {
    let (assertions, outputs) = match (&options.assertions, &options.model_outputs) {
        (Some(assertions), Some(outputs)) => (assertions, outputs),
        (None, None) => return Ok(None),
        _ => {
            let message = "--assertions and --model-outputs need each other";
            findings.add(Severity::Error, None, message);
            return Err(ConfigError::Invalid);
        }
    };
    let path = options.directory.join(assertions);
    let assertions = document::read(&path, findings)?;
    let outputs_path = options.directory.join(outputs);
    let outputs = document::read(&outputs_path, findings)?;
    let (Some(_), Value::Array(outputs)) = (assertions.items(), outputs.to_value()) else {
        let wrong = if assertions.items().is_none() { &path } else { &outputs_path };
        let message = format!("`{}` must hold a list", wrong.display());
        findings.add(Severity::Error, None, message);
        return Err(ConfigError::Invalid);
    };
    let assertions = assertions.to_value();
    let tests: Vec<Value> =
        outputs.into_iter().map(|output| json!({"vars": vars(output), "assert": assertions})).collect();
    let config = json!({"prompts": ["{{output}}"], "providers": ["echo"], "tests": tests});
    let at = Position { file: Path::new(&path).into(), line: 1, column: 1 };
    Ok(Some(ConfigFile { base: options.directory.clone(), root: Node::of(config, at), path }))
}

/// An output is text, or an object with `output` and perhaps `tags`.
fn vars(output: Value) -> Object {
    let mut vars = Object::new();
    match output {
        Value::Object(mut map) if map.contains_key("output") => {
            vars.insert("output".to_owned(), map.shift_remove("output").unwrap_or_default());
            if let Some(Value::Array(tags)) = map.get("tags") {
                let tags: Vec<String> = tags.iter().map(crate::template::value::to_text).collect();
                vars.insert("tags".to_owned(), json!(tags.join(", ")));
            }
        }
        other => drop(vars.insert("output".to_owned(), other)),
    }
    vars
}
