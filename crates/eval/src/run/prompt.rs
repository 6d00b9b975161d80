//! The user's code that makes variables and prompts.

use std::time::Duration;

use serde_json::{Value, json};

use super::Run;
use super::error::RowError;
use super::expand::{Plan, is_code};
use crate::config::prompts::Source;
use crate::model::{Object, Row};
use crate::script::{EntryPoint, Language, ScriptCall, command};
use crate::template::value::to_text;

/// The time limit of a program that prints a prompt.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Returns the variables of a row, with those that are scripts called.
pub async fn call_vars(run: &Run, plan: &Plan, row: &Row) -> Result<Object, RowError> {
    let mut vars = plan.vars().clone();
    for (name, value) in plan.vars() {
        let Value::String(reference) = value else { continue };
        if !reference.starts_with("file://") || !is_code(reference) {
            continue;
        }
        let mut arguments = vec![json!(name), json!(row.prompt.raw), json!(plan.vars())];
        if Language::of_file(reference) == Language::JavaScript {
            arguments.push(json!({"$provider": row.provider}));
        }
        let invoked = run.workers.invoke(reference, &["get_var"], arguments).await;
        match invoked.map_err(|error| RowError::Variable { name: name.clone(), error })? {
            Value::Object(mut map) if map.contains_key("output") => {
                vars.insert(name.clone(), map.shift_remove("output").unwrap_or_default());
            }
            Value::Object(map) if map.contains_key("error") => {
                return Err(RowError::VariableRefused { name: name.clone(), error: to_text(&map["error"]) });
            }
            _ => return Err(RowError::VariableShape(name.clone())),
        }
    }
    Ok(vars)
}

/// Returns the prompt before rendering, and the configuration that its function gave.
pub async fn text(run: &Run, plan: &Plan, vars: &Object) -> Result<(String, Object), RowError> {
    let column = run.columns[plan.prompt_idx];
    let text = &run.prompts[column.prompt];
    let spec = &run.providers[column.provider].0;
    let context = || json!({"vars": vars, "provider": {"id": spec.id, "label": spec.label.as_deref().unwrap_or_default()}, "config": text.config.clone().unwrap_or_default()});
    let affix = |key: &str| plan.case().options.get(key).and_then(Value::as_str).unwrap_or_default();
    match &text.source {
        Source::Text => Ok((format!("{}{}{}", affix("prefix"), text.raw, affix("suffix")), Object::new())),
        Source::Command(command) => printed(run, command, context()).await,
        Source::Script { path, name } => {
            let language = Language::of_file(&path.to_string_lossy());
            if language == Language::Python && name.is_none() {
                let interpreter = run.workers.env().get("PROMPTFOO_PYTHON");
                let interpreter = interpreter.unwrap_or_else(|| "python3".to_owned());
                let command = [interpreter, path.to_string_lossy().into_owned()];
                return printed(run, &command, context()).await;
            }
            let entry =
                EntryPoint::Function { path: path.clone(), name: name.clone(), default: &["default"] };
            let reply = run.workers.call(ScriptCall::new(language, entry, vec![context()])).await;
            let value = reply.map_err(RowError::PromptFunction)?.value;
            Ok(match value {
                Value::Object(mut map) if map.contains_key("prompt") => {
                    let config = map.get("config").and_then(Value::as_object).cloned().unwrap_or_default();
                    (as_text(map.shift_remove("prompt").unwrap_or_default()), config)
                }
                other => (as_text(other), Object::new()),
            })
        }
    }
}

/// The prompt that a program prints, which gets the context as its last argument.
async fn printed(run: &Run, command: &[String], context: Value) -> Result<(String, Object), RowError> {
    let (base, env) = (run.workers.base(), run.workers.env());
    let printed = command::run(command, &[context.to_string()], base, env, TIME_LIMIT).await;
    Ok((printed?, Object::new()))
}

fn as_text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}
