//! What a suite says about running code: the assertion's value, and the variables that tutorials use for the same things.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::error::{CodeError, Result};
use super::extract::{Source, canonical};
use super::policy::PolicySettings;
use super::run::Limits;
use crate::model::Object;
use crate::sandboxes::Environment;

/// The value of `code-run`, `code-tests` and `code-safety`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct CodeSettings {
    pub(super) language: Option<String>,
    source: Option<String>,
    pub(super) function: Option<String>,
    pub(super) cases: Vec<CaseSettings>,
    pub(super) test_input: Option<Value>,
    pub(super) test_code: Option<String>,
    pub(super) expected_output: Option<Value>,
    pub(super) expected_stdout: Option<Value>,
    pub(super) expected_error: Option<String>,
    /// Code that runs before the answer's.
    pub(super) setup: Option<String>,
    /// The text of a test file, or its `file://` path; for `code-tests`.
    pub(super) tests: Option<String>,
    /// The command that runs the tests, instead of the built-in runner; for `code-tests`.
    pub(super) command: Option<String>,
    /// Files beside the code, by path.
    pub(super) files: std::collections::BTreeMap<String, String>,
    pub(super) policy: PolicySettings,
    /// Whether the policy is asked before code is run.
    pub(super) safety: Option<bool>,
    /// The most that numbers may differ.
    pub(super) tolerance: Option<f64>,
    timeout_ms: Option<u64>,
    memory_mb: Option<u64>,
    output_kb: Option<usize>,
    network: bool,
    template: Option<String>,
    /// Read by `metrics`.
    #[serde(rename = "metrics")]
    _metrics: Option<bool>,
}

/// One call of the function, and what is expected of it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct CaseSettings {
    pub(super) name: Option<String>,
    /// The only argument.
    #[serde(deserialize_with = "some")]
    pub(super) input: Option<Value>,
    /// The arguments.
    pub(super) args: Option<Vec<Value>>,
    /// A call as code, e.g. `add(1, 2)`.
    pub(super) call: Option<String>,
    /// Statements that print.
    pub(super) code: Option<String>,
    #[serde(deserialize_with = "some", alias = "output")]
    pub(super) expected: Option<Value>,
    pub(super) expected_stdout: Option<Value>,
    pub(super) expected_error: Option<String>,
}

/// `null` is a value like any other here.
fn some<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl CodeSettings {
    /// Reads an assertion's value; what it leaves out may be in the test's variables.
    pub(super) fn read(value: Option<&Value>, vars: &Object) -> Result<Self> {
        let mut settings: Self = match value {
            None | Some(Value::Null) => Self::default(),
            // `value: python` is short for the language.
            Some(Value::String(language)) => Self { language: Some(language.clone()), ..Self::default() },
            Some(object) => serde_json::from_value(object.clone())
                .map_err(|error| CodeError::InvalidValue { of: "the assertion", error })?,
        };
        let var =
            |names: &[&str]| names.iter().find_map(|name| vars.get(*name)).filter(|value| !value.is_null());
        let text = |names: &[&str]| var(names).map(as_text);
        settings.language =
            settings.language.or_else(|| text(&["language"]).filter(|name| canonical(name).is_some()));
        settings.function = settings.function.or_else(|| text(&["function_name", "functionName"]));
        settings.setup = settings.setup.or_else(|| text(&["setup"]));
        if settings.says_nothing_to_run() {
            settings.test_code = text(&["test_code", "testCode"]);
            settings.test_input = var(&["test_input", "testInput"]).cloned();
            if let Some(cases @ Value::Array(_)) = var(&["test_cases", "testCases"]) {
                settings.cases = serde_json::from_value(cases.clone()).map_err(CodeError::InvalidCases)?;
            }
        }
        if settings.expected_output.is_none()
            && settings.expected_stdout.is_none()
            && settings.expected_error.is_none()
        {
            settings.expected_output = var(&["expected_output", "expectedOutput"]).cloned();
            settings.expected_error = text(&["expected_error", "expectedError"]);
        }
        if let Some(language) = &settings.language {
            let known = canonical(language).ok_or_else(|| CodeError::UnknownLanguage(language.clone()))?;
            settings.language = Some(known.to_owned());
        }
        Ok(settings)
    }

    fn says_nothing_to_run(&self) -> bool {
        self.cases.is_empty() && self.test_input.is_none() && self.test_code.is_none()
    }

    pub(super) fn source(&self) -> Result<Source> {
        match self.source.as_deref() {
            None | Some("auto" | "function") => Ok(Source::Auto),
            Some("fence") => Ok(Source::Fence),
            Some("whole") => Ok(Source::Whole),
            Some(other) => Err(CodeError::UnknownSource(other.to_owned())),
        }
    }

    pub(super) fn limits(&self) -> Limits {
        Limits {
            time: Duration::from_millis(self.timeout_ms.unwrap_or(10_000)),
            memory: self.memory_mb.unwrap_or(512),
            output: self.output_kb.unwrap_or(1024) * 1024,
            network: self.network,
        }
    }

    pub(super) fn environment(&self) -> Environment {
        Environment {
            template: self.template.clone().unwrap_or_else(|| "code-interpreter-v1".to_owned()),
            network: self.network,
        }
    }
}

/// A value as it would be printed.
pub(super) fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::reading::schema::{CODE, CODE_CASE};

    /// Names of all keys, from the error of serde for a key that does not exist.
    fn keys<T: serde::de::DeserializeOwned>() -> Vec<String> {
        let error = serde_json::from_value::<T>(json!({ "?": 1 })).err().map(|error| error.to_string());
        let error = error.unwrap_or_default();
        let (_, known) = error.split_once("expected one of ").unwrap_or_default();
        known.split(", ").map(|key| key.trim_matches('`').to_owned()).collect()
    }

    #[test]
    fn the_keys_that_are_checked_when_a_suite_is_loaded_are_those_that_are_read() {
        let sorted = |keys: Vec<String>| keys.into_iter().collect::<std::collections::BTreeSet<_>>();
        let strings = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
        assert_eq!(sorted(keys::<CodeSettings>()), sorted(strings(CODE)));
        assert_eq!(sorted(keys::<CaseSettings>()), sorted(strings(CODE_CASE)));
    }
}
