//! Red teams without a network: probes of sandboxes, of checks before code runs, and of models that write code.
//!
//! Everything here is data and arithmetic; the evaluator runs what is generated.
//!
//! | rooms | what they own |
//! | --- | --- |
//! | [`report`] | what a run came to: rates, risks, changes; as text, JSON, CSV and SARIF |
//! | [`generate`] | a suite of tests from a `redteam` section |
//! | [`attack`] | the test of one attack |
//! | [`wish`], [`attacker`] | attacks that a model is asked for before a run; those that go on by what a target answers |
//! | [`section`] | the `redteam` section of a configuration |
//! | [`plugin`], [`strategy`], [`canary`] | names of plugins; transformations of attacks; secrets that must not come back |
//! | [`framework`] | entries of public frameworks, which stand for plugins and strategies |
//! | [`mutate`], [`text`] | transformations of programs, and of texts |
//! | [`probe`] | attacks as data |
//! | [`category`] | kinds of attacks, their severity, and the lists they belong to |
#![forbid(unsafe_code)]

pub mod attack;
pub mod attacker;
pub mod canary;
pub mod category;
pub mod framework;
pub mod generate;
pub mod mutate;
pub mod plugin;
pub mod probe;
pub mod report;
pub mod section;
pub mod strategy;
pub mod text;
pub mod wish;
