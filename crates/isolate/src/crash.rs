//! Crash points, for tests: after a crash at any of them, everything that was acknowledged must exist, and nothing else.
//!
//! A server that is started with `SANDCOVE_CRASH_FILE` kills itself with SIGKILL at the point whose name is in that file at
//! that moment. If the file holds `wait` and the name, the server writes `there` into it and waits until the test removes
//! that. Without the variable, a point costs one read of a value in memory.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

/// Kills this process, or waits, if the crash file names this point.
pub fn point(name: &str) {
    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let Some(file) = FILE.get_or_init(|| std::env::var_os("SANDCOVE_CRASH_FILE").map(PathBuf::from)) else {
        return;
    };
    let wanted = std::fs::read_to_string(file).unwrap_or_default();
    match wanted.trim().strip_prefix("wait ") {
        // Other tasks of this thread go on.
        Some(wanted) if wanted == name => tokio::task::block_in_place(|| wait(file)),
        None if wanted.trim() == name => {
            let _ = kill_process(getpid(), Signal::KILL);
            // Nothing may happen until the signal arrives.
            loop {
                std::thread::park();
            }
        }
        _ => {}
    }
}

fn wait(file: &Path) {
    const THERE: &str = "there";
    if std::fs::write(file, THERE).is_ok() {
        while std::fs::read_to_string(file).is_ok_and(|text| text == THERE) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
