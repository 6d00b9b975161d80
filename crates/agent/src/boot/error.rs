//! Errors of the start.

use std::io;

use sandcove_wire::boot::{READY_COMMAND_FAILED, START_COMMAND_FAILED};

/// An error that keeps the daemon from running.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// The host should hand over a control listener and a boot socket; one is missing.
    #[error("descriptor {0} is not open: the daemon is started by the host, or with --standalone")]
    MissingDescriptor(i32),
    /// The boot message is malformed.
    #[error("failed to read the boot message: {0}")]
    Message(#[source] io::Error),
    /// The public port cannot be opened.
    #[error("failed to listen on port {port}: {source}")]
    Listen {
        /// Number of the port.
        port: u16,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The start command of the template could not be started, or has failed.
    #[error("{START_COMMAND_FAILED}{0}")]
    StartCommand(String),
    /// The ready command of the template has not succeeded.
    #[error("{READY_COMMAND_FAILED}{0}")]
    ReadyCommand(String),
    /// A system call failed that should always work.
    #[error("failed to {what}: {source}")]
    System {
        /// Verb phrase for what was tried.
        what: &'static str,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
}

/// Wraps the error of a system call that was to `what`.
pub(super) fn system(what: &'static str) -> impl FnOnce(io::Error) -> BootError {
    move |source| BootError::System { what, source }
}
