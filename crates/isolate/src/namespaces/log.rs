//! The log of an agent or a warm process: a file in memory without a name. Processes inside can get at the descriptors
//! of their PID 1, so this one must lead to nothing but the log itself. Decision 16 says why it is not a pipe.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, Mode, OFlags, fchmod, fcntl_setfl, memfd_create};

/// Creates an empty sandbox log. Its memory is charged to the control group of the process that writes.
///
/// # Errors
/// If the kernel refuses a file in memory.
pub fn create() -> io::Result<File> {
    const NAME: &str = "log";
    let flags = MemfdFlags::CLOEXEC;
    // Some hosts refuse files in memory that could be executed; older kernels do not know the difference.
    let log = memfd_create(NAME, flags | MemfdFlags::NOEXEC_SEAL).or_else(|_| memfd_create(NAME, flags))?;
    // Its owner does not exist inside, where nobody can open it a second time.
    fchmod(&log, Mode::RUSR | Mode::WUSR)?;
    // The agent cuts a log that has become long: what is written next begins it anew.
    fcntl_setfl(&log, OFlags::APPEND)?;
    Ok(log.into())
}

/// Reads the last 2 KiB of a log, for the error of a process that did not become ready.
pub(super) fn tail(log: &File) -> String {
    const MAX_BYTES: u64 = 2048;
    let mut text = vec![0; MAX_BYTES as usize];
    let length = log.metadata().map_or(0, |metadata| metadata.len());
    // By position: the descriptors inside have the same one.
    let read = log.read_at(&mut text, length.saturating_sub(MAX_BYTES)).unwrap_or_default();
    text.truncate(read);
    String::from_utf8_lossy(&text).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_log_is_appended_to_also_after_it_was_cut() {
        let mut log = create().unwrap();
        let mut inside = log.try_clone().unwrap();
        writeln!(inside, "first").unwrap();
        writeln!(log, "second").unwrap();
        assert_eq!(tail(&log), "first\nsecond");
        log.set_len(0).unwrap();
        writeln!(inside, "third").unwrap();
        assert_eq!(tail(&log), "third");
        write!(inside, "{}", "x".repeat(5000)).unwrap();
        assert_eq!(tail(&log), "x".repeat(2048));
    }
}
