//! Starting programs. Everything that can be prepared is, so that between fork and exec only system calls remain; `sys`
//! makes them. [`Children`] starts programs and learns how they end.

mod children;
mod exit;
mod launch;
mod sys;

pub use children::{Child, Children, Reaping};
pub use exit::Exit;
pub use launch::{Controls, Credentials, Launch, Stdio, daemon_path};

/// Why a program did not start. A program that cannot be *found* is not among these: as under a shell, that is a
/// process which says so and ends with 127.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// A text that is handed to the kernel holds a zero byte.
    #[error("{what} `{}` holds a zero byte", value.escape_default())]
    ZeroByte {
        /// Which text.
        what: &'static str,
        /// The text.
        value: String,
    },
    /// There are no further pipes, or terminals, to have.
    #[error("failed to open the standard streams: {0}")]
    Streams(#[source] std::io::Error),
    /// There is no further process to have.
    #[error("failed to fork: {0}")]
    Fork(#[source] std::io::Error),
    /// The new process could not become what it should be.
    #[error("failed to {step}: {source}")]
    Setup {
        /// What it was doing.
        step: Step,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
}

/// What a new process does before it becomes the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// Put its standard streams in place.
    Streams,
    /// Take the terminal as its own.
    Terminal,
    /// Become the user.
    Credentials,
    /// Enter the working directory.
    Directory,
}

impl Step {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Streams, Self::Terminal, Self::Credentials, Self::Directory]
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
        })
    }
}
