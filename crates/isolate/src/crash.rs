//! Deaths at chosen points, for tests: what was acknowledged must be there after any of them, and nothing else.
//!
//! A server that is started with `SANDCOVE_CRASH_FILE` dies by SIGKILL at the point whose name that file holds at that
//! moment. Without the variable a point is one look at a value in memory.

use std::path::PathBuf;
use std::sync::OnceLock;

use rustix::process::{Signal, getpid, kill_process};

/// Dies here if a test wants it.
pub fn point(name: &str) {
    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let Some(file) = FILE.get_or_init(|| std::env::var_os("SANDCOVE_CRASH_FILE").map(PathBuf::from)) else {
        return;
    };
    if std::fs::read_to_string(file).is_ok_and(|wanted| wanted.trim() == name) {
        let _ = kill_process(getpid(), Signal::KILL);
        // The signal is on its way: nothing of what follows may happen.
        loop {
            std::thread::park();
        }
    }
}
