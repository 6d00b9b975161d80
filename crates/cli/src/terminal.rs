//! This machine's terminal: raw mode while it shows a terminal of a sandbox, its size, and standard input.

use std::io::{BufRead, IsTerminal, Read};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use sandcove_client::TerminalSize;
use tokio::sync::mpsc;

/// Size of a read from standard input, in bytes.
const CHUNK: usize = 64 * 1024;

/// Raw mode: every key goes to the sandbox, Ctrl-C too. Dropping the value restores the previous mode.
#[derive(Debug)]
pub struct RawMode {
    before: Termios,
}

impl RawMode {
    /// Enters raw mode, if standard input is a terminal.
    pub fn enter() -> Option<Self> {
        let stdin = rustix::stdio::stdin();
        let before = tcgetattr(stdin).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin, OptionalActions::Now, &raw).ok()?;
        Some(Self { before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, &self.before);
    }
}

/// Hidden input: what is typed is not shown. Dropping the value restores the previous mode.
#[derive(Debug)]
struct Hidden {
    _before: RawMode,
}

impl Hidden {
    /// Hides what is typed, if standard input is a terminal.
    pub fn enter() -> Option<Self> {
        let stdin = rustix::stdio::stdin();
        let before = tcgetattr(stdin).ok()?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(stdin, OptionalActions::Now, &hidden).ok()?;
        Some(Self { _before: RawMode { before } })
    }
}

/// Asks for a line on the terminal that is standard input, without showing what is typed. `show` prints the question, and the end of the line.
///
/// # Errors
/// An error if the terminal cannot be read.
pub fn read_hidden(what: &str, show: impl Fn(&[u8])) -> std::io::Result<String> {
    let mut line = String::new();
    // Before the prompt, which some answer at once.
    let _hidden = Hidden::enter();
    show(format!("{what}: ").as_bytes());
    let read = std::io::stdin().lock().read_line(&mut line);
    show(b"\n");
    read.map(|_| line)
}

/// Whether standard input and standard output are terminals.
pub fn is_interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// The size of the terminal on standard output; 80 by 24 when there is none.
pub fn size() -> TerminalSize {
    match tcgetwinsize(rustix::stdio::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
            TerminalSize { columns: size.ws_col, rows: size.ws_row }
        }
        _ => TerminalSize { columns: 80, rows: 24 },
    }
}

/// Standard input in pieces; the channel closes at its end.
pub fn stdin() -> mpsc::Receiver<Vec<u8>> {
    let (send, receive) = mpsc::channel(2);
    // A separate thread: a blocking task of the runtime would keep the process alive until the next key is pressed.
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut chunk = vec![0; CHUNK];
        loop {
            match stdin.read(&mut chunk) {
                Ok(0) => return,
                Ok(length) => {
                    if send.blocking_send(chunk[..length].to_vec()).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    });
    receive
}
