//! Receives an upload completely before anything is done with it.
//!
//! Small uploads stay in memory. Of larger ones, one batch is written to a [`Spool`] on a blocking thread while the next one
//! arrives; a thread is used for one write at a time.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::task::JoinHandle;

use super::error::{Error, Result};
use super::spool::Spool;

/// Bytes written at a time; shorter uploads need no spool.
const BATCH: usize = 512 << 10;

/// A complete upload.
#[derive(Debug)]
pub(super) enum Received {
    /// A small upload, as bytes.
    Small(Vec<u8>),
    /// A large upload, as the file that holds it and its length.
    Large(Spool, u64),
}

impl Received {
    /// Length in bytes.
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Small(bytes) => bytes.len() as u64,
            Self::Large(_, length) => *length,
        }
    }
}

/// Reads `body` to its end. `near` is the directory the upload is going to.
pub(super) async fn receive(
    mut body: impl Stream<Item = Result<Bytes>> + Unpin,
    near: &Path,
) -> Result<Received> {
    let mut batch = Batch::default();
    let mut spool: Option<Spooling> = None;
    let mut length = 0;
    while let Some(bytes) = body.next().await {
        let bytes = bytes?;
        length += bytes.len() as u64;
        batch.push(bytes);
        if batch.length >= BATCH {
            let started = spool.take().unwrap_or_else(|| Spooling::start(near.to_owned()));
            spool = Some(started.write(std::mem::take(&mut batch)).await.map_err(|e| failed(&e))?);
        }
    }
    match spool {
        None => Ok(Received::Small(batch.into_vec())),
        Some(spool) => {
            let spool = spool.write(batch).await.map_err(|e| failed(&e))?;
            Ok(Received::Large(spool.finish().await.map_err(|e| failed(&e))?, length))
        }
    }
}

fn failed(error: &io::Error) -> Error {
    Error::io("failed to store the upload", error)
}

#[derive(Default)]
struct Batch {
    pieces: Vec<Bytes>,
    length: usize,
}

impl Batch {
    fn push(&mut self, bytes: Bytes) {
        self.length += bytes.len();
        self.pieces.push(bytes);
    }

    fn into_vec(self) -> Vec<u8> {
        self.pieces.concat()
    }

    fn write_to(&self, mut file: &File) -> io::Result<()> {
        // The kernel takes at most 1024 pieces in one call.
        for pieces in self.pieces.chunks(1024) {
            let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            let mut left = slices.as_mut_slice();
            IoSlice::advance_slices(&mut left, 0);
            while !left.is_empty() {
                match file.write_vectored(left) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => IoSlice::advance_slices(&mut left, written),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

/// A spool with at most one write in progress.
struct Spooling(JoinHandle<io::Result<Spool>>);

impl Spooling {
    fn start(near: PathBuf) -> Self {
        Self(tokio::task::spawn_blocking(move || Spool::open(&near)))
    }

    /// Starts writing `batch` once the previous one is written.
    async fn write(self, batch: Batch) -> io::Result<Self> {
        let spool = self.finish().await?;
        Ok(Self(tokio::task::spawn_blocking(move || batch.write_to(&spool.file).map(|()| spool))))
    }

    async fn finish(self) -> io::Result<Spool> {
        self.0.await.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};

    use futures_util::stream;

    use super::*;

    async fn receive_pieces(sizes: &[usize]) -> (Received, Vec<u8>) {
        let mut next = 0u8;
        let pieces: Vec<Bytes> = sizes
            .iter()
            .map(|size| {
                next = next.wrapping_add(1);
                vec![next; *size].into()
            })
            .collect();
        let near = tempfile::tempdir().unwrap();
        let received = receive(stream::iter(pieces.clone()).map(Ok), near.path()).await.unwrap();
        (received, pieces.concat())
    }

    #[tokio::test]
    async fn small_uploads_stay_in_memory() {
        for sizes in [&[][..], &[0], &[5, 0, 7], &[BATCH - 1]] {
            let (received, expected) = receive_pieces(sizes).await;
            assert!(matches!(received, Received::Small(bytes) if bytes == expected), "{sizes:?}");
        }
    }

    #[tokio::test]
    async fn large_uploads_arrive_whole_and_in_order() {
        let many = vec![700; 3000];
        for sizes in [&[BATCH][..], &[BATCH * 3, 1], &many, &[1, 0, BATCH, 0, BATCH / 2]] {
            let (received, expected) = receive_pieces(sizes).await;
            assert_eq!(received.len(), expected.len() as u64);
            let Received::Large(mut spool, _) = received else { panic!("{sizes:?} stayed in memory") };
            let mut content = Vec::new();
            spool.file.rewind().unwrap();
            spool.file.read_to_end(&mut content).unwrap();
            assert!(content == expected);
        }
    }

    #[tokio::test]
    async fn a_broken_body_is_an_error() {
        let near = tempfile::tempdir().unwrap();
        let body = stream::iter([Ok(Bytes::from_static(b"x")), Err(Error::bad_request("broken"))]);
        assert!(receive(body, near.path()).await.is_err());
    }
}
