//! The connections that requests travel on.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;
use tokio::net::TcpStream;

/// A connection to the server, plain or with TLS.
#[derive(Debug)]
pub(crate) enum Stream {
    /// Over a network.
    Plain(TokioIo<TcpStream>),
    /// Over a network, with TLS.
    Secure(Box<MaybeHttpsStream<TokioIo<TcpStream>>>),
    /// Within this process.
    Here(TokioIo<DuplexStream>),
}

/// Calls a method of the stream within, pinned.
macro_rules! within {
    ($connection:expr, $method:ident($($argument:expr),*)) => {
        match $connection.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).$method($($argument),*),
            Stream::Secure(stream) => Pin::new(stream).$method($($argument),*),
            Stream::Here(stream) => Pin::new(stream).$method($($argument),*),
        }
    };
}

impl Read for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        within!(self, poll_read(context, buffer))
    }
}

impl Write for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        within!(self, poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        within!(self, poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        within!(self, poll_shutdown(context))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Secure(stream) => stream.is_write_vectored(),
            Self::Here(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        within!(self, poll_write_vectored(context, slices))
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        match self {
            Self::Plain(stream) => stream.connected(),
            Self::Secure(stream) => stream.connected(),
            Self::Here(_) => Connected::new(),
        }
    }
}
