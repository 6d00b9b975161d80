//! The socket and pipes a kernel is started with, and the interpreter's ends of them.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// The interpreter's ends of the socket and pipes of a host of our own.
#[derive(Debug)]
pub struct Link {
    /// Socket for requests and frames.
    pub socket: UnixStream,
    /// Pipes with the kernel's output.
    pub outputs: Outputs,
}

/// The kernel's ends of a [`Link`].
#[derive(Debug)]
pub struct Ends {
    /// Socket for requests and frames.
    pub socket: OwnedFd,
    /// Pipes for the kernel's output.
    pub outputs: OutputEnds,
}

/// The reading ends of a kernel's output pipes.
#[derive(Debug)]
pub struct Outputs {
    /// Reads what the kernel writes to descriptor 1.
    pub stdout: OwnedFd,
    /// Reads what the kernel writes to descriptor 2.
    pub stderr: OwnedFd,
}

/// The writing ends of [`Outputs`].
#[derive(Debug)]
pub struct OutputEnds {
    /// Becomes the kernel's descriptor 1.
    pub stdout: OwnedFd,
    /// Becomes the kernel's descriptor 2.
    pub stderr: OwnedFd,
}

impl Link {
    /// Makes a socket pair and two pipes, all closed on exec.
    pub fn pair() -> io::Result<(Self, Ends)> {
        let (socket, kernel_socket) = UnixStream::pair()?;
        let (outputs, kernel_outputs) = Outputs::pair()?;
        socket.set_nonblocking(true)?;
        Ok((Self { socket, outputs }, Ends { socket: kernel_socket.into(), outputs: kernel_outputs }))
    }
}

impl Outputs {
    /// Makes two pipes, closed on exec.
    pub fn pair() -> io::Result<(Self, OutputEnds)> {
        let (stdout, kernel_stdout) = io::pipe()?;
        let (stderr, kernel_stderr) = io::pipe()?;
        let ours = Self { stdout: stdout.into(), stderr: stderr.into() };
        Ok((ours, OutputEnds { stdout: kernel_stdout.into(), stderr: kernel_stderr.into() }))
    }
}
