//! Evaluates prompts, models and the code they write, from a `promptfooconfig.yaml`.
//!
//! A run loads the configuration, expands its tests, and makes one row for every test and column (a provider with a prompt). It
//! renders, calls, transforms and grades each row, stores it, and adds all of them up. The library returns values; the command
//! line prints them.
//!
//! Rooms import only rooms below them:
//!
//! | rooms | what they own |
//! | --- | --- |
//! | [`view`], [`exchange`] | stored runs for a viewer; exporting and importing them |
//! | [`generate`] | tests and assertions that a model proposes |
//! | [`connectivity`] | whether providers answer |
//! | [`run`] | running a suite: rows side by side, hooks, comparisons, sums |
//! | [`config`] | a suite: configuration files, read, checked and merged |
//! | [`assertion`], [`provider`] | the assertion types; the families of providers |
//! | [`redteam`] | attacks on checks of code and on sandboxes |
//! | [`code`] | assertions and providers that run code of models in sandboxes |
//! | [`grading`], [`output`] | the context of graders, and aggregating verdicts; result files |
//! | [`calling`], [`script`], [`sandboxes`], [`store`], [`traces`] | the provider trait and the cache of answers; code of the user; sandboxes for code of models; the database; spans of traced rows |
//! | [`reading`], [`document`] | text with its location, and diagnostics; the result document |
//! | [`template`] | nunjucks templates |
//! | [`model`], [`expression`], [`javascript`], [`home`], [`scaffold`] | plain values; the arithmetic of derived metrics; the JavaScript engine; the directory of this program; example suites |
#![forbid(unsafe_code)]
// The library returns values and errors; the command line prints them.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod assertion;
pub mod calling;
pub mod code;
pub mod config;
pub mod connectivity;
pub mod document;
pub mod exchange;
pub mod expression;
pub mod generate;
pub mod grading;
pub mod home;
pub mod javascript;
pub mod model;
pub mod output;
pub mod provider;
pub mod reading;
pub mod redteam;
pub mod run;
pub mod sandboxes;
pub mod scaffold;
pub mod script;
pub mod store;
pub mod template;
pub mod traces;
pub mod view;
