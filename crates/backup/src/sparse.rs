//! Sparse files: the parts of a file that are on disk, and the map of them that precedes their data in an archive (version 1.0 of GNU tar).

use std::io::{self, Read};
use std::os::fd::AsFd;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

pub(crate) const BLOCK: usize = 512;
/// Maximum number of parts that are read.
const MAX_PARTS: u64 = 16 << 20;

/// Offset and length of a part.
pub(crate) type Part = (u64, u64);

/// The parts of a file of `size` bytes that hold data.
pub(crate) fn parts(file: impl AsFd, size: u64) -> io::Result<Vec<Part>> {
    let mut parts = Vec::new();
    let mut at = 0;
    while at < size {
        let begin = match seek(&file, SeekFrom::Data(at)) {
            Ok(begin) => begin.min(size),
            // Nothing but a hole up to the end.
            Err(Errno::NXIO) => break,
            // A file system that does not know.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(vec![(0, size)]),
            Err(error) => return Err(error.into()),
        };
        let end = seek(&file, SeekFrom::Hole(begin))?.min(size);
        if end > begin {
            parts.push((begin, end - begin));
        }
        at = end.max(begin + 1);
    }
    Ok(parts)
}

/// The map of `parts`, padded to whole blocks.
pub(crate) fn map(parts: &[Part]) -> Vec<u8> {
    let mut text = format!("{}\n", parts.len());
    for (offset, length) in parts {
        text.push_str(&format!("{offset}\n{length}\n"));
    }
    let mut map = text.into_bytes();
    map.resize(map.len().next_multiple_of(BLOCK), 0);
    map
}

/// Reads the map that precedes `left` bytes of a member, for a file of `size` bytes. Returns the parts and the bytes that are left.
pub(crate) fn read_map(input: &mut impl Read, left: u64, size: u64) -> io::Result<(Vec<Part>, u64)> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "the map of a sparse file is malformed");
    let mut reader = Numbers { input, block: [0; BLOCK], at: BLOCK, read: 0 };
    let count = reader.next()?.filter(|count| *count <= MAX_PARTS).ok_or_else(wrong)?;
    let (mut parts, mut end, mut total) = (Vec::new(), 0_u64, 0_u64);
    for _ in 0..count {
        let (offset, length) = (reader.next()?.ok_or_else(wrong)?, reader.next()?.ok_or_else(wrong)?);
        if offset < end {
            return Err(wrong());
        }
        end = offset.checked_add(length).ok_or_else(wrong)?;
        total += length;
        parts.push((offset, length));
    }
    let left = left.checked_sub(reader.read).filter(|left| *left == total && end <= size);
    Ok((parts, left.ok_or_else(wrong)?))
}

/// Decimal numbers, one on each line.
struct Numbers<'a, R> {
    input: &'a mut R,
    block: [u8; BLOCK],
    at: usize,
    read: u64,
}

impl<R: Read> Numbers<'_, R> {
    /// The next number; `None` for anything else.
    fn next(&mut self) -> io::Result<Option<u64>> {
        let (mut number, mut digits) = (0_u64, 0);
        loop {
            if self.at == BLOCK {
                self.input.read_exact(&mut self.block)?;
                self.at = 0;
                self.read += BLOCK as u64;
            }
            let byte = self.block[self.at];
            self.at += 1;
            match byte {
                b'0'..=b'9' if digits < 19 => number = number * 10 + u64::from(byte - b'0'),
                b'\n' if digits > 0 => return Ok(Some(number)),
                _ => return Ok(None),
            }
            digits += 1;
        }
    }
}
