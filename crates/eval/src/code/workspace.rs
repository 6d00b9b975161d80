//! A repository in a sandbox: with its tests, before and after a patch.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use sandcove_client::Command;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::diff;
use super::error::{CodeError, Result};
use super::repository::Repository;
use super::run::{self, Execution, Limits, Stop, tail};
use super::settings::as_text;
use crate::model::Object;
use crate::sandboxes::{Environment, Sandboxes, Taken};

/// The directory that tests run in.
const DIRECTORY: &str = "/home/user/repository";

/// The repository before any patch, from which [`DIRECTORY`] is copied. Nothing runs here, so that no run leaves build products or
/// caches to the next one.
const START: &str = "/home/user/.repository-start";
/// Bytes of a file that are read.
const MAX_FILE: usize = 32 << 20;

/// Caches outside the repository may recognise a file by its size and the second it was written in (Python's do), so two versions
/// of the repository are never written in the same second.
const VERSION_GAP: Duration = Duration::from_secs(1);

/// Seconds that a test's own limit gives the outer one to notice.
const GRACE: u64 = 5;

/// The settings for repairing a repository: the assertion's value or the provider's configuration.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PatchSettings {
    /// An address that git can clone, or a directory.
    repository: Option<String>,
    /// A commit, tag or branch.
    revision: Option<String>,
    /// Runs the tests; `{test}` stands for the name of one.
    command: Option<String>,
    /// Tests that fail before the patch and must pass after it.
    must_pass: Vec<String>,
    /// Tests that pass before and must still pass.
    still_pass: Vec<String>,
    /// A command line that makes the repository ready.
    setup: Option<String>,
    /// Files that are added to the repository, by path.
    files: BTreeMap<String, String>,
    /// A diff that adds the tests.
    test_patch: Option<String>,
    /// Paths that patches do not change, besides the tests that were added.
    protect: Vec<String>,
    timeout_ms: Option<u64>,
    output_kb: Option<usize>,
    network: bool,
    template: Option<String>,
    /// Read elsewhere.
    #[serde(rename = "metrics")]
    _metrics: Option<bool>,
}

impl PatchSettings {
    /// Reads a value; what it leaves out may be in the test's variables, under its own names or those of data sets.
    ///
    /// # Errors
    /// When something has the wrong shape, or it is not said what to test and how.
    pub(super) fn read(value: Option<&Value>, vars: &Object) -> Result<Self> {
        let mut settings: Self = match value {
            None | Some(Value::Null) => Self::default(),
            Some(value) => serde_json::from_value(value.clone())
                .map_err(|error| CodeError::InvalidValue { of: "`patch`", error })?,
        };
        let var =
            |names: &[&str]| names.iter().find_map(|name| vars.get(*name)).filter(|value| !value.is_null());
        let text = |names: &[&str]| var(names).map(as_text);
        settings.repository = settings.repository.or_else(|| text(&["repository"]));
        settings.revision = settings.revision.or_else(|| text(&["revision", "base_commit"]));
        settings.command = settings.command.or_else(|| text(&["test_command"]));
        settings.setup = settings.setup.or_else(|| text(&["setup"]));
        settings.test_patch = settings.test_patch.or_else(|| text(&["test_patch"]));
        for (list, names) in [
            (&mut settings.must_pass, ["must_pass", "FAIL_TO_PASS"]),
            (&mut settings.still_pass, ["still_pass", "PASS_TO_PASS"]),
        ] {
            if let Some(value) = var(&names).filter(|_| list.is_empty()) {
                *list = names_of(value);
            }
        }
        if settings.repository.is_none() || settings.command.is_none() {
            return Err(CodeError::NoRepository);
        }
        Ok(settings)
    }

    fn limits(&self) -> Limits {
        Limits {
            time: Duration::from_millis(self.timeout_ms.unwrap_or(120_000)),
            memory: 0,
            output: self.output_kb.unwrap_or(1024) * 1024,
            network: self.network,
        }
    }

