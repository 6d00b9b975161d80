//! Writes archives.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::fs::{fstat, openat, readlinkat, statat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use tar::EntryType;

use crate::attributes::{self, Owned};
use crate::error::{at, shown};
use crate::member::{self, DIGEST, MANIFEST, Records, SHORT};
use crate::sparse::{self, BLOCK, Part};
use crate::{Error, Manifest, Result};

/// Maximum depth of directories in a tree: each takes a descriptor.
const MAX_DEPTH: usize = 512;
/// Maximum length of a name: what can be named in a sandbox, and the directories above it. Deeper files can be made, and their names would
/// take any amount of memory.
const MAX_NAME: usize = 4096 + 256;
/// Size from which a file is compared with earlier ones, bytes: smaller ones share no data on disk.
const MIN_SHARED: u64 = 4096;
const CHUNK: usize = 256 << 10;
/// Maximum number of names in [`Written::skipped`].
const MAX_SKIPPED: usize = 100;

/// State of the files of a tree while it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Nothing changes: files with the same content are written once.
    Frozen,
    /// A program may write to files, and create and delete them.
    Live,
}

/// Summary of a finished archive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// Size of the members before compression, bytes.
    pub bytes: u64,
    /// Digest of the members, hexadecimal.
    pub sha256: String,
    /// Files that are not in the archive, with the reason; no more than a hundred.
    pub skipped: Vec<String>,
}

/// A writer of an archive.
pub struct Writer<W: Write> {
    out: zstd::Encoder<'static, W>,
    hasher: Sha256,
    /// Names of files that have more than one, by device and inode.
    links: HashMap<(u64, u64), Vec<u8>>,
    /// Names of the files of frozen trees, by digest of what they hold.
    known: HashMap<[u8; 32], Vec<u8>>,
    written: Written,
    buffer: Vec<u8>,
}

/// A directory that is being read.
struct Level {
    directory: OwnedFd,
    names: std::vec::IntoIter<CString>,
    /// Length of its name in the archive.
    length: usize,
}

impl<W: Write> Writer<W> {
    /// Begins an archive in `out`, compressed on `threads` threads beside this one.
    ///
    /// # Errors
    /// When `out` cannot be written to.
    pub fn new(out: W, manifest: &Manifest, threads: u32) -> Result<Self> {
        let mut out = zstd::Encoder::new(out, zstd::DEFAULT_COMPRESSION_LEVEL).map_err(Error::Output)?;
        out.include_checksum(true).map_err(Error::Output)?;
        out.multithread(threads).map_err(Error::Output)?;
        let mut writer = Self {
            out,
            hasher: Sha256::new(),
            links: HashMap::new(),
            known: HashMap::new(),
            written: Written::default(),
            buffer: vec![0; CHUNK],
        };
        let text = serde_json::to_vec_pretty(manifest).map_err(|error| Error::Output(error.into()))?;
        writer.plain(MANIFEST, &text)?;
        Ok(writer)
    }

    /// Adds the directory `name` of root, which is read nowhere.
    ///
    /// # Errors
    /// When the archive cannot be written.
    pub fn directory(&mut self, name: &str, mode: u32) -> Result<()> {
        let owned = Owned { uid: 0, gid: 0, mode, modified: (0, 0) };
        self.member(name.as_bytes(), EntryType::Directory, &owned, Records::default(), 0)
    }

    /// Adds an open file as `name`.
    ///
    /// # Errors
    /// When the file cannot be read, or the archive not be written.
    pub fn file(&mut self, name: &str, file: &File) -> Result<()> {
        let stat = fstat(file).map_err(at("inspect", name.as_bytes()))?;
        self.regular(name.as_bytes(), file, &stat, Reading::Live)
    }

    /// Adds everything in the directory `root`, and the directory itself, as `name`. Links are not followed.
    ///
    /// # Errors
    /// When something cannot be read, or the archive not be written.
    pub fn tree(&mut self, name: &str, root: OwnedFd, reading: Reading) -> Result<()> {
        let mut path = name.as_bytes().to_vec();
        let mut levels = vec![self.enter(&path, root)?];
        while let Some(level) = levels.last_mut() {
            path.truncate(level.length);
            let Some(found) = level.names.next() else {
                levels.pop();
                continue;
            };
            path.push(b'/');
            path.extend_from_slice(found.to_bytes());
            if path.len() > MAX_NAME {
                self.skip(&path, "its name is too long");
                continue;
            }
            let depth = levels.len();
            let Some(level) = levels.last() else { break };
            if let Some(directory) = self.entry(&level.directory, &found, &path, reading)? {
                if depth == MAX_DEPTH {
                    self.skip(&path, "it is below too many directories");
                } else {
                    levels.push(self.enter(&path, directory)?);
                }
            }
        }
        Ok(())
    }

