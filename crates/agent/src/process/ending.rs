//! The end event of a process (contract: envd, section 2.4).

use sandcove_wire::envd::process::process_event::EndEvent;

use crate::spawn::Exit;

/// Makes the end event for subscribers.
pub fn end_event(exit: Exit) -> EndEvent {
    let status = exit.to_string();
    match exit {
        Exit::Code(code) => {
            EndEvent { exit_code: code, exited: true, error: (code != 0).then(|| status.clone()), status }
        }
        Exit::Signal { .. } => EndEvent { exit_code: -1, exited: false, error: Some(status.clone()), status },
    }
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
