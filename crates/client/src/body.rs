//! Reads a body as it arrives, cut into lines or pieces of known length.

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::{BodyExt, Collected, Limited};
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::error::{Error, Result};

/// Maximum length of a line, bytes.
const MAX_LINE: usize = 32 << 20;
/// Maximum size of an answer that is kept in memory, bytes.
const MAX_ANSWER: usize = 32 << 20;

/// Maximum number of objects and lists in an answer of an agent.
const MAX_OBJECTS: usize = 250_000;

/// Receives a whole body.
pub(crate) async fn whole(body: Incoming, url: String) -> Result<Bytes> {
    let body = Limited::new(body, MAX_ANSWER).collect().await;
    body.map(Collected::to_bytes).map_err(|cause| Error::Unreachable { url, cause })
}

/// Receives the JSON message of an agent. What runs in a sandbox may have replaced the agent, and an entry of a list takes a hundred times
/// the memory of `{}`, so that the number of entries is limited too.
pub(crate) async fn message<T: DeserializeOwned>(body: Incoming, url: String) -> Result<T> {
    let body = whole(body, url.clone()).await?;
    if body.iter().filter(|byte| matches!(byte, b'{' | b'[')).count() > MAX_OBJECTS {
        return Err(Error::Malformed { url, reason: "it has too many entries".into() });
    }
    serde_json::from_slice(&body).map_err(|error| Error::Malformed { url, reason: error.to_string() })
}

/// Copies a body to `out` as it arrives, and tells `on_progress` how many bytes have been copied.
pub(crate) async fn copy(
    mut body: Incoming,
    url: String,
    out: &mut (impl AsyncWrite + Unpin),
    mut on_progress: impl FnMut(u64),
) -> Result<()> {
    let mut copied = 0;
    on_progress(copied);
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(cause) => return Err(Error::Unreachable { url, cause: cause.into() }),
        };
        if let Ok(data) = frame.into_data() {
            out.write_all(&data).await.map_err(Error::Output)?;
            copied += data.len() as u64;
            on_progress(copied);
        }
    }
    out.flush().await.map_err(Error::Output)
}

/// A body that is being received, and bytes read ahead.
pub(crate) struct Pieces {
    body: Incoming,
    buffer: BytesMut,
    /// Whether what follows is the rest of a line that is too long.
    is_skipping: bool,
    url: String,
}

impl Pieces {
    pub(crate) fn new(body: Incoming, url: String) -> Self {
        Self { body, buffer: BytesMut::new(), is_skipping: false, url }
    }

    /// Reads the next line, without its end; the last one need not have an end. `None` at the end of the body.
    pub(crate) async fn line(&mut self) -> Result<Option<Bytes>> {
        match self.line_within(MAX_LINE).await? {
            Some(None) => Err(Error::LongLine { url: self.url.clone(), limit: MAX_LINE }),
            line => Ok(line.flatten()),
        }
    }

    /// Reads the next line as [`Pieces::line`] does; `Some(None)` when it is longer than `max` bytes. The rest of such a line is left out by the next call.
    pub(crate) async fn line_within(&mut self, max: usize) -> Result<Option<Option<Bytes>>> {
        let mut searched = 0;
        loop {
            if let Some(at) = self.buffer[searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(searched + at).freeze();
                self.buffer.advance(1);
                searched = 0;
                if !std::mem::take(&mut self.is_skipping) {
                    return Ok(Some((line.len() <= max).then_some(line)));
                }
                continue;
            }
            searched = self.buffer.len();
            if searched > max || self.is_skipping {
                self.buffer.clear();
                searched = 0;
                if !std::mem::replace(&mut self.is_skipping, true) {
                    return Ok(Some(None));
                }
            }
            if !self.fill().await? {
                return Ok((searched > 0).then(|| Some(self.buffer.split().freeze())));
            }
        }
    }

    /// Reads exactly `length` bytes; `None` when the body ends before the first of them.
    pub(crate) async fn exactly(&mut self, length: usize) -> Result<Option<Bytes>> {
        while self.buffer.len() < length {
            if !self.fill().await? {
                if self.buffer.is_empty() {
                    return Ok(None);
                }
                return Err(self.malformed("the body ends in the middle of a message"));
            }
        }
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    pub(crate) fn malformed(&self, reason: impl ToString) -> Error {
        Error::Malformed { url: self.url.clone(), reason: reason.to_string() }
    }

    async fn fill(&mut self) -> Result<bool> {
        while let Some(frame) = self.body.frame().await {
            let frame =
                frame.map_err(|error| Error::Unreachable { url: self.url.clone(), cause: error.into() })?;
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(&data);
                return Ok(true);
            }
        }
        Ok(false)
    }
}
