//! How a process ended.

use rustix::process::WaitStatus;

/// The end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It ended itself, with this status.
    Code(i32),
    /// A signal ended it.
    Signal {
        /// The signal.
        number: i32,
        /// Whether the kernel wrote a core dump.
        core_dumped: bool,
    },
}

impl Exit {
    /// Reads a wait status of a process that is gone.
    pub(super) fn from_status(status: WaitStatus) -> Self {
        match status.terminating_signal() {
            Some(number) => Self::Signal { number, core_dumped: libc::WCOREDUMP(status.as_raw()) },
            None => Self::Code(status.exit_status().unwrap_or(-1)),
        }
    }
}
