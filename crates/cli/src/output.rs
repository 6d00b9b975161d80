//! Writing to standard output and standard error, for the whole program. When the reader has gone (`| head`), output stops
//! quietly and the exit status stays; any other failure, such as a full disk, is reported once and fails the command.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The error after which standard output is not written again.
static STDOUT: Mutex<Option<io::Error>> = Mutex::new(None);

/// Prints a line on standard output, like `println!`.
macro_rules! out {
    ($($text:tt)*) => {{
        let _ = $crate::output::write(format!("{}\n", format_args!($($text)*)).as_bytes());
    }};
}

/// Prints a line on standard error, like `eprintln!`.
macro_rules! note {
    ($($text:tt)*) => {
        $crate::output::write_error(format!("{}\n", format_args!($($text)*)).as_bytes())
    };
}

pub(crate) use {note, out};

/// Standard output is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed;

fn failure() -> MutexGuard<'static, Option<io::Error>> {
    STDOUT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes bytes to standard output at once.
///
/// # Errors
/// When standard output is closed; there is nothing to report.
pub fn write(bytes: &[u8]) -> Result<(), Closed> {
    let mut failure = failure();
    if failure.is_some() {
        return Err(Closed);
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(|error| {
        *failure = Some(error);
        Closed
    })
}

/// Writes bytes to standard error. A failure cannot be reported anywhere.
pub fn write_error(bytes: &[u8]) {
    let _ = io::stderr().lock().write_all(bytes);
}

/// Whether the user wants no colours, as `NO_COLOR` says.
pub fn is_plain() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Text without what controls a terminal: what models, sandboxes and other machines say is printed, and sets no title and no clipboard. Ends of
/// lines and tabs stay.
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => match chars.next() {
                // A control sequence ends with a letter or one of a few signs.
                Some('[') => while chars.next().is_some_and(|c| !('\u{40}'..='\u{7e}').contains(&c)) {},
                // A text for the terminal ends with BEL or ESC \.
                Some(']' | 'P' | 'X' | '^' | '_') => {
                    while let Some(c) = chars.next() {
                        if c == '\u{7}' || (c == '\u{1b}' && chars.next_if_eq(&'\\').is_some()) {
                            break;
                        }
                    }
                }
                _ => {}
            },
            '\t' | '\n' => plain.push(c),
            c if c.is_control() => {}
            c => plain.push(c),
        }
    }
    plain
}

/// The exit status of a command that ended with `code`: failure if output was lost.
pub fn finish(code: ExitCode) -> ExitCode {
    match &*failure() {
        Some(error) if error.kind() != ErrorKind::BrokenPipe => {
            note!("error: failed to write to standard output: {error}");
            ExitCode::FAILURE
        }
        _ => code,
    }
}
