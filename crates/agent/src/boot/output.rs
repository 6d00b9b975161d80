//! The output of start commands and ready commands. It goes to the log of the sandbox through the daemon, which keeps the log short
//! as it grows: programs of users may write without end.

use std::io::{self, Write};
use std::os::fd::OwnedFd;

use rustix::pipe::PipeFlags;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::log;
use crate::spawn::Stdio;

/// Bytes of output in memory at a time.
const CHUNK: usize = 4096;

/// Writes to the log, and cuts it as it grows.
#[derive(Debug, Default)]
pub(super) struct LogWriter {
    written: u64,
}

impl LogWriter {
    pub(super) fn write(&mut self, output: &[u8]) {
        // Without a log the program still has to run.
        let _ = io::stderr().write_all(output);
        self.written += output.len() as u64;
        if self.written > log::MAX_SIZE.unsigned_abs() {
            let _ = log::cut(io::stderr());
            self.written = 0;
        }
    }
}

/// The streams of a program without input whose output goes to the log.
pub(super) fn streams() -> io::Result<Stdio> {
    let (ours, theirs) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    tokio::spawn(copy(pipe::Receiver::from_owned_fd(ours)?));
    let input: OwnedFd = std::fs::File::open("/dev/null")?.into();
    Ok(Stdio::Streams([input, theirs.try_clone()?, theirs]))
}

/// Copies until the last holder of the other end is gone, which may be long after the program.
async fn copy(mut output: pipe::Receiver) {
    let mut chunk = vec![0; CHUNK];
    let mut writer = LogWriter::default();
    while let Ok(read @ 1..) = output.read(&mut chunk).await {
        writer.write(&chunk[..read]);
    }
}