    /// Completes the archive; it is not yet on disk.
    ///
    /// # Errors
    /// When the archive cannot be written.
    pub fn finish(mut self) -> Result<(W, Written)> {
        let digest = format!("{:x}", self.hasher.clone().finalize());
        self.plain(DIGEST, digest.as_bytes())?;
        self.put(&[0; 2 * BLOCK])?;
        self.written.sha256 = digest;
        let out = self.out.finish().map_err(Error::Output)?;
        Ok((out, self.written))
    }

    fn enter(&mut self, path: &[u8], directory: OwnedFd) -> Result<Level> {
        let stat = fstat(&directory).map_err(at("inspect", path))?;
        let records = self.xattrs(path, attributes::xattrs(&directory))?;
        self.member(path, EntryType::Directory, &owned(&stat), records, 0)?;
        let mut names = Vec::new();
        for item in Dir::read_from(&directory).map_err(at("read", path))? {
            let item = item.map_err(at("read", path))?;
            if item.file_name() != c"." && item.file_name() != c".." {
                names.push(item.file_name().to_owned());
            }
        }
        names.sort();
        Ok(Level { directory, names: names.into_iter(), length: path.len() })
    }

    /// Adds what has this name in a directory; returns it if it is a directory, which is not added yet.
    fn entry(
        &mut self,
        above: &OwnedFd,
        name: &CString,
        path: &[u8],
        reading: Reading,
    ) -> Result<Option<OwnedFd>> {
        let is_gone = |error: &Errno| reading == Reading::Live && *error == Errno::NOENT;
        let stat = match statat(above, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(error) if is_gone(&error) => return Ok(None),
            stat => stat.map_err(at("inspect", path))?,
        };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                return match openat(above, name, flags | OFlags::DIRECTORY, Mode::empty()) {
                    Err(error) if is_gone(&error) => Ok(None),
                    directory => directory.map(Some).map_err(at("open", path)),
                };
            }
            FileType::RegularFile => {
                let file = match openat(above, name, flags, Mode::empty()) {
                    Err(error) if is_gone(&error) => return Ok(None),
                    file => File::from(file.map_err(at("open", path))?),
                };
                let stat = fstat(&file).map_err(at("inspect", path))?;
                if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                    return Ok(None);
                }
                self.regular(path, &file, &stat, reading)?;
                return Ok(None);
            }
            FileType::Socket => {
                // Of no use without the process that has it open.
                self.skip(path, "it is a socket");
                return Ok(None);
            }
            kind => kind,
        };
        if stat.st_nlink > 1 && self.link(path, &stat)? {
            return Ok(None);
        }
        let mut records = self.xattrs(path, attributes::xattrs_at(above, name))?;
        let mut device = None;
        let entry = match kind {
            FileType::Symlink => {
                records.link =
                    Some(readlinkat(above, name, Vec::new()).map_err(at("read", path))?.into_bytes());
                EntryType::Symlink
            }
            FileType::Fifo => EntryType::Fifo,
            FileType::CharacterDevice | FileType::BlockDevice => {
                device = Some((rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)));
                if kind == FileType::BlockDevice { EntryType::Block } else { EntryType::Char }
            }
            _ => {
                self.skip(path, "its kind is unknown");
                return Ok(None);
            }
        };
        self.member_with(path, entry, &owned(&stat), records, 0, device)?;
        Ok(None)
    }

    /// Adds a further name of a file that has been added; false if it is the first.
    fn link(&mut self, path: &[u8], stat: &Stat) -> Result<bool> {
        let known = (stat.st_dev, stat.st_ino);
        let Some(first) = self.links.get(&known) else {
            self.links.insert(known, path.to_vec());
            return Ok(false);
        };
        let records = Records { link: Some(first.clone()), ..Records::default() };
        self.member(path, EntryType::Link, &owned(stat), records, 0)?;
        Ok(true)
    }

    fn regular(&mut self, path: &[u8], file: &File, stat: &Stat, reading: Reading) -> Result<()> {
        if stat.st_nlink > 1 && reading == Reading::Frozen && self.link(path, stat)? {
            return Ok(());
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let parts = sparse::parts(file, size).map_err(at("read", path))?;
        let mut records = self.xattrs(path, attributes::xattrs(file))?;
        if reading == Reading::Frozen && size >= MIN_SHARED {
            let digest = self.digest(file, size, &parts).map_err(at("read", path))?;
            if let Some(first) = self.known.get(&digest) {
                records.copy = Some(first.clone());
                return self.member(path, EntryType::Regular, &owned(stat), records, 0);
            }
            self.known.insert(digest, path.to_vec());
        }
        let is_whole = match *parts {
            [] => size == 0,
            [part] => part == (0, size),
            _ => false,
        };
        if is_whole {
            self.member(path, EntryType::Regular, &owned(stat), records, size)?;
            self.content(path, file, &parts)?;
            return self.pad(size);
        }
        let map = sparse::map(&parts);
        let stored = parts.iter().map(|(_, length)| length).sum::<u64>();
        records.real_size = Some(size);
        records.path = Some(path.to_vec());
        self.member(path, EntryType::Regular, &owned(stat), records, map.len() as u64 + stored)?;
        self.put(&map)?;
        self.content(path, file, &parts)?;
        self.pad(stored)
    }

    /// Digest of what a file holds, holes included.
    fn digest(&mut self, file: &File, size: u64, parts: &[Part]) -> io::Result<[u8; 32]> {
        let mut hasher = Sha256::new();
        hasher.update(size.to_le_bytes());
        for &(offset, length) in parts {
            hasher.update(offset.to_le_bytes());
            hasher.update(length.to_le_bytes());
            let mut done = 0;
            while done < length {
                let count = read_at(file, &mut self.buffer, offset + done, length - done)?;
                hasher.update(&self.buffer[..count]);
                done += count as u64;
            }
        }
        Ok(hasher.finalize().into())
    }

    fn content(&mut self, path: &[u8], file: &File, parts: &[Part]) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut copy = || {
            for &(offset, length) in parts {
                let mut done = 0;
                while done < length {
                    let count =
                        read_at(file, &mut buffer, offset + done, length - done).map_err(at("read", path))?;
                    self.put(&buffer[..count])?;
                    done += count as u64;
                }
            }
            Ok(())
        };
        let copied = copy();
        self.buffer = buffer;
        copied
    }

    fn plain(&mut self, name: &str, content: &[u8]) -> Result<()> {
        let owned = Owned { uid: 0, gid: 0, mode: 0o600, modified: (0, 0) };
        self.member(name.as_bytes(), EntryType::Regular, &owned, Records::default(), content.len() as u64)?;
        self.put(content)?;
        self.pad(content.len() as u64)
    }

    fn member(
        &mut self,
        path: &[u8],
        kind: EntryType,
        owned: &Owned,
        records: Records,
        size: u64,
    ) -> Result<()> {
        self.member_with(path, kind, owned, records, size, None)
    }

    fn member_with(
        &mut self,
        path: &[u8],
        kind: EntryType,
        owned: &Owned,
        mut records: Records,
        size: u64,
        device: Option<(u32, u32)>,
    ) -> Result<()> {
        if path.len() > SHORT {
            records.path = Some(path.to_vec());
        }
        if owned.modified.1 != 0 || owned.modified.0 < 0 {
            records.modified = Some(owned.modified);
        }
        let mut header = member::header(path, kind, owned, size);
        if let Some((major, minor)) = device {
            header
                .set_device_major(major)
                .and_then(|()| header.set_device_minor(minor))
                .map_err(Error::Output)?;
        }
        header.set_cksum();
        let records = records.encode();
        if !records.is_empty() {
            let mut extended = member::header(b"pax", EntryType::XHeader, owned, records.len() as u64);
            extended.set_cksum();
            self.put(extended.as_bytes())?;
            self.put(&records)?;
            self.pad(records.len() as u64)?;
        }
        self.put(header.as_bytes())
    }

    fn xattrs(&mut self, path: &[u8], found: io::Result<Option<attributes::Xattrs>>) -> Result<Records> {
        let found = found.map_err(at("read the attributes of", path))?;
        if found.is_none() {
            self.skip(path, "only its extended attributes, which are too large");
        }
        Ok(Records { xattrs: found.unwrap_or_default(), ..Records::default() })
    }

    fn skip(&mut self, path: &[u8], reason: &str) {
        if self.written.skipped.len() < MAX_SKIPPED {
            self.written.skipped.push(format!("{}: {reason}", shown(path)));
        }
    }

    fn pad(&mut self, size: u64) -> Result<()> {
        let over = usize::try_from(size % BLOCK as u64).unwrap_or(0);
        if over == 0 { Ok(()) } else { self.put(&[0; BLOCK][over..]) }
    }

    fn put(&mut self, data: &[u8]) -> Result<()> {
        self.hasher.update(data);
        self.written.bytes += data.len() as u64;
        self.out.write_all(data).map_err(Error::Output)
    }
}

/// Reads up to `left` bytes. A file that has become shorter meanwhile goes on with zeros.
fn read_at(file: &File, buffer: &mut [u8], offset: u64, left: u64) -> io::Result<usize> {
    let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
    match file.read_at(&mut buffer[..wanted], offset)? {
        0 => {
            buffer[..wanted].fill(0);
            Ok(wanted)
        }
        count => Ok(count),
    }
}

fn owned(stat: &Stat) -> Owned {
    Owned {
        uid: stat.st_uid,
        gid: stat.st_gid,
        mode: stat.st_mode & 0o7777,
        modified: (stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or(0)),
    }
}

impl<W: Write> std::fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("bytes", &self.written.bytes).finish_non_exhaustive()
    }
}
