//! Variables that the templates of a request see.

use std::path::Path;

use serde_json::{Value, json};

use crate::calling::Call;
use crate::model::Object;
use crate::script::Workers;
use crate::template::value::to_text;
use crate::template::{TemplateError, Templates};

/// The variables of a row, with the prompt and what authentication adds to them.
#[derive(Debug)]
pub struct Scope<'a> {
    pub vars: Object,
    pub templates: Templates,
    /// The directory that paths are relative to.
    pub base: &'a Path,
}

impl<'a> Scope<'a> {
    /// The scope of one call.
    pub fn new(call: &Call<'_>, workers: &'a Workers) -> Self {
        let mut vars = call.vars.clone();
        vars.insert("prompt".to_owned(), json!(call.prompt));
        if let Some(id) = call.context.get("evaluationId") {
            vars.insert("evaluationId".to_owned(), id.clone());
        }
        for name in ["tools", "tool_choice"] {
            match call.config.get(name) {
                Some(value @ (Value::Array(_) | Value::Object(_))) => {
                    vars.insert(name.to_owned(), json!(value.to_string()));
                }
                Some(value) => drop(vars.insert(name.to_owned(), value.clone())),
                None => {}
            }
        }
        // A session that the client names begins with each row.
        if call.config.get("sessionSource").and_then(Value::as_str) == Some("client") {
            vars.entry("sessionId").or_insert_with(|| json!(uuid::Uuid::new_v4().to_string()));
        }
        let templates = Templates::new(workers.env().own().clone()).with_base(workers.base());
        Self { vars, templates, base: workers.base() }
    }

    /// Renders a text.
    pub fn render(&self, text: &str) -> Result<String, TemplateError> {
        self.templates.render(text, &self.vars)
    }

    /// Renders a value of a setting as text; nothing if it is not there or empty.
    pub fn text(&self, of: &Object, key: &str) -> Result<Option<String>, TemplateError> {
        let value = of.get(key).filter(|value| !value.is_null()).map(to_text);
        let text = value.map(|text| self.render(&text)).transpose()?;
        Ok(text.filter(|text| !text.is_empty()))
    }
}
