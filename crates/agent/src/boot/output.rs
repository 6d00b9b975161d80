//! The output of start commands and ready commands. It goes to the log of the sandbox through the daemon, line by line behind the name
//! of the command and the stream, so that the host can pick it out. The daemon keeps the log short as it grows: programs of users may
//! write without end.

use std::io::{self, Write};
use std::os::fd::OwnedFd;

use rustix::pipe::PipeFlags;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::log;
use crate::process::output::Channel;
use crate::spawn::Stdio;

/// Bytes of output in memory at a time. A longer line becomes several.
const CHUNK: usize = 4096;

/// Writes the lines of one stream to the log, and cuts the log as it grows.
#[derive(Debug)]
pub(super) struct LineWriter {
    /// The text before each line.
    prefix: String,
    /// The prefix and the line that has begun.
    line: Vec<u8>,
    written: u64,
}

impl LineWriter {
    /// A writer of lines that begin with `command`, which is such as [`sandcove_wire::boot::START_OUTPUT`], and the name of the stream.
    pub(super) fn new(command: &str, channel: Channel) -> Self {
        let stream = if channel == Channel::Stderr { "stderr" } else { "stdout" };
        let prefix = format!("{command}[{stream}]: ");
        Self { line: prefix.clone().into(), prefix, written: 0 }
    }

    pub(super) fn write(&mut self, output: &[u8]) {
        for piece in output.split_inclusive(|byte| *byte == b'\n').flat_map(|line| line.chunks(CHUNK)) {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.line.len() > CHUNK {
                self.end_line();
            }
        }
    }

    /// Writes the line in one piece, so that lines of other streams do not mix in.
    fn end_line(&mut self) {
        if !self.line.ends_with(b"\n") {
            self.line.push(b'\n');
        }
        // Without a log the program still has to run.
        let _ = io::stderr().write_all(&self.line);
        self.written += self.line.len() as u64;
        if self.written > log::MAX_SIZE.unsigned_abs() {
            let _ = log::cut(io::stderr());
            self.written = 0;
        }
        self.line.truncate(self.prefix.len());
    }
}

impl Drop for LineWriter {
    fn drop(&mut self) {
        if self.line.len() > self.prefix.len() {
            self.end_line();
        }
    }
}

/// The streams of a program without input whose output goes to the log, in lines that begin with `command`.
pub(super) fn streams(command: &'static str) -> io::Result<Stdio> {
    let stream = |channel| {
        let (ours, theirs) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        tokio::spawn(copy(pipe::Receiver::from_owned_fd(ours)?, LineWriter::new(command, channel)));
        io::Result::Ok(theirs)
    };
    let input: OwnedFd = std::fs::File::open("/dev/null")?.into();
    Ok(Stdio::Streams([input, stream(Channel::Stdout)?, stream(Channel::Stderr)?]))
}

/// Copies until the last holder of the other end is gone, which may be long after the program.
async fn copy(mut output: pipe::Receiver, mut writer: LineWriter) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(read @ 1..) = output.read(&mut chunk).await {
        writer.write(&chunk[..read]);
    }
}