    /// The tests: what they are called, the command lines, and whether they fail before the patch. Without names the command
    /// is the one test.
    fn tests(&self) -> Vec<(String, String, bool)> {
        let command = self.command.as_deref().unwrap_or_default();
        if self.must_pass.is_empty() && self.still_pass.is_empty() {
            return vec![(command.to_owned(), command.to_owned(), true)];
        }
        let named = |name: &String, fails: bool| {
            let line = match command.contains("{test}") {
                true => command.replace("{test}", &quoted(name)),
                false => format!("{command} {}", quoted(name)),
            };
            (name.clone(), line, fails)
        };
        let must = self.must_pass.iter().map(|name| named(name, true));
        must.chain(self.still_pass.iter().map(|name| named(name, false))).collect()
    }
}

/// Names in a list, or in the text of one.
pub(super) fn names_of(value: &Value) -> Vec<String> {
    let list = match value {
        Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| json!([text])),
        other => other.clone(),
    };
    list.as_array().into_iter().flatten().map(as_text).collect()
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The outcome of applying a patch.
#[derive(Debug)]
pub(super) enum Applied {
    /// The command that accepted it.
    By(&'static str),
    /// The reason why no command did.
    Not(String),
}

/// The outcome of a test.
#[derive(Debug)]
pub(super) struct Tested {
    pub(super) name: String,
    pub(super) failure: Option<String>,
    pub(super) execution: Option<Execution>,
}

/// A repository in a sandbox. It has to be given back with [`Workspace::end`].
pub(super) struct Workspace {
    taken: Taken,
    settings: PatchSettings,
    /// Paths that are as they were before tests are run.
    protected: BTreeSet<String>,
    /// When the last version of the repository was complete.
    written: Instant,
}

impl Workspace {
    /// Brings the repository into a fresh sandbox, with its tests.
    ///
    /// # Errors
    /// When there is no repository or no sandbox, or it cannot be made ready.
    pub(super) async fn open(base: &Path, sandboxes: &Sandboxes, settings: PatchSettings) -> Result<Self> {
        let place = settings.repository.as_deref().unwrap_or_default();
        let archive = Repository::new(place, settings.revision.as_deref(), base).archive().await?;
        let template = settings.template.clone().unwrap_or_else(|| "code-interpreter-v1".to_owned());
        let environment = Environment { template, network: settings.network };
        let taken = sandboxes.take(&environment).await?;
        let mut protected: BTreeSet<String> = settings.protect.iter().cloned().collect();
        protected.extend(settings.files.keys().cloned());
        protected.extend(settings.test_patch.as_deref().map(diff::paths).unwrap_or_default());
        let mut workspace = Self { taken, settings, protected, written: Instant::now() };
        match workspace.fill(archive).await {
            Ok(()) => Ok(workspace),
            Err(error) => {
                workspace.end().await;
                Err(error)
            }
        }
    }

    async fn fill(&mut self, archive: bytes::Bytes) -> Result<()> {
        self.write("/tmp/repository.tar", archive).await?;
        let unpack = format!(
            "mkdir -p {DIRECTORY} && tar -xf /tmp/repository.tar -C {DIRECTORY} && rm /tmp/repository.tar && git -C {DIRECTORY} init -q"
        );
        self.must("unpacking the repository", &unpack).await?;
        if let Some(setup) = &self.settings.setup {
            self.must("the setup", &self.inside(setup)).await?;
        }
        for (path, contents) in &self.settings.files {
            self.write(&format!("{DIRECTORY}/{path}"), contents.clone().into()).await?;
        }
        if let Some(patch) = &self.settings.test_patch {
            self.write("/tmp/tests.patch", patch.clone().into()).await?;
            self.must(
                "applying `test_patch`",
                &self.inside("git apply --whitespace=nowarn /tmp/tests.patch"),
            )
            .await?;
        }
        let commit = "git add -A && git -c user.name=start -c user.email=start@localhost commit -q --allow-empty --no-verify -m start";
        self.must("committing the repository", &self.inside(commit)).await?;
        self.must("putting the repository aside", &format!("mv {DIRECTORY} {START}")).await?;
        self.written = Instant::now();
        Ok(())
    }

