//! An output pipe of a kernel, to which C libraries and child processes write.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use tokio::net::unix::pipe::Receiver;

/// Default capacity of a pipe, in bytes. What a kernel wrote before it sent a frame fits into it.
const CAPACITY: usize = 64 << 10;

/// The reading end of a pipe. Decodes text, and keeps a character that is not complete yet.
#[derive(Debug)]
pub struct OutputPipe {
    /// `None` after end of file.
    receiver: Option<Receiver>,
    /// Bytes of a character whose rest has not come.
    partial: Vec<u8>,
}

impl OutputPipe {
    /// Registers the reading end of a pipe with the runtime.
    pub fn open(end: OwnedFd) -> io::Result<Self> {
        Ok(Self { receiver: Some(Receiver::from_owned_fd(end)?), partial: Vec::new() })
    }

    /// Waits for text, for ever once all writers are gone. Cancellation loses nothing.
    pub async fn read(&mut self) -> String {
        loop {
            let Some(receiver) = &self.receiver else { return std::future::pending().await };
            let mut bytes = vec![0; CAPACITY];
            let read = match receiver.readable().await {
                Ok(()) => receiver.try_read(&mut bytes),
                Err(error) => Err(error),
            };
            match read {
                Ok(length) if length > 0 => {
                    bytes.truncate(length);
                    return self.decode(bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(_) | Err(_) => self.receiver = None,
            }
        }
    }

    /// Takes what has been written up to now. Reads the descriptor itself, as the runtime may not have noticed the data yet.
    pub fn drain(&mut self) -> String {
        let mut taken = Vec::new();
        while let Some(receiver) = &self.receiver {
            let mut bytes = vec![0; CAPACITY];
            match rustix::io::read(receiver, &mut bytes) {
                Ok(0) => self.receiver = None,
                Ok(length) => taken.extend_from_slice(&bytes[..length]),
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
            // A background process that never stops writing must not keep this loop going.
            if taken.len() >= CAPACITY {
                break;
            }
        }
        self.decode(taken)
    }

    fn decode(&mut self, bytes: Vec<u8>) -> String {
        self.partial.extend(bytes);
        let keep = unfinished(&self.partial);
        let rest = self.partial.split_off(self.partial.len() - keep);
        let text = String::from_utf8_lossy(&self.partial).into_owned();
        self.partial = rest;
        text
    }
}

/// Counts the bytes at the end that are the beginning of a longer character.
fn unfinished(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let length = match bytes[bytes.len() - back] {
            0xC0..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF7 => 4,
            0x80..=0xBF => continue,
            _ => return 0,
        };
        return if length > back { back } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_cut_in_two_is_kept_until_it_is_whole() {
        let mut pipe = OutputPipe { receiver: None, partial: Vec::new() };
        let euro = "€".as_bytes();
        assert_eq!(pipe.decode([b"a", &euro[..2]].concat()), "a");
        assert_eq!(pipe.decode(euro[2..].to_vec()), "€");
        assert_eq!(pipe.decode(vec![0xff, b'b']), "\u{fffd}b");
    }
}
