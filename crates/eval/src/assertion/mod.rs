//! Assertion types. Each is a [`Grader`] in a table; the [`registry`] is all tables together.

pub mod aggregate;
mod context;
mod conversation;
mod graded;
mod html;
mod judge;
mod labels;
mod measure;
mod overlap;
mod refusal;
pub mod registry;
mod retrieval;
pub mod script;
mod similarity;
mod skill;
mod sql;
mod sql_foreign;
mod sql_names;
mod structured;
mod text;
mod tools;
mod webhook;

pub use context::{Grader, GradingContext, RowId};

use serde_json::{Value, json};

use crate::services::Services;

/// The variables inline code sees as `process.env`.
pub fn process_env(services: &Services) -> Value {
    let mut env: crate::model::Object = std::env::vars().map(|(key, value)| (key, json!(value))).collect();
    env.extend(services.env.clone());
    Value::Object(env)
}
