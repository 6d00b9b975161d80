//! Crash points, for tests: after a crash at any of them, everything that was acknowledged must exist, and nothing else.
//!
//! A server that is started with `SANDCOVE_CRASH_FILE` kills itself with SIGKILL at the point whose name is in that file at
//! that moment. If the file holds `wait` and the name, the server writes `there` into it and waits until the test removes
//! that. Without the variable, a point costs one read of a value in memory.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

/// The crash file, if there is one.
static FILE: OnceLock<Option<File>> = OnceLock::new();

/// Opens the crash file before it gets out of this process's reach.
pub(crate) fn keep_file() {
    FILE.get_or_init(|| {
        let path = std::env::var_os("SANDCOVE_CRASH_FILE")?;
        File::options().read(true).write(true).open(path).ok()
    });
}

/// Kills this process, or waits, if the crash file names this point.
pub fn point(name: &str) {
    keep_file();
    let Some(Some(file)) = FILE.get() else { return };
    let wanted = read(file);
    match wanted.trim().strip_prefix("wait ") {
        // Other tasks of this thread go on.
        Some(wanted) if wanted == name => tokio::task::block_in_place(|| wait(file)),
        None if wanted.trim() == name => {
            if kill_process(getpid(), Signal::KILL).is_err() {
                // The filter of the server process has no such call. This ends the process at once, too.
                std::process::abort();
            }
            // Nothing may happen until the signal arrives.
            loop {
                std::thread::park();
            }
        }
        _ => {}
    }
}

/// The whole text of the file, which tests write anew each time.
fn read(file: &File) -> String {
    let mut text = [0; 64];
    let length = file.read_at(&mut text, 0).unwrap_or(0);
    String::from_utf8_lossy(&text[..length]).into_owned()
}

fn wait(file: &File) {
    const THERE: &str = "there";
    if file.set_len(0).and_then(|()| file.write_all_at(THERE.as_bytes(), 0)).is_ok() {
        while read(file) == THERE {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
