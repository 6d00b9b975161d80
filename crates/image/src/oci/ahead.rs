//! Decompresses and hashes a layer on a thread of its own, a few parts ahead of the thread that writes files.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use super::compression::decompress;
use super::digest::{Digest, Hashing};

/// Size of a part, bytes.
const PART: usize = 128 << 10;
/// Maximum number of parts that are read ahead.
const PARTS: usize = 16;

/// How reading ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// All has been read; the digest of the uncompressed data.
    Whole(Digest),
    /// The work ended before.
    Stopped,
    /// There is more uncompressed data than the limit.
    TooLong,
    /// The data cannot be read or decompressed.
    Failed(io::Error),
}

/// Runs `work` with the uncompressed data of `compressed`, of which up to `limit` bytes are read. The data ends early for `work` if reading
/// fails; the second result says so.
pub(super) fn with<T>(
    compressed: impl Read + Send,
    limit: u64,
    work: impl FnOnce(&mut Parts) -> T,
) -> io::Result<(T, Ended)> {
    let (full, parts) = sync_channel(PARTS);
    let (used, empty) = channel();
    thread::scope(|scope| {
        let reader = thread::Builder::new()
            .name("decompress".to_owned())
            .spawn_scoped(scope, move || read(compressed, limit, &full, &empty))?;
        let mut parts = Parts { parts, used, part: Vec::new(), position: 0 };
        let done = work(&mut parts);
        drop(parts);
        let ended = reader.join().unwrap_or_else(|_| Ended::Failed(io::Error::other("the decoder failed")));
        Ok((done, ended))
    })
}

fn read(
    compressed: impl Read + Send,
    limit: u64,
    full: &SyncSender<Vec<u8>>,
    empty: &Receiver<Vec<u8>>,
) -> Ended {
    let mut input = match decompress(compressed) {
        Ok(input) => Hashing::new(input, limit),
        Err(error) => return Ended::Failed(error),
    };
    loop {
        let mut part = empty.try_recv().unwrap_or_default();
        part.resize(PART, 0);
        match input.read(&mut part) {
            Ok(0) => break,
            Ok(count) => part.truncate(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) if input.is_over() => return Ended::TooLong,
            Err(error) => return Ended::Failed(error),
        }
        if full.send(part).is_err() {
            return Ended::Stopped;
        }
    }
    Ended::Whole(input.digest())
}

/// The uncompressed data.
pub(super) struct Parts {
    parts: Receiver<Vec<u8>>,
    used: Sender<Vec<u8>>,
    part: Vec<u8>,
    position: usize,
}

impl Read for Parts {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.position == self.part.len() {
            let Ok(next) = self.parts.recv() else { return Ok(0) };
            let used = std::mem::replace(&mut self.part, next);
            // The reader may have ended.
            let _ = self.used.send(used);
            self.position = 0;
        }
        let count = buffer.len().min(self.part.len() - self.position);
        buffer[..count].copy_from_slice(&self.part[self.position..self.position + count]);
        self.position += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_data_arrives_in_order() {
        let data: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
        let read = |limit| {
            let mut found = Vec::new();
            let (_, ended) = with(&data[..], limit, |parts| parts.read_to_end(&mut found)).unwrap();
            (found, ended)
        };
        let (found, ended) = read(4_000_000);
        assert!(found == data && matches!(ended, Ended::Whole(digest) if digest == Digest::of(&data)));
        assert!(matches!(read(3_999_999).1, Ended::TooLong));
        let (part, ended) = with(&data[..], u64::MAX, |parts| parts.read_exact(&mut [0; 10])).unwrap();
        assert!(part.is_ok() && matches!(ended, Ended::Stopped));
        let (_, ended) = with(&[0x1f, 0x8b, 8, 9][..], u64::MAX, |parts| parts.read(&mut [0; 10])).unwrap();
        assert!(matches!(ended, Ended::Failed(_)));
    }
}
