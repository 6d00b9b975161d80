//! `ENTRYPOINT` and `CMD` as one start command (Dockerfile reference, "Understand how CMD and ENTRYPOINT interact").

use super::run::{joined, with_shell};
use crate::source::Instruction;

/// A `CMD` or `ENTRYPOINT`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Given {
    is_json: bool,
    args: Vec<String>,
    shell: Vec<String>,
}

/// The start command as far as it is known.
#[derive(Debug, Clone, Default)]
pub(super) struct Start {
    entrypoint: Option<Given>,
    cmd: Option<Given>,
    /// Whether `CMD` is in the current stage.
    has_own_cmd: bool,
}

impl Start {
    /// A stage that begins with this one: its `ENTRYPOINT` removes the `CMD` of this one.
    pub(super) fn inherited(&self) -> Self {
        Self { has_own_cmd: false, ..self.clone() }
    }

    pub(super) fn cmd(&mut self, at: &Instruction, shell: &[String]) {
        self.cmd = given(at, shell);
        self.has_own_cmd = true;
    }

    pub(super) fn entrypoint(&mut self, at: &Instruction, shell: &[String]) {
        self.entrypoint = given(at, shell);
        if !self.has_own_cmd {
            self.cmd = None;
        }
    }

    /// The start command, for a shell.
    pub(super) fn command(&self) -> Option<String> {
        let shell_form = |given: &Given| with_shell(&given.shell, &given.args[0]);
        let command = match (&self.entrypoint, &self.cmd) {
            (Some(entrypoint), cmd) if entrypoint.is_json => {
                let mut words = entrypoint.args.clone();
                match cmd {
                    Some(cmd) if cmd.is_json => words.extend(cmd.args.iter().cloned()),
                    Some(cmd) if cmd.shell.is_empty() => {
                        words.extend(["/bin/sh".to_owned(), "-c".to_owned(), cmd.args[0].clone()]);
                    }
                    Some(cmd) => words.extend(cmd.shell.iter().chain(&cmd.args).cloned()),
                    None => {}
                }
                joined(&words)
            }
            (Some(entrypoint), _) => shell_form(entrypoint),
            (None, Some(cmd)) if cmd.is_json => joined(&cmd.args),
            (None, Some(cmd)) => shell_form(cmd),
            (None, None) => return None,
        };
        Some(command).filter(|command| !command.trim().is_empty())
    }
}

/// `None` for an empty one, such as `CMD []`.
fn given(at: &Instruction, shell: &[String]) -> Option<Given> {
    let given = Given { is_json: at.is_json, args: at.args.clone(), shell: shell.to_vec() };
    Some(given).filter(|given| !given.args.is_empty())
}
