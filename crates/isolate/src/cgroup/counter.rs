//! Counters of processor time, kept open: reading one takes a single system call.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::{Error, Result};

/// Counter of the processor time of a group. Reading it fails after the group was removed.
#[derive(Debug)]
pub(crate) struct CpuCounter {
    file: File,
    /// Units of the file in a microsecond.
    per_us: u64,
}

impl CpuCounter {
    pub(super) fn open(path: &Path, per_us: u64) -> Result<Self> {
        let file = File::open(path).map_err(|source| Error::Path {
            action: "open",
            path: path.to_owned(),
            source,
        })?;
        Ok(Self { file, per_us })
    }

    /// Reads the processor time since the group was created, microseconds.
    pub(crate) fn read_us(&self) -> io::Result<u64> {
        // Version 1: a number. Version 2: `usage_usec`, a number, and lines that do not matter.
        let mut text = [0; 64];
        let length = self.file.read_at(&mut text, 0)?;
        let text = String::from_utf8_lossy(&text[..length]);
        let number = text.split_whitespace().find_map(|word| word.parse::<u64>().ok());
        number.map(|number| number / self.per_us).ok_or(io::ErrorKind::InvalidData.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_read_again_and_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("counter");
        for (text, per_us) in [("1234567\n", 1000), ("usage_usec 1234\nuser_usec 17\nsystem_usec 9\n", 1)] {
            std::fs::write(&path, text).unwrap();
            let counter = CpuCounter::open(&path, per_us).unwrap();
            assert_eq!([counter.read_us().unwrap(), counter.read_us().unwrap()], [1234, 1234]);
        }
        std::fs::write(&path, "").unwrap();
        assert!(CpuCounter::open(&path, 1).unwrap().read_us().is_err());
    }
}
