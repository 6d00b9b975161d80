//! Transforms: code that changes variables or outputs.

use serde_json::Value;

use super::inline::{as_lines, inline_body, lacks_a_name, needs_node, returns_itself};
use super::{EntryPoint, Language, ScriptCall, ScriptError, Workers};
use crate::javascript;

/// Applies a transform to a value. `first` is what inline code calls the value: `output`, or `vars`.
///
/// # Errors
/// When the code fails or gives nothing.
pub async fn apply(
    transform: &Value,
    value: Value,
    context: Value,
    first: &'static str,
    workers: &Workers,
) -> Result<Value, ScriptError> {
    let Value::String(code) = transform else { return Err(ScriptError::NotATransform) };
    let in_node = async |value, context| {
        let parameters: &[&str] = if first == "vars" { &["vars", "context"] } else { &["output", "context"] };
        let entry = EntryPoint::Inline { code: as_lines(&body(code)), parameters };
        workers.call(ScriptCall::new(Language::JavaScript, entry, vec![value, context])).await
    };
    let result = if code.starts_with("file://") {
        workers.invoke(code, &["get_transform"], vec![value, context]).await?
    } else if needs_node(code) {
        in_node(value, context).await?.value
    } else {
        let env = if code.contains("process") { Value::Object(workers.env().all()) } else { Value::Null };
        let body = body(code);
        // The variables are also there by name, as the tutorials use them.
        let function = match first {
            "vars" => format!("function (vars, context, env) {{ const process = {{ env }};{body}\n}}"),
            _ => format!(
                "function ({first}, context, env) {{ const process = {{ env }}, vars = context?.vars; \
                 return (function () {{ {body}\n}})() }}"
            ),
        };
        let arguments = vec![value.clone(), context.clone(), env];
        let called = tokio::task::spawn_blocking(move || javascript::call(&function, &arguments)).await;
        match called.map_err(|_| ScriptError::EngineStopped)? {
            Err(error) if lacks_a_name(&error) => in_node(value, context).await.map_err(|_| error)?.value,
            result => result?,
        }
    };
    if result.is_null() {
        return Err(ScriptError::NoValue(code.clone()));
    }
    Ok(result)
}

/// Returns the body of a function that inline code of a transform is. A block of one line may say `return`.
fn body(code: &str) -> String {
    if returns_itself(code) || code.trim_start().starts_with("return\n") {
        code.to_owned()
    } else if is_object(code) {
        format!("return (\n{code}\n)")
    } else {
        inline_body(code)
    }
}

/// Whether code of several lines is an object, and not a block: `{ code: output }`.
fn is_object(code: &str) -> bool {
    let code = code.trim();
    let key = code.strip_prefix('{').map(str::trim_start).unwrap_or_default();
    let after = key.trim_start_matches(|c: char| c.is_alphanumeric() || "_$'\"".contains(c)).trim_start();
    code.ends_with('}') && key.len() > after.len() && after.starts_with([':', ',', '}'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_no_blocks() {
        for code in ["{\n  code: output,\n  n: 1\n}", "{ output, vars }", "{'a': 1}"] {
            assert!(is_object(code), "{code}");
        }
        for code in ["{\n  const x = 1\n  return x\n}", "{}", "output", "{ return output }"] {
            assert!(!is_object(code), "{code}");
        }
    }
}