    /// Replaces the working copy, with everything that tests left in it, by the repository as it was before any patch.
    async fn copy(&self) -> Result<()> {
        // As root, because tests may have made files that the default user cannot remove.
        let command = Command {
            line: format!("rm -rf {DIRECTORY} && cp -a --reflink=auto {START} {DIRECTORY}"),
            user: Some("root".to_owned()),
            ..Command::default()
        };
        let done = run::run(&self.taken.sandbox, &command, self.settings.limits()).await;
        CodeError::of_step("copying the repository", &done)
    }

    async fn write(&self, path: &str, contents: bytes::Bytes) -> Result<()> {
        let written = self.taken.sandbox.write_file(path, contents).await;
        written.map_err(|error| CodeError::Write { path: path.to_owned(), error })
    }

    fn inside(&self, line: &str) -> String {
        format!("cd {DIRECTORY} && {line}")
    }

    async fn command(&self, line: &str) -> Execution {
        run::command(&self.taken.sandbox, line, self.settings.limits()).await
    }

    async fn must(&self, step: &'static str, line: &str) -> Result<()> {
        CodeError::of_step(step, &self.command(line).await)
    }

    /// The tests as they are before any patch: those that must pass have to fail, or they would decide nothing. What they
    /// print tells a model what is wrong.
    ///
    /// # Errors
    /// When a test does not behave as the suite says.
    pub(super) async fn before(&self) -> Result<String> {
        self.copy().await?;
        let mut log = String::new();
        for (name, line, fails) in self.settings.tests() {
            let tested = self.test(&name, &line).await;
            let log_tail = tested.execution.as_ref().map(tail).unwrap_or_default();
            match (tested.failure, fails) {
                (Some(failure), true) => log.push_str(&format!("{name}: {failure}\n{log_tail}\n")),
                (None, true) => {
                    return Err(CodeError::DecidesNothing(name));
                }
                (Some(failure), false) => {
                    return Err(CodeError::FailsBefore { test: name, failure, output: log_tail });
                }
                (None, false) => {}
            }
        }
        Ok(log)
    }

    /// Applies a patch to a fresh copy of the repository.
    ///
    /// # Errors
    /// When the sandbox fails.
    pub(super) async fn apply(&mut self, patch: &str) -> Result<Applied> {
        if diff::reaches_into_git(patch) {
            return Ok(Applied::Not("it changes files of `.git`".to_owned()));
        }
        tokio::time::sleep_until(self.written + VERSION_GAP).await;
        let applied = self.apply_to_copy(patch).await;
        self.written = Instant::now();
        applied
    }

    async fn apply_to_copy(&self, patch: &str) -> Result<Applied> {
        self.write("/tmp/answer.patch", patch.to_owned().into()).await?;
        // From strict to forgiving. Models count lines badly, leave out prefixes, and remember context inexactly.
        const WAYS: [(&str, &str); 4] = [
            ("git apply", "git apply --whitespace=nowarn"),
            ("git apply --recount", "git apply --whitespace=nowarn --recount"),
            ("git apply -p0", "git apply --whitespace=nowarn --recount -p0"),
            ("patch", "patch --batch --forward --fuzz=3 --no-backup-if-mismatch -r - -p1 -i"),
        ];
        let mut why = String::new();
        for (name, line) in WAYS {
            self.copy().await?;
            let done = self.command(&self.inside(&format!("{line} /tmp/answer.patch"))).await;
            match done.failure() {
                None => return Ok(Applied::By(name)),
                Some(failure) if done.stopped.is_some() => return Err(CodeError::Stopped(failure)),
                Some(failure) if why.is_empty() => why = format!("{failure}: {}", tail(&done).trim()),
                Some(_) => {}
            }
        }
        Ok(Applied::Not(why))
    }

