//! Running a whole test file against the answer's code.

use bytes::Bytes;
use sandcove_client::Sandbox;
use serde::Deserialize;

use super::error::{CodeError, Result};
use super::run::{self, Execution, Limits};

/// The outcome of one test, or of the run when it does not report tests.
pub(super) struct Outcome {
    pub(super) name: String,
    pub(super) error: Option<String>,
}

/// A line of the runner.
#[derive(Deserialize)]
struct Reported {
    name: String,
    error: Option<String>,
}

/// The command of a test runner, and the files that it expects.
struct Runner {
    solution: &'static str,
    tests: &'static str,
    command: String,
}

/// Writes the code and its tests into the sandbox and runs them.
///
/// # Errors
/// When the language has no test runner, or the sandbox does not take the files.
pub(super) async fn run(
    sandbox: &Sandbox,
    language: &str,
    code: &str,
    tests: &str,
    command: Option<&str>,
    mark: &str,
    limits: Limits,
) -> Result<(Execution, Vec<Outcome>)> {
    let runner = match language {
        "python" => Runner {
            solution: "solution.py",
            tests: "test_solution.py",
            command: format!("python3 .runner.py {mark}"),
        },
        "javascript" => Runner {
            solution: "solution.js",
            tests: "test_solution.js",
            command: "node --test test_solution.js".to_owned(),
        },
        "bash" => Runner {
            solution: "solution.sh",
            tests: "test_solution.sh",
            command: "bash test_solution.sh".to_owned(),
        },
        other => return Err(CodeError::NoTestRunner(other.to_owned())),
    };
    let tests = match language {
        "python" if !tests.contains("solution") => format!("from solution import *\n{tests}"),
        "bash" if !tests.contains("solution") => format!("set -e\n. ./solution.sh\n{tests}"),
        _ => tests.to_owned(),
    };
    let mut files = vec![(runner.solution, code.to_owned()), (runner.tests, tests)];
    if language == "python" && command.is_none() {
        files.push((".runner.py", include_str!("runner.py").to_owned()));
    }
    for (name, contents) in files {
        let path = format!("/home/user/{name}");
        let written = sandbox.write_file(&path, Bytes::from(contents)).await;
        written.map_err(|error| CodeError::Write { path, error })?;
    }
    let memory = match language {
        // Node reserves far more addresses than it uses, so its limit is on what it can write to. Another command may compile first.
        "javascript" if command.is_some() => String::new(),
        "javascript" => format!("ulimit -d {}; ", limits.memory * 1024 + 256 * 1024),
        _ => format!("ulimit -v {}; ", limits.memory * 1024 + 256 * 1024),
    };
    let line = format!("cd /home/user; {memory}{}", command.unwrap_or(&runner.command));
    let execution = run::command(sandbox, &line, limits).await;
    let mut outcomes: Vec<Outcome> = execution
        .stdout
        .lines()
        .filter_map(|line| serde_json::from_str::<Reported>(line.strip_prefix(mark)?).ok())
        .map(|test| Outcome { name: test.name, error: test.error })
        .collect();
    let tells = language == "python" && command.is_none();
    if !tells || outcomes.is_empty() || execution.failure().is_some() {
        let silent = || tells.then(|| "ended without telling how the tests went".to_owned());
        let error = execution.failure().map(|failure| with_last_words(failure, &execution)).or_else(silent);
        outcomes.push(Outcome { name: "the tests".to_owned(), error });
    }
    Ok((execution, outcomes))
}

/// A failure with the last line that says something.
fn with_last_words(failure: String, execution: &Execution) -> String {
    let lines = execution.stderr.lines().chain(execution.stdout.lines());
    match lines.map(str::trim).rfind(|line| !line.is_empty() && !line.starts_with('#')) {
        Some(line) => format!("{failure}: {line}"),
        None => failure,
    }
}
