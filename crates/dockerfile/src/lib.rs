//! Dockerfiles and build contexts, on the side of the client: a Dockerfile becomes the steps of the public API (contract: templates,
//! section 7), so that the server needs to know nothing about Dockerfiles.
//!
//! ```text
//! text --source--> instructions --plan--> stages of steps
//!                                           | COPY, ADD
//! directory, .dockerignore --context--> entries --fileset--> hash and tar.gz
//! ```
//!
//! `source` and `lex` follow BuildKit's parser line by line, heredocs inside of commands included, which the parsers on crates.io
//! do not read. `plan` evaluates variables, stages and flags, and refuses what a template cannot express, with line and hint.
//! Nothing here talks to a server.
#![forbid(unsafe_code)]

pub mod context;
mod error;
pub mod fileset;
mod flags;
#[cfg(any(test, fuzzing, debug_assertions))]
pub mod fuzzing;
mod heredoc;
mod ignore;
mod lex;
mod mode;
mod pattern;
pub mod plan;
mod quote;
pub mod source;

pub use error::{Error, Notice, Result};
pub use ignore::Ignore;
pub use mode::octal as octal_mode;
pub use quote::quoted;

#[cfg(test)]
mod recorded_tests;
