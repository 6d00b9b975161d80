//! Code that models write: taking it out of answers, checking it, and running it in sandboxes.
//!
//! | type | holds when |
//! | --- | --- |
//! | `code-safety` | the syntax tree has nothing that the policy forbids |
//! | `code-run` (also `code-execution`) | the code, run against its cases, gives what they expect; scored by case |
//! | `code-tests` | a test file passes with the code as the module `solution`; scored by test |
//! | `patch` | a diff applies to a repository, whose tests pass then; scored by test |
//!
//! Nothing here runs code on this machine. The verdict is made here, from what the sandbox reports.

mod diff;
mod error;
mod extract;
mod grade;
mod memory;
mod metrics;
mod patch;
mod policy;
mod prepare;
mod program;
mod provider;
mod python;
mod repair;
mod repository;
pub(crate) mod run;
mod settings;
mod syntax;
mod test_file;
mod workspace;

pub(crate) use extract::fenced_blocks;
pub use provider::SandboxProvider;
pub use repair::RepairProvider;

use crate::grading::Grader;

/// The assertion types about code.
pub const GRADERS: &[(&str, Grader)] = &[
    ("code-safety", Grader::Pure(grade::safety)),
    ("code-run", Grader::Async(|context| Box::pin(grade::run(context)))),
    ("code-execution", Grader::Async(|context| Box::pin(grade::run(context)))),
    ("code-tests", Grader::Async(|context| Box::pin(grade::tests(context)))),
    ("patch", Grader::Async(|context| Box::pin(patch::patch(context)))),
];
