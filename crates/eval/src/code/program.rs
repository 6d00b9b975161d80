//! The code of cases, and what their output means.

use serde_json::Value;

use super::error::{CodeError, Result};
use super::run::Execution;
use super::settings::{CaseSettings, CodeSettings, as_text};

/// One case: code to run after the answer's, and what is expected of it.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) code: String,
    expected: Expected,
}

#[derive(Debug, Clone)]
enum Expected {
    /// The value after this mark.
    Value { mark: String, value: Value, tolerance: f64 },
    /// The whole text that is printed, without white space around it.
    Stdout(String),
    /// An error of this class.
    Error(String),
    /// No error.
    Anything,
}

/// The cases of an assertion, for a language. Values are found behind `mark`, a word that the answer cannot know.
pub(super) fn cases(settings: &CodeSettings, language: &str, mark: &str) -> Result<Vec<Case>> {
    if !settings.cases.is_empty() {
        return settings
            .cases
            .iter()
            .enumerate()
            .map(|(i, case)| one(settings, case, i, language, mark))
            .collect();
    }
    let expected = match (
        &settings.expected_error,
        settings.expected_stdout.as_ref().or(settings.expected_output.as_ref()),
    ) {
        (Some(error), _) => Expected::Error(error.clone()),
        (None, Some(output)) => Expected::Stdout(as_text(output).trim().to_owned()),
        (None, None) => Expected::Anything,
    };
    let (name, code) = match (&settings.test_code, &settings.test_input) {
        (Some(code), _) => ("the test code".to_owned(), code.clone()),
        (None, Some(input)) => {
            let function = settings
                .function
                .as_deref()
                .ok_or(CodeError::NoFunction { needed_by: "`test_input` needs" })?;
            let call = format!("{function}({})", as_text(input));
            (call.clone(), print(language, &call)?)
        }
        (None, None) => ("the code itself".to_owned(), String::new()),
    };
    Ok(vec![Case { name, code, expected }])
}

fn one(settings: &CodeSettings, case: &CaseSettings, at: usize, language: &str, mark: &str) -> Result<Case> {
    let expected = |value: Option<&Value>| match (&case.expected_error, &case.expected_stdout, value) {
        (Some(error), ..) => Expected::Error(error.clone()),
        (None, Some(stdout), _) => Expected::Stdout(as_text(stdout).trim().to_owned()),
        (None, None, Some(value)) => Expected::Value {
            mark: mark.to_owned(),
            value: value.clone(),
            tolerance: settings.tolerance.unwrap_or(1e-9),
        },
        (None, None, None) => Expected::Anything,
    };
    let title = |default: String| case.name.clone().unwrap_or_else(|| format!("case {} ({default})", at + 1));
    if let Some(code) = &case.code {
        let stdout = case.expected.as_ref().map(|value| Expected::Stdout(as_text(value).trim().to_owned()));
        return Ok(Case {
            name: title("code".to_owned()),
            code: code.clone(),
            expected: stdout.unwrap_or_else(|| expected(None)),
        });
    }
    let call = match (&case.call, &case.args, &case.input) {
        (Some(call), ..) => call.clone(),
        (None, args, input) => {
            let function =
                settings.function.as_deref().ok_or(CodeError::NoFunction { needed_by: "cases need" })?;
            let arguments = args.clone().unwrap_or_else(|| input.iter().cloned().collect());
            arguments_call(language, function, &arguments)?
        }
    };
    let shown = match (&case.call, &case.args, &case.input) {
        (Some(call), ..) => call.clone(),
        (None, Some(args), _) => Value::Array(args.clone()).to_string(),
        (None, None, input) => input.as_ref().map(Value::to_string).unwrap_or_default(),
    };
    let expected = expected(case.expected.as_ref());
    let code = match &expected {
        Expected::Value { .. } => tell(language, &call, mark)?,
        _ if language == "bash" => call,
        _ => print(language, &call)?,
    };
    Ok(Case { name: title(shown), code, expected })
}

/// A call with arguments given as data.
fn arguments_call(language: &str, function: &str, arguments: &[Value]) -> Result<String> {
    // The text of a JSON string is a literal in these languages as well.
    let literal = Value::String(Value::Array(arguments.to_vec()).to_string()).to_string();
    match language {
        "python" => Ok(format!("{function}(*__import__('json').loads({literal}))")),
        "javascript" | "typescript" => Ok(format!("{function}(...JSON.parse({literal}))")),
        "bash" => {
            let words =
                arguments.iter().map(|argument| format!(" '{}'", as_text(argument).replace('\'', r"'\''")));
            Ok(format!("{function}{}", words.collect::<String>()))
        }
        _ => Err(unsupported("cases with data are for Python, JavaScript and Bash", "code", language)),
    }
}

