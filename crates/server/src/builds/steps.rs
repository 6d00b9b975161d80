//! Steps of a build as clients send them, checked (contract: templates, section 7.1).

use sandcove_wire::api::build::StepMount;

use crate::domain::build::BuildStep;

/// A step that a build can execute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Files of the client.
    Copy {
        /// Hash of the uploaded files.
        files: String,
        /// Path or glob within them.
        source: String,
        /// Path in the sandbox.
        destination: String,
        /// Owner; the current user when unset.
        owner: Option<String>,
        /// Mode in octal; that of the client's files when unset.
        mode: Option<String>,
    },
    /// A command line.
    Run {
        /// The command line.
        command: String,
        /// User of this command only.
        user: Option<String>,
        /// Mounts of the command.
        mounts: Vec<StepMount>,
    },
    /// Variables of the next steps, by name.
    Env(Vec<(String, String)>),
    /// The directory of the next steps.
    WorkDirectory(String),
    /// The user of the next steps.
    User {
        /// Login name.
        name: String,
        /// Whether the user may become root without a password.
        sudo: bool,
    },
}

/// Reason why a step is malformed, with the text of the contract.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum StepError {
    #[error("{0} requires a local path and a container path argument")]
    NoPaths(String),
    #[error("{0} requires files hash to be set")]
    NoFiles(String),
    #[error("RUN requires command argument")]
    NoCommand,
    #[error("{0} does not support passing no arguments")]
    NoArguments(String),
    #[error("{0} requires both a key and value arguments")]
    NoValue(String),
    #[error("WORKDIR requires a path argument")]
    NoPath,
    #[error("USER requires a username argument")]
    NoUser,
    #[error("command type {0} is not implemented")]
    Unknown(String),
}

impl Step {
    /// Checks a step.
    ///
    /// # Errors
    /// An error if the step is malformed.
    pub(super) fn parse(step: &BuildStep) -> Result<Self, StepError> {
        let argument = |index: usize| step.args.get(index).filter(|argument| !argument.is_empty()).cloned();
        let kind = step.kind.to_ascii_uppercase();
        match kind.as_str() {
            "COPY" | "ADD" => {
                let (Some(source), Some(destination)) = (argument(0), argument(1)) else {
                    return Err(StepError::NoPaths(kind));
                };
                let files = step.files_hash.clone().filter(|hash| !hash.is_empty());
                let files = files.ok_or(StepError::NoFiles(kind))?;
                Ok(Self::Copy { files, source, destination, owner: argument(2), mode: argument(3) })
            }
            "RUN" => {
                let command = argument(0).ok_or(StepError::NoCommand)?;
                Ok(Self::Run { command, user: argument(1), mounts: step.mounts.clone() })
            }
            "ENV" | "ARG" => {
                if step.args.is_empty() {
                    return Err(StepError::NoArguments(kind));
                }
                let (pairs, rest) = step.args.as_chunks::<2>();
                if !rest.is_empty() || pairs.iter().any(|[name, _]| name.is_empty()) {
                    return Err(StepError::NoValue(kind));
                }
                Ok(Self::Env(pairs.iter().cloned().map(|[name, value]| (name, value)).collect()))
            }
            "WORKDIR" => argument(0).map(Self::WorkDirectory).ok_or(StepError::NoPath),
            "USER" => {
                let name = argument(0).ok_or(StepError::NoUser)?;
                Ok(Self::User { name, sudo: step.args.get(1).is_some_and(|sudo| sudo == "true") })
            }
            _ => Err(StepError::Unknown(step.kind.clone())),
        }
    }
}

/// The text of a step in the log.
pub(super) fn title(step: &BuildStep) -> String {
    let mut title = step.kind.to_ascii_uppercase();
    for argument in step.args.iter().filter(|argument| !argument.is_empty()) {
        title.push(' ');
        title.push_str(argument);
    }
    title
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(kind: &str, args: &[&str]) -> BuildStep {
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        BuildStep { kind: kind.to_owned(), args, files_hash: None, force: false, mounts: Vec::new() }
    }

    #[test]
    fn malformed_steps_fail_with_the_texts_of_the_contract() {
        for (kind, args, text) in [
            ("COPY", &["a"][..], "COPY requires a local path and a container path argument"),
            ("COPY", &["a", "/b", "", ""], "COPY requires files hash to be set"),
            ("RUN", &[], "RUN requires command argument"),
            ("ENV", &[], "ENV does not support passing no arguments"),
            ("ENV", &["A"], "ENV requires both a key and value arguments"),
            ("ENV", &["A", "1", "B"], "ENV requires both a key and value arguments"),
            ("WORKDIR", &[], "WORKDIR requires a path argument"),
            ("USER", &[], "USER requires a username argument"),
            ("ONBUILD", &["x"], "command type ONBUILD is not implemented"),
        ] {
            assert_eq!(Step::parse(&step(kind, args)).unwrap_err().to_string(), text);
        }
    }

    #[test]
    fn types_are_read_in_any_case() {
        let run = Step::Run { command: "true".to_owned(), user: None, mounts: Vec::new() };
        assert_eq!(Step::parse(&step("Run", &["true", ""])).unwrap(), run);
        let user = Step::User { name: "dev".to_owned(), sudo: true };
        assert_eq!(Step::parse(&step("user", &["dev", "true"])).unwrap(), user);
        let env = Step::Env(vec![("A".to_owned(), String::new())]);
        assert_eq!(Step::parse(&step("arg", &["A", ""])).unwrap(), env);
    }

    #[test]
    fn a_title_is_the_step_on_one_line_of_words() {
        assert_eq!(title(&step("copy", &["a", "/b", "", ""])), "COPY a /b");
    }
}
