//! Contents and attributes of the files in a tree.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::fs::{fchmod, fchown, fsetxattr, ftruncate};

use super::tar_stream::Entry;

/// Size of the parts in which a file is written; a part of zeros becomes a hole.
const PART: usize = 64 << 10;

/// A file that is being written. Zeros become holes.
pub(super) struct Writer<'a> {
    file: &'a File,
    buffer: Vec<u8>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(file: &'a File) -> Self {
        Self { file, buffer: vec![0; PART] }
    }

    /// Writes `length` bytes of `read` at `offset`.
    pub(super) fn copy(
        &mut self,
        mut offset: u64,
        length: u64,
        read: &mut impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<()> {
        let end = offset + length;
        while offset < end {
            let part = usize::try_from(end - offset).unwrap_or(PART).min(PART);
            let mut filled = 0;
            while filled < part {
                match read(&mut self.buffer[filled..part])? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    count => filled += count,
                }
            }
            // Holes smaller than a block of the file system save nothing.
            if part < 4096 || self.buffer[..part].iter().any(|byte| *byte != 0) {
                self.file.write_all_at(&self.buffer[..part], offset)?;
            }
            offset += part as u64;
        }
        Ok(())
    }

    /// Sets the size of the file, which may end with a hole.
    pub(super) fn finish(self, size: u64) -> io::Result<()> {
        Ok(ftruncate(self.file, size)?)
    }
}

/// Sets owner, extended attributes and permissions, in this order: a change of the owner clears set-id bits and capabilities.
pub(super) fn set_attributes(file: impl AsFd, entry: &Entry) -> rustix::io::Result<()> {
    let (uid, gid) = ids(entry);
    fchown(&file, Some(uid), Some(gid))?;
    for (name, value) in &entry.xattrs {
        fsetxattr(&file, name.as_str(), value, XattrFlags::empty())?;
    }
    fchmod(&file, Mode::from_raw_mode(entry.mode))
}

pub(super) fn ids(entry: &Entry) -> (Uid, Gid) {
    // Larger ids have been refused.
    let id = |id: u64| u32::try_from(id).unwrap_or(crate::files::MAX_ID);
    (Uid::from_raw(id(entry.uid)), Gid::from_raw(id(entry.gid)))
}

pub(super) fn times((seconds, nanoseconds): (i64, u32)) -> Timestamps {
    let time = Timespec { tv_sec: seconds, tv_nsec: i64::from(nanoseconds) };
    Timestamps { last_access: time, last_modification: time }
}
