//! What a kernel is given at its start, and our ends of it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// Our ends of what one of our own hosts is given.
#[derive(Debug)]
pub struct Link {
    /// Frames, both ways.
    pub socket: UnixStream,
    /// What it writes.
    pub outputs: Outputs,
}

/// What one of our own hosts is given: the other ends of a [`Link`].
#[derive(Debug)]
pub struct Ends {
    /// Frames, both ways.
    pub socket: OwnedFd,
    /// Where it writes.
    pub outputs: OutputEnds,
}

/// Where the output of a kernel can be read.
#[derive(Debug)]
pub struct Outputs {
    /// Its descriptor 1.
    pub stdout: OwnedFd,
    /// Its descriptor 2.
    pub stderr: OwnedFd,
}

/// The other ends of [`Outputs`].
#[derive(Debug)]
pub struct OutputEnds {
    /// Its descriptor 1.
    pub stdout: OwnedFd,
    /// Its descriptor 2.
    pub stderr: OwnedFd,
}

impl Link {
    /// A new socket pair and two pipes, all closed on exec.
    pub fn pair() -> io::Result<(Self, Ends)> {
        let (socket, kernel_socket) = UnixStream::pair()?;
        let (outputs, kernel_outputs) = Outputs::pair()?;
        socket.set_nonblocking(true)?;
        Ok((Self { socket, outputs }, Ends { socket: kernel_socket.into(), outputs: kernel_outputs }))
    }
}

impl Outputs {
    /// Two new pipes, closed on exec.
    pub fn pair() -> io::Result<(Self, OutputEnds)> {
        let (stdout, kernel_stdout) = io::pipe()?;
        let (stderr, kernel_stderr) = io::pipe()?;
        let ours = Self { stdout: stdout.into(), stderr: stderr.into() };
        Ok((ours, OutputEnds { stdout: kernel_stdout.into(), stderr: kernel_stderr.into() }))
    }
}
