//! Assertion types. Each is a [`Grader`](crate::grading::Grader) in a table; the [`registry`] is all tables together.

pub mod attack;
mod conversation;
mod error;
mod graded;
mod html;
mod judge;
mod keywords;
mod labels;
mod measure;
mod overlap;
mod refusal;
pub mod registry;
mod retrieval;
mod script;
mod similarity;
mod skill;
mod sql;
mod sql_foreign;
mod sql_names;
mod structured;
mod text;
mod tools;
mod webhook;
mod xml;
