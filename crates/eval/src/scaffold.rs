//! Example suites, embedded in the program so that writing one needs no network.

use std::io;
use std::path::{Path, PathBuf};

/// An example suite.
#[derive(Debug)]
pub struct Example {
    /// The name on the command line.
    pub name: &'static str,
    /// The description, in a line.
    pub about: &'static str,
    aliases: &'static [&'static str],
    files: &'static [(&'static str, &'static str)],
}

macro_rules! files {
    ($directory:literal: $($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../examples/", $directory, "/", $name)))),*]
    };
}

/// All examples; the first is the default.
pub const EXAMPLES: &[Example] = &[
    Example {
        name: "hello",
        about: "a function that is called in sandboxes; needs no model",
        aliases: &[],
        files: files!("hello": "promptfooconfig.yaml", "README.md", "prompts/answer.txt"),
    },
    Example {
        name: "starter",
        about: "two prompts for a model, with checks of the text and a rubric",
        aliases: &["getting-started"],
        files: files!("starter": "promptfooconfig.yaml", "README.md", "prompts/plain.txt", "prompts/brief.txt"),
    },
    Example {
        name: "offline",
        about: "a program of your own that answers, checked without any model, server or network",
        aliases: &["local"],
        files: files!("offline": "promptfooconfig.yaml", "README.md", "provider.py", "checks.py", "tests.csv"),
    },
    Example {
        name: "code-eval",
        about: "generated functions, checked by the assertions that run code in sandboxes",
        aliases: &[],
        files: files!("code-eval": "promptfooconfig.yaml", "README.md", "prompts/generate_code.txt"),
    },
    Example {
        name: "e2b-code-eval",
        about: "the same through Python and the E2B SDK, with metrics, a report and a runner that repairs repositories",
        aliases: &["code-eval-e2b", "integration-e2b"],
        files: files!(
            "e2b-code-eval":
            "promptfooconfig.yaml", "README.md", "requirements.txt", "validate.py", "metrics.py", "report.py", "swe_runner.py",
            "prompts/generate_code.txt", "prompts/generate_tests.txt", "prompts/generate_patch.txt",
        ),
    },
    Example {
        name: "patch",
        about: "repairs of a repository, checked by its tests in sandboxes",
        aliases: &["swe"],
        files: files!(
            "patch":
            "promptfooconfig.yaml", "README.md", "prompts/repair.txt", "repository/statistic.py", "repository/test_statistic.py",
        ),
    },
    Example {
        name: "adapters",
        about: "a page in a browser, and agents that are programs, as targets; needs npm",
        aliases: &["browser", "agents"],
        files: files!("adapters": "promptfooconfig.yaml", "README.md", "browser.mjs", "claude_agent.mjs", "codex.mjs"),
    },
];

/// The names of all examples, as the help shows them.
pub const NAMES: &str = "hello,starter,offline,code-eval,e2b-code-eval,patch,adapters";

/// Reason why an example was not written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ScaffoldError {
    #[error("unknown example `{name}`; use {}", names())]
    Unknown { name: String },
    #[error("`{}` exists already; name another directory", .0.display())]
    Exists(PathBuf),
    #[error("failed to write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
}

fn names() -> String {
    EXAMPLES.iter().map(|example| example.name).collect::<Vec<_>>().join(" or ")
}

/// Writes the example of this name into `directory`, which is made if need be, and returns the paths of its files.
///
/// # Errors
/// When there is no such example, one of its files exists already, or one cannot be written.
pub fn write(name: &str, directory: &Path) -> Result<Vec<PathBuf>, ScaffoldError> {
    let example = EXAMPLES
        .iter()
        .find(|example| example.name == name || example.aliases.contains(&name))
        .ok_or_else(|| ScaffoldError::Unknown { name: name.to_owned() })?;
    let paths: Vec<PathBuf> = example.files.iter().map(|(name, _)| directory.join(name)).collect();
    if let Some(path) = paths.iter().find(|path| path.exists()) {
        return Err(ScaffoldError::Exists(path.clone()));
    }
    for (path, (_, text)) in paths.iter().zip(example.files) {
        let parent = path.parent().unwrap_or(directory);
        std::fs::create_dir_all(parent)
            .and_then(|()| std::fs::write(path, text))
            .map_err(|source| ScaffoldError::Write { path: path.clone(), source })?;
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_all_examples() {
        assert_eq!(NAMES, EXAMPLES.iter().map(|example| example.name).collect::<Vec<_>>().join(","));
    }

    #[test]
    fn examples_are_written_once() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("suite");
        let written = write("code-eval-e2b", &directory).map_err(|error| error.to_string());
        assert_eq!(written.as_ref().map(Vec::len), Ok(10));
        assert!(matches!(write("e2b-code-eval", &directory), Err(ScaffoldError::Exists(_))));
        assert!(matches!(write("nothing", &directory), Err(ScaffoldError::Unknown { .. })));
    }
}
