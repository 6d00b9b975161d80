//! Checks request bodies by hand: faults are reported in the words that clients know from the original service.

use std::collections::BTreeMap;

use sandcove_wire::interpreter::{CreateContext, ExecutionRequest};
use serde_json::{Map, Value, json};

use super::error::HttpError;

/// Reads the body of `POST /execute`.
pub(super) fn execution_request(body: &[u8]) -> Result<ExecutionRequest, HttpError> {
    let mut fields = Fields::parse(body)?;
    let code = fields.required_text("code");
    let context_id = fields.text("context_id");
    let language = fields.text("language");
    let env_vars = fields.texts("env_vars");
    fields.finish(ExecutionRequest { code, context_id, language, env_vars })
}

/// Reads the body of `POST /contexts`.
pub(super) fn create_context(body: &[u8]) -> Result<CreateContext, HttpError> {
    let mut fields = Fields::parse(body)?;
    let cwd = fields.text("cwd");
    let language = fields.text("language");
    fields.finish(CreateContext { cwd, language })
}

/// An object that is being read, and the faults found so far.
struct Fields {
    object: Map<String, Value>,
    faults: Vec<Value>,
}

impl Fields {
    fn parse(body: &[u8]) -> Result<Self, HttpError> {
        let fault = |fault: Value| HttpError::Invalid(vec![fault]);
        if body.is_empty() {
            return Err(fault(missing(&json!(["body"]), Value::Null)));
        }
        match serde_json::from_slice(body) {
            Ok(Value::Object(object)) => Ok(Self { object, faults: Vec::new() }),
            Ok(other) => Err(fault(json!({
                "type": "model_attributes_type",
                "loc": ["body"],
                "msg": "Input should be a valid dictionary or object to extract fields from",
                "input": other,
            }))),
            Err(error) => Err(fault(json!({
                "type": "json_invalid",
                "loc": ["body", error.column()],
                "msg": "JSON decode error",
                "input": {},
                "ctx": { "error": error.to_string() },
            }))),
        }
    }

    fn required_text(&mut self, name: &str) -> String {
        match self.object.get(name) {
            None => {
                self.faults.push(missing(&json!(["body", name]), Value::Object(self.object.clone())));
                String::new()
            }
            Some(Value::Null) => {
                self.faults.push(not_text(&json!(["body", name]), &Value::Null));
                String::new()
            }
            Some(_) => self.text(name).unwrap_or_default(),
        }
    }

    fn text(&mut self, name: &str) -> Option<String> {
        match self.object.get(name)? {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => {
                self.faults.push(not_text(&json!(["body", name]), other));
                None
            }
        }
    }

    fn texts(&mut self, name: &str) -> Option<BTreeMap<String, String>> {
        match self.object.get(name)? {
            Value::Null => None,
            Value::Object(object) => {
                let mut texts = BTreeMap::new();
                for (key, value) in object {
                    match value {
                        Value::String(text) => {
                            texts.insert(key.clone(), text.clone());
                        }
                        other => self.faults.push(not_text(&json!(["body", name, key]), other)),
                    }
                }
                Some(texts)
            }
            other => {
                self.faults.push(json!({
                    "type": "dict_type",
                    "loc": ["body", name],
                    "msg": "Input should be a valid dictionary",
                    "input": other,
                }));
                None
            }
        }
    }

    fn finish<T>(self, value: T) -> Result<T, HttpError> {
        if self.faults.is_empty() { Ok(value) } else { Err(HttpError::Invalid(self.faults)) }
    }
}

fn missing(loc: &Value, input: Value) -> Value {
    json!({ "type": "missing", "loc": loc, "msg": "Field required", "input": input })
}

fn not_text(loc: &Value, input: &Value) -> Value {
    json!({ "type": "string_type", "loc": loc, "msg": "Input should be a valid string", "input": input })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(body: &str) -> Vec<Value> {
        match execution_request(body.as_bytes()) {
            Err(HttpError::Invalid(faults)) => faults,
            other => panic!("unexpected {other:?}"),
        }
    }

    #[test]
    fn nulls_and_unknown_keys_are_fine() {
        let body = br#"{"code": "", "context_id": null, "language": null, "env_vars": {"A": "1"}, "x": 1}"#;
        let request = execution_request(body).unwrap();
        assert_eq!(request.code, "");
        assert_eq!(request.env_vars.unwrap()["A"], "1");
        assert_eq!(create_context(b"{}").unwrap(), CreateContext::default());
    }

    #[test]
    fn faults_name_the_location() {
        assert_eq!(faults("{}")[0]["type"], "missing");
        assert_eq!(faults("{}")[0]["loc"], json!(["body", "code"]));
        assert_eq!(faults(r#"{"code": 1}"#)[0]["type"], "string_type");
        assert_eq!(faults(r#"{"code": null}"#)[0]["loc"], json!(["body", "code"]));
        let nested = faults(r#"{"code": "", "env_vars": {"A": 1}, "language": 2}"#);
        assert_eq!(nested[0]["loc"], json!(["body", "language"]));
        assert_eq!(nested[1]["loc"], json!(["body", "env_vars", "A"]));
        assert_eq!(faults("[]")[0]["type"], "model_attributes_type");
        assert_eq!(faults("{")[0]["type"], "json_invalid");
        assert_eq!(faults("")[0]["loc"], json!(["body"]));
    }
}
