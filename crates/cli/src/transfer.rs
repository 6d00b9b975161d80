//! Progress of a copy: a bar on standard error, if that is a terminal and the file is large.

use std::io::{IsTerminal, Result};
use std::pin::Pin;
use std::task::{Context, Poll};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Size from which a bar is shown, in bytes. Smaller files are copied before anybody reads it.
const LARGE: u64 = 4 << 20;

/// The progress of one file.
#[derive(Debug)]
pub struct Transfer(Option<ProgressBar>);

impl Transfer {
    /// Starts the display. Without a size, the bar shows bytes alone, once there are enough of them.
    pub fn new(name: &str, size: Option<u64>) -> Self {
        if !std::io::stderr().is_terminal() || size.is_some_and(|size| size < LARGE) {
            return Self(None);
        }
        let (bar, template) = match size {
            Some(size) => (
                ProgressBar::new(size),
                "{prefix} [{bar:30}] {percent}% of {total_bytes} {bytes_per_sec} {eta}",
            ),
            None => (ProgressBar::no_length(), "{prefix} {bytes} {bytes_per_sec}"),
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_draw_target(ProgressDrawTarget::hidden());
        bar.set_prefix(crate::output::plain(name));
        if size.is_some() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        Self(Some(bar))
    }

    /// Whether progress is shown, so that it is worth asking for a size.
    pub fn is_wanted() -> bool {
        std::io::stderr().is_terminal()
    }

    /// A reader or writer whose bytes are counted.
    pub fn counted<T>(&self, inner: T) -> Counted<T> {
        Counted { inner, bar: self.0.clone() }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// A reader or writer that moves a bar.
pub struct Counted<T> {
    inner: T,
    bar: Option<ProgressBar>,
}

impl<T> Counted<T> {
    fn count(&self, bytes: usize) {
        let Some(bar) = &self.bar else { return };
        bar.inc(bytes as u64);
        if bar.length().is_none() && bar.position() >= LARGE && bar.is_hidden() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        self.count(buffer.filled().len() - before);
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        if let Poll::Ready(Ok(length)) = &written {
            self.count(*length);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
