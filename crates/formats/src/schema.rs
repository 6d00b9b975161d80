//! JSON schemas, read as strictly as `ajv` reads them.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::keywords;

/// Reason why a schema is not valid.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// A key is no keyword.
    #[error("the schema is not valid: unknown keyword `{0}`")]
    UnknownKeyword(String),
    /// A keyword has a value that it cannot have, or a reference leads nowhere.
    #[error("the schema is not valid: {0}")]
    Invalid(String),
}

/// A schema that values are held against.
#[derive(Debug)]
pub struct Schema(jsonschema::Validator);

impl Schema {
    /// Reads a schema; without `$schema` it is of draft 7. Formats are checked. If `strict`, unknown keywords are mistakes.
    ///
    /// # Errors
    /// If the schema is not valid.
    pub fn new(schema: &Value, strict: bool) -> Result<Self, SchemaError> {
        if let Some(key) = keywords::unknown(schema).filter(|_| strict) {
            return Err(SchemaError::UnknownKeyword(key.to_owned()));
        }
        let options = if schema.get("$schema").is_some() {
            jsonschema::options()
        } else {
            jsonschema::draft7::options()
        };
        let built = options.should_validate_formats(true).with_format("email", is_email).build(schema);
        built.map(Self).map_err(|error| SchemaError::Invalid(error.to_string()))
    }

    /// Returns why a value does not match the schema, if it does not.
    pub fn problem(&self, value: &Value) -> Option<String> {
        let error = self.0.iter_errors(value).next()?;
        let path = error.instance_path().to_string();
        Some(format!("{}{error}", if path.is_empty() { String::new() } else { format!("{path}: ") }))
    }
}

/// Whether a text is an address whose domain has a dot, as `ajv` has it.
fn is_email(text: &str) -> bool {
    static EMAIL: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let word = "[a-z0-9!#$%&'*+/=?^_`{|}~-]+";
        let label = "[a-z0-9](?:[a-z0-9-]*[a-z0-9])?";
        Regex::new(&format!(r"(?i)^{word}(?:\.{word})*@(?:{label}\.)+{label}$")).ok()
    });
    EMAIL.as_ref().is_some_and(|pattern| pattern.is_match(text))
}
