//! Signals that end a command, and their exit statuses.

use std::io;
use std::time::Duration;

use rustix::process::{Pid, kill_process};
use sandcove_viewer::STARTER;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit status of a program that a closed pipe ended, as shells report it.
pub const BROKEN_PIPE: u8 = 128 + 13;

/// Time in which a run that has been interrupted ends with what it was doing.
const STARTER_GRACE: Duration = Duration::from_secs(5);

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

/// Interrupts this process, as Ctrl-C does, when the page that started it is gone, however that ended; a second time, for what does not stop.
/// Does nothing in other processes.
pub fn end_with_starter() {
    let starter = std::env::var(STARTER).ok().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
    // Programs that a run starts inherit the variable.
    if starter.is_none() || starter != rustix::process::getppid() {
        return;
    }
    std::thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        for _ in 0..2 {
            let _ = kill_process(rustix::process::getpid(), rustix::process::Signal::INT);
            std::thread::sleep(STARTER_GRACE);
        }
    });
}
