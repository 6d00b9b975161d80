//! Starts programs. Everything is prepared before the fork, so that between fork and exec only system calls remain, which `sys`
//! makes. [`Children`] starts programs and reports how they end.

mod children;
mod exit;
mod launch;
mod shell;
mod sys;

pub use children::{Child, Children, Reaping};
pub use exit::Exit;
pub use launch::{Controls, Credentials, Launch, Stdio, daemon_path};

/// An error of starting a program. A program that is not *found* is no such error: as under a shell, that is a process that
/// prints a message and exits with 127.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// A string for the kernel contains a zero byte.
    #[error("{what} `{}` holds a zero byte", value.escape_default())]
    ZeroByte {
        /// Role of the string.
        what: &'static str,
        /// The string itself.
        value: String,
    },
    /// Pipes or a terminal could not be opened.
    #[error("failed to open the standard streams: {0}")]
    Streams(#[source] std::io::Error),
    /// The process could not be created.
    #[error("failed to fork: {0}")]
    Fork(#[source] std::io::Error),
    /// The new process failed before it became the program.
    #[error("failed to {step}: {source}")]
    Setup {
        /// Step that failed.
        step: Step,
        /// Error of the operating system.
        #[source]
        source: std::io::Error,
    },
}

/// A step of a new process before it becomes the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// Connect the standard streams.
    Streams,
    /// Take the terminal as controlling terminal.
    Terminal,
    /// Become the user.
    Credentials,
    /// Enter the working directory.
    Directory,
    /// Pass the arguments and variables, which may be too long for the kernel.
    Arguments,
}

impl Step {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Streams, Self::Terminal, Self::Credentials, Self::Directory, Self::Arguments]
            .into_iter()
            .find(|s| *s as u8 == byte)
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Streams => "connect the standard streams",
            Self::Terminal => "take the terminal",
            Self::Credentials => "become the user",
            Self::Directory => "enter the working directory",
            Self::Arguments => "pass the arguments and variables",
        })
    }
}
