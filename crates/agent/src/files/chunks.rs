//! The body of a download: one chunk is read on a blocking thread while the one before it is on its way to the client.
//!
//! A thread is used for one read at a time, so that clients that read slowly do not use them up. Buffers are reused once the
//! connection is done with them; allocating new ones costs as much as reading.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::Stream;
use tokio::task::JoinHandle;

/// Bytes read at a time: large enough that switching threads costs little, small enough to stay in the cache.
pub(super) const CHUNK: usize = 512 << 10;

/// A source of the pieces of a body, which ends with an empty piece and may block.
pub(super) trait Source: Send + 'static {
    /// Reads the next piece.
    fn next_chunk(&mut self) -> io::Result<Bytes>;
}

/// The bytes of a file as they are, exactly as many as promised.
pub(super) struct Plain {
    file: File,
    left: u64,
    buffers: Arc<Buffers>,
}

impl Plain {
    /// Makes a source of the next `length` bytes of `file`.
    pub(super) fn new(file: File, length: u64) -> Self {
        Self { file, left: length, buffers: Arc::default() }
    }
}

impl Source for Plain {
    fn next_chunk(&mut self) -> io::Result<Bytes> {
        let wanted = usize::try_from(self.left).map_or(CHUNK, |left| left.min(CHUNK));
        if wanted == 0 {
            return Ok(Bytes::new());
        }
        let mut buffer = self.buffers.take(wanted);
        // A file that got shorter meanwhile fails here: the client must not take a part for the whole.
        self.file.read_exact(&mut buffer[..wanted])?;
        self.left -= wanted as u64;
        Ok(Bytes::from_owner(PooledBuffer { buffer, length: wanted, home: Arc::clone(&self.buffers) }))
    }
}

#[derive(Default)]
struct Buffers(Mutex<Vec<Box<[u8]>>>);

impl Buffers {
    fn take(&self, length: usize) -> Box<[u8]> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.filter(|buffer| buffer.len() >= length).unwrap_or_else(|| vec![0; length].into())
    }
}

struct PooledBuffer {
    buffer: Box<[u8]>,
    length: usize,
    home: Arc<Buffers>,
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        self.home.0.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
    }
}

/// The bytes of a file, compressed.
pub(super) struct Gzip {
    file: File,
    /// Encoder; absent once everything is written.
    encoder: Option<GzEncoder<Vec<u8>>>,
    buffer: Box<[u8]>,
}

impl Gzip {
    /// Makes a source of `file` from its position to its end.
    pub(super) fn new(file: File) -> Self {
        // The fastest level: compressing is what limits the speed of the download.
        let encoder = GzEncoder::new(Vec::new(), Compression::fast());
        Self { file, encoder: Some(encoder), buffer: vec![0; CHUNK].into() }
    }
}

impl Source for Gzip {
    fn next_chunk(&mut self) -> io::Result<Bytes> {
        while let Some(encoder) = &mut self.encoder {
            let read = self.file.read(&mut self.buffer)?;
            encoder.write_all(&self.buffer[..read])?;
            let written = std::mem::take(encoder.get_mut());
            if read == 0 {
                let Some(encoder) = self.encoder.take() else { break };
                // The rest after the pieces taken out so far.
                let mut rest = written;
                rest.append(&mut encoder.finish()?);
                return Ok(rest.into());
            }
            if !written.is_empty() {
                return Ok(written.into());
            }
        }
        Ok(Bytes::new())
    }
}

/// Whether compressing a file is worth the time, judged by its first bytes. Content that does not get smaller (archives,
/// pictures, films) would only arrive later: compressing is many times slower than sending.
pub(super) fn is_compressible(file: &File, size: u64) -> io::Result<bool> {
    const SAMPLE: usize = 64 << 10;
    if size < 2 * SAMPLE as u64 {
        return Ok(true);
    }
    let mut sample = vec![0; SAMPLE];
    let read = file.read_at(&mut sample, 0)?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&sample[..read])?;
    Ok(encoder.finish()?.len() < read / 20 * 19)
}

type Step<S> = (S, io::Result<Bytes>);

/// The stream of the pieces of a [`Source`].
pub(super) struct Chunks<S> {
    first: Option<Bytes>,
    /// The read in progress; absent after the end.
    next: Option<JoinHandle<Step<S>>>,
}

impl<S: Source> Chunks<S> {
    /// Makes the stream that continues after `first`, which has been read already.
    pub(super) fn after(first: Bytes, source: S) -> Self {
        Self { first: Some(first), next: Some(read(source)) }
    }
}

fn read<S: Source>(mut source: S) -> JoinHandle<Step<S>> {
    tokio::task::spawn_blocking(move || {
        let chunk = source.next_chunk();
        (source, chunk)
    })
}

impl<S: Source> Stream for Chunks<S> {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if let Some(first) = self.first.take().filter(|first| !first.is_empty()) {
            return Poll::Ready(Some(Ok(first)));
        }
        let Some(reading) = &mut self.next else { return Poll::Ready(None) };
        let step = ready!(Pin::new(reading).poll(cx));
        self.next = None;
        Poll::Ready(match step {
            Err(panicked) => Some(Err(io::Error::other(panicked))),
            Ok((_, Ok(chunk))) if chunk.is_empty() => None,
            Ok((source, Ok(chunk))) => {
                self.next = Some(read(source));
                Some(Ok(chunk))
            }
            Ok((_, Err(error))) => Some(Err(error)),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Seek;

    use futures_util::TryStreamExt;

    use super::*;

    fn file(content: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file.rewind().unwrap();
        file
    }

    async fn collect(source: impl Source) -> io::Result<Vec<u8>> {
        let chunks: Vec<Bytes> = Chunks::after(Bytes::new(), source).try_collect().await?;
        Ok(chunks.concat())
    }

    #[tokio::test]
    async fn all_bytes_arrive_in_order_in_both_codings() {
        let content: Vec<u8> = (0..3 * CHUNK + 17).map(|n| (n % 251) as u8).collect();
        let plain = collect(Plain::new(file(&content), content.len() as u64)).await.unwrap();
        assert!(plain == content);
        let zipped = collect(Gzip::new(file(&content))).await.unwrap();
        let mut unzipped = Vec::new();
        flate2::read::GzDecoder::new(&*zipped).read_to_end(&mut unzipped).unwrap();
        assert!(unzipped == content);
    }

    #[test]
    fn only_what_gets_smaller_is_compressed() {
        let mut state = 1u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .take(300_000)
        .collect();
        assert!(!is_compressible(&file(&noise), 300_000).unwrap());
        assert!(is_compressible(&file(&noise[..1000]), 1000).unwrap());
        assert!(is_compressible(&file(&[b'x'; 300_000]), 300_000).unwrap());
    }

    #[tokio::test]
    async fn a_file_that_shrinks_breaks_the_download() {
        assert!(collect(Plain::new(file(b"abc"), 4)).await.is_err());
    }
}
