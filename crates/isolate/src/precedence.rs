//! Precedence of the server and the spawner over sandboxes: on the processors, and when the host runs out of memory. Neither
//! is inherited by sandboxes.

use std::io;
use std::time::Duration;

use crate::sys::{self, Children};

/// Niceness of threads with precedence.
const NICENESS: i32 = -5;
/// Time slice of threads with precedence. Linux 6.12 and later run a waking thread at once if its slice is shorter than that of
/// the running one, which is 1.4 ms or more by default.
const SLICE: Duration = Duration::from_micros(200);
/// OOM score of processes with precedence: the kernel kills nearly everything else first. Not -1000, so that a server that
/// leaks all memory of a host can still be killed.
const OOM_SCORE: i32 = -900;
const OOM_FILE: &str = "/proc/self/oom_score_adj";

/// Gives the calling thread of the server, and all threads and programs that it starts, precedence on the processors. A failure,
/// as in a container without the right to do so, is only logged.
pub fn take_precedence() {
    prioritize(Children::Inherit);
}

/// Gives the spawner precedence on the processors, and none to what it starts.
pub(crate) fn prioritize_spawner() {
    prioritize(Children::Reset);
}

/// Gives up the precedence on the processors that the calling thread has inherited.
pub(crate) fn give_up_precedence() -> io::Result<()> {
    // The slice 0 stands for the kernel's default.
    sys::set_schedule(0, Duration::ZERO, Children::Inherit)
}

fn prioritize(children: Children) {
    if let Err(error) = sys::set_schedule(NICENESS, SLICE, children) {
        tracing::debug!(%error, "failed to take precedence over sandboxes");
    }
}

/// Protects this process from the kernel when the host runs out of memory. Processes that it starts inherit this, and call
/// [`give_up_oom_protection`]. A failure is only logged.
pub(crate) fn protect_from_oom() {
    let protected = oom_score().and_then(|score| {
        if score <= OOM_SCORE { Ok(()) } else { std::fs::write(OOM_FILE, OOM_SCORE.to_string()) }
    });
    if let Err(error) = protected {
        tracing::debug!(%error, "failed to protect the server when memory runs out");
    }
}

/// Makes this process, and those that it starts, as likely a victim as any other when the host runs out of memory. They
/// cannot take the protection back without rights on the host.
pub(crate) fn give_up_oom_protection() -> io::Result<()> {
    if oom_score()? < 0 { std::fs::write(OOM_FILE, "0") } else { Ok(()) }
}

fn oom_score() -> io::Result<i32> {
    let text = std::fs::read_to_string(OOM_FILE)?;
    text.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_spawner_starts_has_no_precedence() {
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        for (children, inherited) in [(Children::Inherit, NICENESS), (Children::Reset, 0)] {
            std::thread::spawn(move || {
                if sys::set_schedule(NICENESS, SLICE, children).is_err() {
                    eprintln!("skipped: needs the right to lower the niceness");
                    return;
                }
                assert_eq!(niceness(), NICENESS);
                assert_eq!(std::thread::spawn(niceness).join().unwrap(), inherited);
            })
            .join()
            .unwrap();
        }
    }
}
