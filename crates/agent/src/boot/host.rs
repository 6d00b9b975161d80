//! The conversation with the host at boot; see [`sandcove_wire::boot::BOOT_FD`].

use std::io::{self, BufRead, BufReader as StdBufReader};
use std::os::unix::net::UnixStream as StdUnixStream;

use sandcove_wire::boot::{Assignment, Boot, READY};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::error::{BootError, system};

/// The socket to the host, until the sandbox is assigned.
#[derive(Debug)]
pub(super) struct Host {
    stream: BufReader<UnixStream>,
}

impl Host {
    /// Reads the first line. Blocks, as there is nothing else to do yet.
    pub(super) fn meet(stream: StdUnixStream) -> io::Result<(Boot, Self)> {
        let mut line = Vec::new();
        // The host writes no second line before the first is answered, so nothing is left in the buffer.
        StdBufReader::new(&stream).read_until(b'\n', &mut line)?;
        let boot = parse(&line)?;
        stream.set_nonblocking(true)?;
        Ok((boot, Self { stream: BufReader::new(UnixStream::from_std(stream)?) }))
    }

    /// Acknowledges the last line, with [`READY`].
    pub(super) async fn acknowledge(&mut self) -> Result<(), BootError> {
        self.stream.write_all(&[READY]).await.map_err(system("answer the host"))
    }

    /// Waits for the assignment; `None` when the host does not need this sandbox.
    pub(super) async fn assignment(&mut self) -> Result<Option<Assignment>, BootError> {
        let mut line = Vec::new();
        let length = self.stream.read_until(b'\n', &mut line).await.map_err(BootError::Message)?;
        if length == 0 {
            return Ok(None);
        }
        parse(&line).map(Some).map_err(BootError::Message)
    }
}

fn parse<T: DeserializeOwned>(line: &[u8]) -> io::Result<T> {
    // Without the text of the line, which contains the token.
    serde_json::from_slice(line)
        .map_err(|error| io::Error::other(format!("line {}, column {}", error.line(), error.column())))
}
