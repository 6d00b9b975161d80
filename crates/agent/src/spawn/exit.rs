//! The end of a process.

use std::fmt;

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

impl fmt::Display for Exit {
    /// As clients know it (contract: envd, section 2.4).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Code(code) => write!(f, "exit status {code}"),
            Self::Signal { number, core_dumped } => {
                let dump = if core_dumped { " (core dumped)" } else { "" };
                write!(f, "signal: {}{dump}", signal_name(number))
            }
        }
    }
}

/// The name of a signal in the C library, in lowercase. A table, because the function of the library follows the locale and
/// allocates.
fn signal_name(number: i32) -> String {
    let name = match number {
        libc::SIGHUP => "hangup",
        libc::SIGINT => "interrupt",
        libc::SIGQUIT => "quit",
        libc::SIGILL => "illegal instruction",
        libc::SIGTRAP => "trace/breakpoint trap",
        libc::SIGABRT => "aborted",
        libc::SIGBUS => "bus error",
        libc::SIGFPE => "floating point exception",
        libc::SIGKILL => "killed",
        libc::SIGUSR1 => "user defined signal 1",
        libc::SIGSEGV => "segmentation fault",
        libc::SIGUSR2 => "user defined signal 2",
        libc::SIGPIPE => "broken pipe",
        libc::SIGALRM => "alarm clock",
        libc::SIGTERM => "terminated",
        libc::SIGSTKFLT => "stack fault",
        libc::SIGXCPU => "cpu time limit exceeded",
        libc::SIGXFSZ => "file size limit exceeded",
        libc::SIGVTALRM => "virtual timer expired",
        libc::SIGPROF => "profiling timer expired",
        libc::SIGIO => "i/o possible",
        libc::SIGPWR => "power failure",
        libc::SIGSYS => "bad system call",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}