    /// Runs the tests on what is there now, with the protected files as they were.
    pub(super) async fn after(&self) -> Vec<Tested> {
        let tests = self.settings.tests();
        if !self.protected.is_empty() {
            let paths: Vec<String> = self.protected.iter().map(|path| quoted(path)).collect();
            let paths = paths.join(" ");
            let restore = format!(
                "for path in {paths}; do git checkout -q HEAD -- \"$path\" 2>/dev/null; git clean -fdq -- \"$path\"; done; true"
            );
            if let Err(error) = self.must("restoring the tests", &self.inside(&restore)).await {
                let lost = |(name, ..): (String, String, bool)| Tested {
                    name,
                    failure: Some(error.to_string()),
                    execution: None,
                };
                return tests.into_iter().map(lost).collect();
            }
        }
        let mut results: Vec<Tested> = Vec::with_capacity(tests.len());
        for (name, line, _) in tests {
            let usable = results
                .last()
                .and_then(|last| last.execution.as_ref())
                .is_none_or(Execution::leaves_sandbox_usable);
            results.push(match usable {
                true => self.test(&name, &line).await,
                false => Tested {
                    name,
                    failure: Some("not run: the test before broke its sandbox".to_owned()),
                    execution: None,
                },
            });
        }
        results
    }

    /// Runs one test, which ends itself at its time limit, so that the sandbox stays usable for the next one.
    async fn test(&self, name: &str, line: &str) -> Tested {
        let limits = self.settings.limits();
        let seconds = limits.time.as_secs_f64();
        let line = self.inside(&format!("timeout -k 1 {seconds} bash -c {}", quoted(line)));
        let outer = Limits { time: limits.time + Duration::from_secs(GRACE), ..limits };
        let mut execution = run::command(&self.taken.sandbox, &line, outer).await;
        // What `timeout` says about what it ended. Before the limit, 137 is of a test that the system killed for its memory.
        if execution.exit_code == Some(124)
            || (execution.exit_code == Some(137) && execution.took >= limits.time)
        {
            execution.stopped = Some(Stop::Timeout(limits.time));
        }
        Tested { name: name.to_owned(), failure: execution.failure(), execution: Some(execution) }
    }

    /// A file of the repository as it was before any patch.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) async fn read(&self, path: &str) -> Result<String> {
        let read = self.taken.sandbox.read_file(&format!("{START}/{path}"), MAX_FILE).await;
        let read = read.map_err(|error| CodeError::Read { path: path.to_owned(), error })?;
        Ok(String::from_utf8_lossy(&read.bytes).into_owned())
    }

    /// Ends the sandbox.
    pub(super) async fn end(self) {
        self.taken.end().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_named_or_the_whole_command() {
        let vars = json!({"FAIL_TO_PASS": "[\"a.py::t\"]", "PASS_TO_PASS": ["it's"], "repository": ".", "test_command": "pytest"});
        let settings = PatchSettings::read(None, vars.as_object().unwrap()).unwrap();
        assert_eq!(
            settings.tests(),
            [
                ("a.py::t".to_owned(), "pytest 'a.py::t'".to_owned(), true),
                ("it's".to_owned(), r"pytest 'it'\''s'".to_owned(), false),
            ]
        );
        let whole =
            PatchSettings::read(Some(&json!({"repository": ".", "command": "make test"})), &Object::new());
        assert_eq!(whole.unwrap().tests(), [("make test".to_owned(), "make test".to_owned(), true)]);
        assert!(PatchSettings::read(Some(&json!({"repository": "."})), &Object::new()).is_err());
    }
}
