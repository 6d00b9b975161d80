//! Evaluates prompts, models and the code they write, from the `promptfooconfig.yaml` people have.
//!
//! A run is: load the configuration, expand its tests, make one row for every test and column (a provider with a prompt),
//! then render, call, transform, grade, aggregate, store and print.
#![forbid(unsafe_code)]

pub mod assertion;
pub mod code;
pub mod model;
pub mod provider;
pub mod scaffold;
pub mod services;
pub mod worker;
