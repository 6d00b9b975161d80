//! Whether code ran out of memory, by what interpreters and systems say about it.
//!
//! Where the limit of an interpreter is hit, its error says so. Where that of the sandbox is hit, the system kills a process, and all that
//! is known is SIGKILL: our interpreter server names it in the error's traceback, shells with the exit status 137.

use sandcove_wire::interpreter::ExecutionError;

/// Exit status of a shell whose command was ended by SIGKILL.
pub(super) const KILLED_STATUS: i32 = 137;

/// Names of errors that interpreters give to many failures, so that only the text tells them apart: JavaScript's, R's, and a shell's, which is empty.
const INTERPRETERS: [&str; 4] = ["RangeError", "Error", "ERROR", ""];

/// Texts that programs print when they run out of memory, anywhere in a line.
const SAID: [&str; 9] = [
    // Node, when it aborts, and in a worker.
    "JavaScript heap out of memory",
    "reaching memory limit: JS heap out of memory",
    "Array buffer allocation failed",
    // R.
    "cannot allocate vector of size",
    "java.lang.OutOfMemoryError",
    "std::bad_alloc",
    // Go.
    "runtime: out of memory",
    // The C library, for ENOMEM.
    "Cannot allocate memory",
    // Bash.
    ": cannot allocate ",
];

/// Whether an error of the interpreter is one of memory. `printed` is what came before it on both streams.
pub(super) fn is_named_in(error: &ExecutionError, printed: [&str; 2], kernel_died: bool) -> bool {
    if kernel_died {
        return error.traceback.contains("out of memory") || printed.into_iter().any(has_aborted_node);
    }
    is_error(&error.name)
        || (INTERPRETERS.contains(&error.name.as_str()) && SAID.iter().any(|said| error.value.contains(said)))
        // The error of a shell is only an exit status.
        || (error.name.is_empty() && (error.value.parse() == Ok(KILLED_STATUS) || printed.into_iter().any(is_printed)))
}

/// Whether a command that failed printed that it ran out of memory.
pub(super) fn is_printed(text: &str) -> bool {
    // Node's runner of tests, about a file that the system killed.
    let is_killed_file = || text.contains("ERR_TEST_FAILURE") && text.contains("signal: 'SIGKILL'");
    is_killed_file()
        || text.lines().any(|line| is_failure(line) || SAID.iter().any(|said| line.contains(said)))
}

/// Whether a text begins with the name of an error of memory, as the last line of a traceback does, also in the reports of pytest.
pub(super) fn is_failure(text: &str) -> bool {
    let text = text.strip_prefix("E ").unwrap_or(text).trim_start();
    is_error(text.split([':', ' ']).next().unwrap_or_default())
}

/// `MemoryError` and its relatives in other languages and libraries.
fn is_error(name: &str) -> bool {
    name.ends_with("MemoryError") || name == "std::bad_alloc"
}

/// Whether node wrote that it aborted for lack of memory, of its heap or of the process.
fn has_aborted_node(printed: &str) -> bool {
    let line = |line: &str| {
        let line = line.trim_start_matches(['#', ' ']);
        let aborts = line.starts_with("FATAL ERROR:") || line.starts_with("Fatal ");
        aborts && line.contains("out of memory")
    };
    printed.lines().any(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(name: &str, value: &str, traceback: &str) -> ExecutionError {
        ExecutionError { name: name.to_owned(), value: value.to_owned(), traceback: traceback.to_owned() }
    }

    #[test]
    fn errors_of_memory_are_known_by_their_names_and_texts() {
        for (name, value) in [
            ("MemoryError", ""),
            ("NoMemoryError", "failed to allocate memory"),
            ("RangeError", "Array buffer allocation failed"),
            ("ERROR", "Error: cannot allocate vector of size 74.5 Gb"),
            ("", "137"),
        ] {
            assert!(is_named_in(&error(name, value, ""), ["", ""], false), "{name} {value}");
        }
        assert!(is_named_in(&error("", "1", ""), ["MemoryError\n", ""], false));
        for (name, value) in [
            ("ValueError", "MemoryError"),
            ("ValueError", "std::bad_alloc"),
            ("", "1"),
            ("RangeError", "Invalid array length"),
        ] {
            assert!(!is_named_in(&error(name, value, ""), ["", ""], false), "{name} {value}");
        }
    }

    #[test]
    fn a_dead_interpreter_is_one_of_memory_only_if_something_says_so() {
        let died = |traceback: &str| error("ContextRestarting", "Context was restarted", traceback);
        let fatal = "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory";
        assert!(is_named_in(
            &died("The kernel was killed (SIGKILL), as it is when the sandbox is out of memory."),
            ["", ""],
            true
        ));
        assert!(is_named_in(&died(""), ["", fatal], true));
        assert!(is_named_in(&died(""), ["", "# Fatal process out of memory: Zone"], true));
        assert!(!is_named_in(&died(""), ["JavaScript heap out of memory", ""], true));
    }

    #[test]
    fn what_commands_print_about_memory_is_found() {
        for text in [
            "Traceback\nMemoryError\n",
            "E   MemoryError: too much",
            "terminate called after throwing an instance of 'std::bad_alloc'",
        ] {
            assert!(is_printed(text), "{text}");
        }
        for text in ["expected MemoryError", "E   assert 1 == 2", ""] {
            assert!(!is_printed(text), "{text}");
        }
    }
}
