//! Signals that end a command, and their exit statuses.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit status of a program that a closed pipe ended, as shells report it.
pub const BROKEN_PIPE: u8 = 128 + 13;

/// A signal that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caught {
    /// The name of the signal as `kill` takes it.
    pub name: &'static str,
    number: u8,
}

impl Caught {
    /// The exit status of a program that the signal ended, as shells report it: 128 plus the number.
    pub fn status(self) -> u8 {
        128 + self.number
    }
}

/// The signals that ask this process to end. They do not end it while this value exists.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// Catches the signals from now on.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn catch() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) -> Caught {
        tokio::select! {
            _ = self.interrupt.recv() => Caught { name: "INT", number: 2 },
            _ = self.terminate.recv() => Caught { name: "TERM", number: 15 },
            _ = self.hangup.recv() => Caught { name: "HUP", number: 1 },
        }
    }
}
