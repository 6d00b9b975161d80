//! SHA-256 digests, and readers that compute them.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest, written `sha256:<64 hex digits>`. Registries in use have no other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Digest([u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest with these bytes.
    pub(crate) fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The digest that `hasher` has computed.
    pub(crate) fn from_hasher(hasher: Sha256) -> Self {
        Self(hasher.finalize().into())
    }

    /// The digest's bytes.
    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The hex digits.
    pub(crate) fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl FromStr for Digest {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "a digest has to be `sha256:` and 64 lowercase hex digits";
        let hex = text.strip_prefix("sha256:").ok_or(WRONG)?.as_bytes();
        let mut bytes = [0; 32];
        if hex.len() != 64 {
            return Err(WRONG);
        }
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            let digit = |at: u8| match at {
                b'0'..=b'9' => Ok(at - b'0'),
                b'a'..=b'f' => Ok(at - b'a' + 10),
                _ => Err(WRONG),
            };
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Digest {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A reader that computes the digest of everything read through it, and fails after `limit` bytes.
pub(crate) struct Hashing<R> {
    inner: R,
    hasher: Sha256,
    left: u64,
    is_over: bool,
}

impl<R: Read> Hashing<R> {
    pub(crate) fn new(inner: R, limit: u64) -> Self {
        Self { inner, hasher: Sha256::new(), left: limit, is_over: false }
    }

    /// Whether the limit has been exceeded.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// The digest of what has been read.
    pub(crate) fn digest(self) -> Digest {
        Digest::from_hasher(self.hasher)
    }

    /// Reads to the end and returns the digest of the whole.
    pub(crate) fn finish(mut self) -> io::Result<Digest> {
        let mut rest = vec![0; 64 << 10];
        while self.read(&mut rest)? > 0 {}
        Ok(self.digest())
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let Some(left) = self.left.checked_sub(count as u64) else {
            self.is_over = true;
            return Err(io::Error::other("more data than the limit allows"));
        };
        self.left = left;
        self.hasher.update(&buffer[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_read_and_written() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(empty.parse::<Digest>().unwrap(), Digest::of(b""));
        assert_eq!(Digest::of(b"").to_string(), empty);
        for wrong in [
            "",
            "sha256:",
            &empty[7..],
            &empty.to_uppercase(),
            &format!("{empty}0"),
            &empty.replace('e', "é"),
        ] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_reader_hashes_to_the_end_and_has_a_limit() {
        let mut reader = Hashing::new(&b"hello world"[..], 11);
        reader.read_exact(&mut [0; 3]).unwrap();
        assert_eq!(reader.finish().unwrap(), Digest::of(b"hello world"));
        assert!(Hashing::new(&b"hello world"[..], 10).finish().is_err());
    }
}
