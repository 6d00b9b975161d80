//! This machine's terminal: raw mode while one inside a sandbox is shown on it, its size, and standard input as it comes.

use std::io::{IsTerminal, Read};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use sandcove_client::TerminalSize;
use tokio::sync::mpsc;

/// Bytes that are read from standard input at once.
const CHUNK: usize = 64 * 1024;

/// Raw mode: every key goes to the sandbox, Ctrl-C too. Dropping it restores the mode before.
#[derive(Debug)]
pub struct RawMode {
    before: Termios,
}

impl RawMode {
    /// Enters it, if standard input is a terminal.
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

/// Whether somebody types here and sees the output.
pub fn is_interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// The size of the terminal that the output goes to; the usual one when it goes elsewhere.
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
    // A thread of its own: one of the runtime's would keep the process until the next key is pressed.
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
