//! Transforms: code that changes variables or outputs.

use std::time::Duration;

use serde_json::Value;

use crate::assertion::script::{inline_body, needs_node};
use crate::config::files;
use crate::javascript;
use crate::services::Services;
use crate::worker::{Entry, Language, ScriptCall};

/// Applies a transform to a value. `first` is what inline code calls the value: `output`, or `vars`.
///
/// # Errors
/// When the code fails or gives nothing.
pub async fn apply(
    transform: &Value,
    value: Value,
    context: Value,
    first: &'static str,
    services: &Services,
) -> Result<Value, String> {
    let Value::String(code) = transform else {
        return Err("a transform must be code or a `file://` path".to_owned());
    };
    let result = if code.starts_with("file://") {
        let (path, name) = files::split_name(code);
        let python = files::extension(code) == "py";
        let language = if python { Language::Python } else { Language::JavaScript };
        let default: &[&str] = if python { &["get_transform"] } else { &["default"] };
        let entry =
            Entry::Function { path: services.base.join(path), name: name.map(str::to_owned), default };
        worker(language, entry, value, context, services).await?
    } else if needs_node(code) {
        let parameters: &[&str] = if first == "vars" { &["vars", "context"] } else { &["output", "context"] };
        let entry = Entry::Inline { code: code.clone(), parameters };
        worker(Language::JavaScript, entry, value, context, services).await?
    } else {
        let env =
            if code.contains("process") { crate::assertion::process_env(services) } else { Value::Null };
        // A block of one line may say `return`; the variables are also there by name, as the tutorials use them.
        let says_return =
            code.trim_start().strip_prefix("return").is_some_and(|rest| rest.starts_with([' ', '(', '\n']));
        let body = if says_return { code.clone() } else { inline_body(code) };
        let function = match first {
            "vars" => format!("function (vars, context, env) {{ const process = {{ env }};{body}\n}}"),
            _ => format!(
                "function ({first}, context, env) {{ const process = {{ env }}, vars = context?.vars; \
                 return (function () {{ {body}\n}})() }}"
            ),
        };
        let arguments = vec![value, context, env];
        tokio::task::spawn_blocking(move || javascript::call(&function, &arguments))
            .await
            .map_err(|_| "the JavaScript engine stopped".to_owned())?
            .map_err(|error| error.to_string())?
    };
    if result.is_null() {
        return Err(format!("the transform gave nothing:\n{code}"));
    }
    Ok(result)
}

async fn worker(
    language: Language,
    entry: Entry,
    value: Value,
    context: Value,
    services: &Services,
) -> Result<Value, String> {
    let call = ScriptCall {
        language,
        entry,
        arguments: vec![value, context],
        time_limit: Duration::from_secs(60),
        interpreter: None,
        isolated: false,
    };
    services.workers.call(call).await.map(|reply| reply.value).map_err(|error| error.to_string())
}
