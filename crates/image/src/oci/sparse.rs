//! Maps of sparse files: which parts of a file an archive holds.

use std::io::{self, Read};

use super::pax::decimal;

/// Maximum number of parts of one file.
const MAX_PARTS: usize = 100_000;
const BLOCK: usize = 512;

/// Parts of a file by offset and length, in order, and the size of the whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SparseMap {
    pub parts: Vec<(u64, u64)>,
    pub size: u64,
}

impl SparseMap {
    /// Adds a part.
    pub(super) fn push(&mut self, offset: u64, length: u64) -> Result<(), &'static str> {
        if self.parts.len() == MAX_PARTS {
            return Err("a sparse file has more than 100000 parts");
        }
        self.parts.push((offset, length));
        Ok(())
    }

    /// Checks that the parts are in order, within the file, and together as long as the data in the archive.
    pub(super) fn check(&self, data: u64) -> Result<(), &'static str> {
        let (mut end, mut total) = (0_u64, 0_u64);
        for (offset, length) in &self.parts {
            if *offset < end {
                return Err("parts of a sparse file overlap");
            }
            end = offset.checked_add(*length).ok_or("a sparse file is too large")?;
            total = total.checked_add(*length).ok_or("a sparse file is too large")?;
        }
        if end > self.size {
            return Err("a part of a sparse file is behind its end");
        }
        if total != data {
            return Err("the parts of a sparse file do not have the size of its data");
        }
        Ok(())
    }

    /// Parses a map of version 0.1: offsets and lengths in turn, separated by commas.
    pub(super) fn from_list(text: &[u8]) -> Result<Vec<(u64, u64)>, &'static str> {
        const WRONG: &str = "the map of a sparse file is malformed";
        let mut map = Self::default();
        let mut numbers = text.split(|byte| *byte == b',').filter(|number| !number.is_empty());
        while let Some(offset) = numbers.next() {
            let offset = decimal(offset).ok_or(WRONG)?;
            let length = numbers.next().and_then(decimal).ok_or(WRONG)?;
            map.push(offset, length)?;
        }
        Ok(map.parts)
    }

    /// Reads the map of version 1.0, which precedes the data: the number of parts, then offsets and lengths, a number in each line, padded
    /// to whole blocks. Returns the parts and the number of bytes read.
    pub(super) fn read(input: &mut impl Read) -> io::Result<(Vec<(u64, u64)>, u64)> {
        let wrong = || io::Error::other("the map of a sparse file is malformed");
        let (mut map, mut offset, mut count, mut size) = (Self::default(), None, None, 0);
        let mut line = Vec::new();
        let mut block = [0; BLOCK];
        loop {
            input.read_exact(&mut block)?;
            size += BLOCK as u64;
            for byte in block {
                if count == Some(0) {
                    break;
                }
                if byte != b'\n' {
                    line.push(byte);
                    if line.len() > 20 {
                        return Err(wrong());
                    }
                    continue;
                }
                let number = decimal(&line).ok_or_else(wrong)?;
                line.clear();
                match (count, offset.take()) {
                    (None, _) => count = Some(number),
                    (Some(_), None) => offset = Some(number),
                    (Some(left), Some(start)) => {
                        map.push(start, number).map_err(io::Error::other)?;
                        count = Some(left - 1);
                    }
                }
            }
            if count == Some(0) {
                return Ok((map.parts, size));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_checked() {
        let map = |parts: &[(u64, u64)], size| SparseMap { parts: parts.to_vec(), size };
        assert_eq!(map(&[(0, 4), (8, 2), (20, 0)], 20).check(6), Ok(()));
        assert_eq!(map(&[], 20).check(0), Ok(()));
        assert!(map(&[(0, 4), (3, 2)], 20).check(6).is_err());
        assert!(map(&[(18, 4)], 20).check(4).is_err());
        assert!(map(&[(0, 4)], 20).check(5).is_err());
        assert!(map(&[(u64::MAX, 4)], 20).check(4).is_err());
    }

    #[test]
    fn maps_are_read_in_both_forms() {
        assert_eq!(SparseMap::from_list(b"0,4,8,2").unwrap(), [(0, 4), (8, 2)]);
        assert!(SparseMap::from_list(b"0,4,8").is_err());
        assert!(SparseMap::from_list(b"0,x").is_err());
        let mut text = b"2\n0\n4\n8\n2\n".to_vec();
        text.resize(512, 0);
        text.extend(b"data");
        assert_eq!(SparseMap::read(&mut &text[..]).unwrap(), (vec![(0, 4), (8, 2)], 512));
        assert_eq!(SparseMap::read(&mut &[&b"0\n"[..], &[0; 510]].concat()[..]).unwrap(), (vec![], 512));
        for wrong in [&b"x\n"[..], b"1\n0\n", b"999999999999999999999\n", b"99999999\n"] {
            let mut block = wrong.to_vec();
            block.resize(512, 0);
            assert!(SparseMap::read(&mut &block[..]).is_err());
        }
    }
}
