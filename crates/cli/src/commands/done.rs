//! What a command has changed: a line for each thing as it is done, or one JSON array.

use std::fmt::Display;

use serde_json::Value;

use crate::output::out;

/// The things that a command has changed so far. JSON is printed when the value is dropped, so that it names them even if an error ends the
/// command before the others.
#[derive(Debug)]
pub struct Done {
    is_json: bool,
    objects: Vec<Value>,
}

impl Done {
    /// Nothing yet, to be printed as JSON or as lines.
    pub fn new(is_json: bool) -> Self {
        Self { is_json, objects: Vec::new() }
    }

    /// Adds a thing, as a line of text and as an object of JSON.
    pub fn add(&mut self, line: impl Display, object: Value) {
        match self.is_json {
            true => self.objects.push(object),
            false => out!("{line}"),
        }
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        if self.is_json {
            out!("{}", Value::Array(std::mem::take(&mut self.objects)));
        }
    }
}
