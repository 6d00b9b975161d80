//! Commands in a sandbox (contract: envd, section 2).

use std::collections::BTreeMap;

use bytes::Bytes;

/// A command line for `bash -l -c`.
#[derive(Debug, Clone, Default)]
pub struct Command {
    /// Text of the command line.
    pub line: String,
    /// Variables in addition to those of the sandbox.
    pub envs: BTreeMap<String, String>,
    /// Working directory; the default directory when unset.
    pub cwd: Option<String>,
    /// Account that the command runs under; the default one when unset.
    pub user: Option<String>,
    /// Standard input.
    pub input: Input,
}

/// A program and its arguments, without a shell.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// Path of the program, or its name in a directory of `PATH`.
    pub program: String,
    /// Arguments after the name of the program.
    pub arguments: Vec<String>,
    /// Variables in addition to those of the sandbox.
    pub envs: BTreeMap<String, String>,
    /// Working directory; the default directory when unset.
    pub cwd: Option<String>,
    /// Account that the program runs under; the default one when unset.
    pub user: Option<String>,
    /// Standard input.
    pub input: Input,
}

impl Command {
    /// The command with defaults for a line of the shell.
    pub fn new(line: impl Into<String>) -> Self {
        Self { line: line.into(), ..Self::default() }
    }

    /// Adds a variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.envs.insert(name.into(), value.into());
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn cwd(self, directory: impl Into<String>) -> Self {
        Self { cwd: Some(directory.into()), ..self }
    }

    /// Sets the account that the command runs under.
    #[must_use]
    pub fn user(self, user: impl Into<String>) -> Self {
        Self { user: Some(user.into()), ..self }
    }

    /// Sets the standard input.
    #[must_use]
    pub fn input(self, input: Input) -> Self {
        Self { input, ..self }
    }
}

impl From<&Command> for Program {
    /// The shell that runs the command line; an interactive one for an empty line.
    fn from(command: &Command) -> Self {
        let Command { line, envs, cwd, user, input } = command.clone();
        let arguments = match line.as_str() {
            "" => vec!["-i".to_owned(), "-l".to_owned()],
            _ => vec!["-l".to_owned(), "-c".to_owned(), line],
        };
        Self { program: "/bin/bash".to_owned(), arguments, envs, cwd, user, input }
    }
}

/// The standard input of a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Input {
    /// Nothing: `/dev/null`.
    #[default]
    Closed,
    /// A pipe, written with [`Controls::write`](crate::Controls::write).
    Pipe,
    /// A terminal of this size, which is its standard output and standard error as well.
    Terminal(TerminalSize),
}

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    /// Number of characters in a line.
    pub columns: u16,
    /// Number of lines.
    pub rows: u16,
}

/// Output of a running command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandEvent {
    /// Bytes on standard output.
    Stdout(Bytes),
    /// Bytes on standard error.
    Stderr(Bytes),
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandExit {
    /// Exit status; -1 when a signal ended the command.
    pub code: i32,
    /// Description, e.g. `exit status 1` or `signal: killed`.
    pub status: String,
}

/// Names of signals in [`CommandExit::status`] and their numbers on Linux.
const SIGNALS: [(&str, u8); 15] = [
    ("hangup", 1),
    ("interrupt", 2),
    ("quit", 3),
    ("illegal instruction", 4),
    ("trace/breakpoint trap", 5),
    ("aborted", 6),
    ("bus error", 7),
    ("floating point exception", 8),
    ("killed", 9),
    ("user defined signal 1", 10),
    ("segmentation fault", 11),
    ("user defined signal 2", 12),
    ("broken pipe", 13),
    ("alarm clock", 14),
    ("terminated", 15),
];

impl CommandExit {
    /// The status as a shell reports it: 128 and the number of the signal that ended the command.
    pub fn shell_status(&self) -> u8 {
        if let Ok(code) = u8::try_from(self.code) {
            return code;
        }
        let signal = self.status.strip_prefix("signal: ").unwrap_or_default();
        let signal = signal.strip_suffix(" (core dumped)").unwrap_or(signal);
        SIGNALS.iter().find(|(name, _)| *name == signal).map_or(u8::MAX, |(_, number)| 128 + number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(code: i32, status: &str) -> u8 {
        CommandExit { code, status: status.to_owned() }.shell_status()
    }

    #[test]
    fn a_signal_is_128_and_its_number_as_in_a_shell() {
        assert_eq!(exit(3, "exit status 3"), 3);
        assert_eq!(exit(-1, "signal: killed"), 137);
        assert_eq!(exit(-1, "signal: segmentation fault (core dumped)"), 139);
        assert_eq!(exit(-1, "signal: interrupt"), 130);
        assert_eq!(exit(-1, "signal: unheard of"), 255);
    }
}
