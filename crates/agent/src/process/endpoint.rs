//! The daemon's ends of a process's streams: non-blocking pipe ends and terminals.

use std::io;
use std::os::fd::OwnedFd;

use bytes::Bytes;
use rustix::fs::OFlags;
use rustix::pipe::PipeFlags;
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Limit on one read from a pipe, in bytes (contract: envd, section 2.3).
pub const PIPE_CHUNK: usize = 32 << 10;
/// Limit on one read from a terminal, in bytes.
pub const TERMINAL_CHUNK: usize = 16 << 10;

/// An end of a pipe, or the controlling side of a terminal.
#[derive(Debug)]
pub struct Endpoint {
    fd: AsyncFd<OwnedFd>,
}

impl Endpoint {
    fn new(fd: OwnedFd, interest: Interest) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
        Ok(Self { fd: super::sys::watch(fd, interest)? })
    }

    /// Makes a pipe that the daemon reads; the second is the end for the process.
    pub fn output() -> io::Result<(Self, OwnedFd)> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        Ok((Self::new(read, Interest::READABLE)?, write))
    }

    /// Makes a pipe that the daemon writes; the second is the end for the process.
    pub fn input() -> io::Result<(Self, OwnedFd)> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        Ok((Self::new(write, Interest::WRITABLE)?, read))
    }

    /// Makes a terminal for the user with `uid`; the second is the side for the process.
    pub fn terminal(size: Winsize, uid: u32) -> io::Result<(Self, OwnedFd)> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = rustix::pty::openpt(flags)?;
        rustix::pty::unlockpt(&ours)?;
        let theirs = rustix::pty::ioctl_tiocgptpeer(&ours, flags)?;
        rustix::termios::tcsetwinsize(&ours, size)?;
        // The process may open it by name. If it cannot be given away it still works through the descriptor.
        let _ = rustix::fs::fchown(&theirs, Some(rustix::fs::Uid::from_raw(uid)), None);
        Ok((Self::new(ours, Interest::READABLE | Interest::WRITABLE)?, theirs))
    }

    /// Waits for bytes; none at the end. A terminal whose last holder is gone answers `EIO`, which is an end too.
    ///
    /// Cancel safe: bytes that were read are returned.
    pub async fn read(&self, limit: usize) -> io::Result<Bytes> {
        let read = self.fd.async_io(Interest::READABLE, |fd| read_now(fd, limit)).await;
        read.or_else(
            |error| if error.raw_os_error() == Some(libc::EIO) { Ok(Bytes::new()) } else { Err(error) },
        )
    }

    /// Reads available bytes without waiting; none if there are none.
    pub fn read_available(&self, limit: usize) -> Bytes {
        read_now(self.fd.get_ref(), limit).unwrap_or_default()
    }

    /// Writes all of `bytes`, and waits while the other side has no room. When cancelled, a part may have been written.
    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written =
                self.fd.async_io(Interest::WRITABLE, |fd| Ok(rustix::io::write(fd, bytes)?)).await?;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// Changes the size of a terminal; its foreground processes get SIGWINCH.
    pub fn resize(&self, size: Winsize) -> io::Result<()> {
        Ok(rustix::termios::tcsetwinsize(self.fd.get_ref(), size)?)
    }
}

/// Reads a chunk, onto the stack first, so that a few bytes do not keep a large buffer alive.
fn read_now(fd: &OwnedFd, limit: usize) -> io::Result<Bytes> {
    let mut buffer = [0; PIPE_CHUNK];
    let read = rustix::io::read(fd, &mut buffer[..limit.min(PIPE_CHUNK)])?;
    Ok(Bytes::copy_from_slice(&buffer[..read]))
}