fn print(language: &str, call: &str) -> Result<String> {
    match language {
        "python" => Ok(format!("print({call})")),
        "javascript" | "typescript" => Ok(format!("console.log(await {call})")),
        "bash" => Ok(call.to_owned()),
        "r" => Ok(format!("print({call})")),
        _ => Err(unsupported("calls are for Python, JavaScript, Bash and R", "test_code", language)),
    }
}

/// Code that prints the mark and then the call's value as JSON.
fn tell(language: &str, call: &str, mark: &str) -> Result<String> {
    match language {
        "python" => Ok(format!("print('\\n{mark}' + __import__('json').dumps({call}, default=repr))")),
        "javascript" | "typescript" => {
            Ok(format!("console.log('\\n{mark}' + JSON.stringify((await {call}) ?? null))"))
        }
        "bash" => Ok(format!("printf '\\n%s' '{mark}'; {call}")),
        _ => Err(unsupported("values are compared in Python, JavaScript and Bash", "code", language)),
    }
}

fn unsupported(supported: &'static str, instead: &'static str, language: &str) -> CodeError {
    CodeError::UnsupportedLanguage { supported, instead, language: language.to_owned() }
}

impl Case {
    /// Whether the answer wants this error of loading the code already.
    pub(super) fn wants_error(&self, name: &str) -> bool {
        matches!(&self.expected, Expected::Error(wanted) if wanted == name)
    }

    /// Returns how an execution differs from what was expected, if it does.
    pub(super) fn mismatch(&self, execution: &Execution) -> Option<String> {
        if let Expected::Error(wanted) = &self.expected {
            return match (&execution.error, execution.failure()) {
                (Some(error), _) if error.name == *wanted => None,
                (_, Some(failure)) if execution.raised() => Some(format!("expected {wanted}, got {failure}")),
                (_, Some(failure)) => Some(format!("expected {wanted}, but the code {failure}")),
                (_, None) => Some(format!("expected {wanted}, but the code raised nothing")),
            };
        }
        if let Some(failure) = execution.failure() {
            return Some(failure);
        }
        match &self.expected {
            Expected::Anything | Expected::Error(_) => None,
            Expected::Stdout(wanted) => {
                let got = execution.stdout.trim();
                (got != wanted).then(|| format!("expected {}, got {}", quoted(wanted), quoted(got)))
            }
            Expected::Value { mark, value, tolerance } => {
                let Some((_, printed)) = execution.stdout.rsplit_once(mark.as_str()) else {
                    return Some("ended without giving a value".to_owned());
                };
                let printed = printed.trim();
                // Bash has no types: its text is compared as it would be printed.
                let holds = as_text(value) == printed
                    || serde_json::from_str::<Value>(printed).is_ok_and(|got| same(&got, value, *tolerance));
                (!holds).then(|| format!("expected {value}, got {}", clipped(printed)))
            }
        }
    }
}

/// Whether two values are the same, with numbers at most `tolerance` apart (or that share of the larger).
fn same(a: &Value, b: &Value, tolerance: f64) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => {
            if x == y {
                return true;
            }
            let (Some(x), Some(y)) = (x.as_f64(), y.as_f64()) else { return false };
            (x - y).abs() <= tolerance * 1.0_f64.max(x.abs()).max(y.abs())
        }
        (Value::Array(x), Value::Array(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same(x, y, tolerance))
        }
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().all(|(key, x)| y.get(key).is_some_and(|y| same(x, y, tolerance)))
        }
        _ => a == b,
    }
}

fn quoted(text: &str) -> String {
    format!("`{}`", clipped(text))
}

fn clipped(text: &str) -> String {
    const MAX_LENGTH: usize = 300;
    match text.char_indices().nth(MAX_LENGTH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_may_be_written_either_way() {
        assert!(same(&json!([1, {"a": 0.1}]), &json!([1.0, {"a": 0.100_000_000_000_01}]), 1e-9));
        assert!(!same(&json!(1), &json!(1.1), 1e-9));
        assert!(!same(&json!("1"), &json!(1), 1e-9));
        assert!(!same(&json!({"a": 1}), &json!({"b": 1}), 1e-9));
        assert!(same(&json!(true), &json!(true), 0.0));
    }
}
