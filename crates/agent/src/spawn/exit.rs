//! The end of a process.

use rustix::process::WaitStatus;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The process exited with this status.
    Code(i32),
    /// The process was ended by a signal.
    Signal {
        /// Number of the signal.
        number: i32,
        /// Whether the kernel wrote a core dump.
        core_dumped: bool,
    },
}

impl Exit {
    /// Converts the wait status of a process that has ended.
    pub(super) fn from_status(status: WaitStatus) -> Self {
        match status.terminating_signal() {
            Some(number) => Self::Signal { number, core_dumped: libc::WCOREDUMP(status.as_raw()) },
            None => Self::Code(status.exit_status().unwrap_or(-1)),
        }
    }
}
