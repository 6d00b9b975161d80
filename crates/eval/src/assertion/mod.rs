//! Assertion types. Each is a [`Grader`](crate::grading::Grader) in a table; the [`registry`] is all tables together.

pub mod attack;
mod conversation;
mod error;
mod graded;
mod html;
pub mod judge;
mod labels;
mod measure;
pub mod meteor;
mod overlap;
mod pattern;
mod pi;
mod refusal;
pub mod registry;
mod retrieval;
mod script;
mod searching;
mod similarity;
mod skill;
mod sql;
mod steps;
mod structured;
mod text;
mod tools;
mod trace;
mod trajectory;
mod webhook;
mod xml;

pub use refusal::refuses;
pub use structured::{member, objects};
