//! Deaths at chosen points, for tests: what was acknowledged must be there after any of them, and nothing else.
//!
//! A server that is started with `SANDCOVE_CRASH_FILE` dies by SIGKILL at the point whose name that file holds at that
//! moment. Where it holds `wait` and the name, the server writes `there` into it and goes on when that is gone, so that the
//! world may change meanwhile. Without the variable a point is one look at a value in memory.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

/// Dies here if a test wants it.
pub fn point(name: &str) {
    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let Some(file) = FILE.get_or_init(|| std::env::var_os("SANDCOVE_CRASH_FILE").map(PathBuf::from)) else {
        return;
    };
    let wanted = std::fs::read_to_string(file).unwrap_or_default();
    match wanted.trim().strip_prefix("wait ") {
        // Others of this thread go on.
        Some(wanted) if wanted == name => tokio::task::block_in_place(|| wait(file)),
        None if wanted.trim() == name => {
            let _ = kill_process(getpid(), Signal::KILL);
            // The signal is on its way: nothing of what follows may happen.
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
