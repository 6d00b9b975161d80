//! The work that a template build leaves to the agent's own program, because an image may have no `tar`, no `useradd` and not even
//! a shell. The host starts [`PROGRAM`] with `--step` and a [`GuestStep`] as JSON, as root. A step that succeeds exits with 0 and
//! writes one line with a [`StepOutcome`] as JSON to standard output. A step that fails exits with 1 and writes its error to
//! standard error as one line of text.

use serde::{Deserialize, Serialize};

/// The program inside a sandbox that runs steps.
pub const PROGRAM: &str = "/run/sandcove/sandcove-agent";
/// The option before the message.
pub const OPTION: &str = "--step";

/// A step of a template build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum GuestStep {
    /// Unpacks an archive and moves a part of it to its destination (contract: templates, section 9.3).
    Copy {
        /// Path of a tar archive: plain, or compressed with gzip or zstd. The step removes it, also when it fails.
        archive: String,
        /// Path or glob within the archive.
        source: String,
        /// Path in the sandbox; a relative one starts at `workdir`. A trailing `/` makes it a directory.
        destination: String,
        /// Working directory of the build; the home directory of `user` when unset.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workdir: Option<String>,
        /// Current user of the build.
        user: String,
        /// Owner of the files as `user` or `user:group`, by name or number; `user` with its group when unset or empty.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<String>,
        /// Mode of files and directories in octal, for example `0755`; that of the archive when unset or empty.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<String>,
    },
    /// Creates a working directory. The outcome has its canonical path (contract: templates, section 9.2).
    WorkDirectory {
        /// Path of the directory.
        path: String,
        /// Working directory of the build, where a relative path starts; `/` when unset.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        current: Option<String>,
        /// Owner of the directories that are created.
        user: String,
    },
    /// Creates an account with home directory and shell if it is missing.
    Account {
        /// Login name.
        name: String,
        /// Whether the account may run any command as root without a password.
        sudo: bool,
    },
    /// Puts files to a path for one command. The outcome has what `Unmount` needs.
    Mount {
        /// Path of a tar archive as in `Copy`, or without `source` of the file itself. The step removes it.
        archive: String,
        /// Path within the archive.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<String>,
        /// Absolute path in the sandbox. What is there is set aside, which a part of a lower layer and a file system cannot be.
        target: String,
        /// Owner of the files as in `Copy`; root when unset.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<String>,
        /// Mode of the files in octal; that of the archive, or 0400 for a file, when unset.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<String>,
    },
    /// Removes what `Mount` has put somewhere, and puts back what was there.
    Unmount {
        /// The path that `Mount` has returned.
        path: String,
        /// The directory that `Mount` has returned, if there was something at the target.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        aside: Option<String>,
    },
    /// Prepares the files of a finished template (contract: templates, section 9.4).
    Configure {
        /// Id of the template.
        template_id: String,
        /// Id of the build.
        build_id: String,
    },
}

/// The outcome of a step that succeeded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepOutcome {
    /// The path that the step resolved, if it resolves one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The directory with what was set aside, if anything was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aside: Option<String>,
}

impl GuestStep {
    /// The arguments of [`PROGRAM`] that run this step.
    ///
    /// # Errors
    /// Never in practice: a step consists of text.
    pub fn arguments(&self) -> serde_json::Result<[String; 2]> {
        Ok([OPTION.to_owned(), serde_json::to_string(self)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_one_json_object() {
        let step = GuestStep::WorkDirectory {
            path: "app".into(),
            current: Some("/srv".into()),
            user: "user".into(),
        };
        let text = serde_json::to_string(&step).unwrap();
        assert_eq!(text, r#"{"type":"work_directory","path":"app","current":"/srv","user":"user"}"#);
        assert_eq!(serde_json::from_str::<GuestStep>(&text).unwrap(), step);
        let step: GuestStep =
            serde_json::from_str(r#"{"type":"configure","templateId":"t","buildId":"b"}"#).unwrap();
        assert_eq!(step, GuestStep::Configure { template_id: "t".into(), build_id: "b".into() });
    }

    #[test]
    fn an_outcome_may_have_a_path() {
        assert_eq!(serde_json::to_string(&StepOutcome::default()).unwrap(), "{}");
        let outcome = StepOutcome { path: Some("/srv/app".into()), ..StepOutcome::default() };
        assert_eq!(serde_json::to_string(&outcome).unwrap(), r#"{"path":"/srv/app"}"#);
    }
}
