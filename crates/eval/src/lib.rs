//! Evaluates prompts, models and the code they write, from the `promptfooconfig.yaml` people have.
//!
//! A run is: load the configuration, expand its tests, make one row for every test and column (a provider with a prompt),
//! then render, call, transform, grade, aggregate, store and print.
#![forbid(unsafe_code)]
// `terminal` is the only way to both streams: these macros panic when nobody reads or the disk is full.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod assertion;
pub mod code;
pub mod command;
pub mod config;
pub mod exchange;
pub mod javascript;
pub mod model;
pub mod output;
pub mod provider;
pub mod run;
pub mod scaffold;
pub mod services;
pub mod store;
mod table;
pub mod template;
mod terminal;
pub mod view;
mod watch;
pub mod worker;
