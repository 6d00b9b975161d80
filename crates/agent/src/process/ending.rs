//! The end event of a process (contract: envd, section 2.4).

use sandcove_wire::envd::process::process_event::EndEvent;

use crate::spawn::Exit;

/// Makes the end event for subscribers.
pub fn end_event(exit: Exit) -> EndEvent {
    match exit {
        Exit::Code(code) => {
            let status = format!("exit status {code}");
            EndEvent { exit_code: code, exited: true, error: (code != 0).then(|| status.clone()), status }
        }
        Exit::Signal { number, core_dumped } => {
            let dump = if core_dumped { " (core dumped)" } else { "" };
            let status = format!("signal: {}{dump}", signal_name(number));
            EndEvent { exit_code: -1, exited: false, error: Some(status.clone()), status }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_read_as_clients_know_them() {
        let clean = end_event(Exit::Code(0));
        assert_eq!(
            (clean.exit_code, clean.exited, clean.status.as_str(), clean.error),
            (0, true, "exit status 0", None)
        );
        let failed = end_event(Exit::Code(3));
        assert_eq!(
            (failed.exit_code, failed.exited, failed.error.as_deref()),
            (3, true, Some("exit status 3"))
        );
        let killed = end_event(Exit::Signal { number: 9, core_dumped: false });
        assert_eq!((killed.exit_code, killed.exited, killed.status.as_str()), (-1, false, "signal: killed"));
        let dumped = end_event(Exit::Signal { number: 11, core_dumped: true });
        assert_eq!(dumped.error.as_deref(), Some("signal: segmentation fault (core dumped)"));
    }
}
