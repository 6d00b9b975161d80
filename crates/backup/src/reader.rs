//! Reads archives and writes their members below a directory.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::fs::{
    fstat, ftruncate, futimens, ioctl_ficlone, linkat, makedev, mkdirat, mknodat, openat, openat2, symlinkat,
};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use tar::{EntryType, Header};

use crate::attributes::{self, MAX_XATTRS, Owned};
use crate::error::{at, shown};
use crate::member::{self, DIGEST, MANIFEST, Records};
use crate::sparse::{self, BLOCK};
use crate::{Error, FORMAT, Manifest, Result};

/// Maximum size of the manifest, bytes.
const MAX_MANIFEST: u64 = 64 << 20;
/// Maximum size of the records before a header, bytes.
const MAX_RECORDS: u64 = 2 * MAX_XATTRS as u64;
/// Memory that the decoder may need, as a power of two: more than the writer makes it need.
const WINDOW_LOG: u32 = 27;
const CHUNK: usize = 256 << 10;
/// Depth from which on members may be links, pipes and devices: inside the subvolumes and layers of the pool. Above are the server's own
/// files.
const FREE: &[u8] = b"pool/";
/// A directory of programs and libraries, which has links.
const PROGRAMS: &[u8] = b"criu/";

/// Summary of what was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// Number of members.
    pub members: u64,
    /// Size of the members, bytes.
    pub bytes: u64,
    /// Digest of the members, hexadecimal.
    pub sha256: String,
}

/// A reader of an archive, whose manifest has been read.
pub struct Reader<'a> {
    input: Hashed<zstd::Decoder<'static, BufReader<Box<dyn Read + 'a>>>>,
    manifest: Manifest,
    buffer: Vec<u8>,
}

/// A member that is about to be read.
struct Member {
    name: Vec<u8>,
    kind: EntryType,
    owned: Owned,
    size: u64,
    device: (u32, u32),
    records: Records,
}

/// A directory that members are being created in.
struct Level {
    name: Vec<u8>,
    directory: OwnedFd,
    modified: (i64, u32),
}

impl<'a> Reader<'a> {
    /// Begins to read an archive.
    ///
    /// # Errors
    /// When the input is not an archive, or was written by a later version.
    pub fn open(input: impl Read + 'a) -> Result<Self> {
        let mut decoder = zstd::Decoder::new(Box::new(input) as Box<dyn Read + 'a>).map_err(Error::Input)?;
        decoder.window_log_max(WINDOW_LOG).map_err(Error::Input)?;
        let input = Hashed { input: decoder, hasher: Sha256::new(), bytes: 0 };
        let manifest = Manifest {
            format: 0,
            version: String::new(),
            schema: 0,
            created_at: jiff::Timestamp::UNIX_EPOCH,
            counts: Default::default(),
            subvolumes: Default::default(),
        };
        let mut reader = Self { input, manifest, buffer: vec![0; CHUNK] };
        let other = |why: String| Error::NotABackup(why);
        let first = match reader.next() {
            Ok(Some(first)) if first.name == MANIFEST.as_bytes() && first.size <= MAX_MANIFEST => first,
            Ok(_) => return Err(other("it does not begin with a manifest".into())),
            Err(error) => return Err(other(error.to_string())),
        };
        let text = reader.content(first.size)?;
        let value: serde_json::Value =
            serde_json::from_slice(&text).map_err(|error| other(error.to_string()))?;
        let format = value["format"].as_u64().and_then(|format| u32::try_from(format).ok()).unwrap_or(0);
        if format > FORMAT {
            let version = value["version"].as_str().unwrap_or("of a later version").to_owned();
            return Err(Error::NewerFormat { version, format });
        }
        reader.manifest = serde_json::from_value(value).map_err(|error| other(error.to_string()))?;
        Ok(reader)
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Creates every member below `root`, and compares the digest at the end. `subvolume` is called for the name of each directory that is a
    /// subvolume, and creates it.
    ///
    /// # Errors
    /// When the archive is damaged, a name in it leads elsewhere, or a file cannot be written. Files that were created before the error remain.
    pub fn restore(
        mut self,
        root: &OwnedFd,
        subvolume: &mut dyn FnMut(&str) -> io::Result<()>,
    ) -> Result<Restored> {
        let mut levels: Vec<Level> = Vec::new();
        let mut members = 0;
        loop {
            let before = self.input.hasher.clone();
            let member = self.next()?.ok_or_else(|| Error::Damaged("it ends early".into()))?;
            if member.name == DIGEST.as_bytes() {
                while let Some(level) = levels.pop() {
                    close(&level)?;
                }
                let sha256 = format!("{:x}", before.finalize());
                self.compare(&member, &sha256)?;
                return Ok(Restored { members, bytes: self.input.bytes, sha256 });
            }
            let (above, _) = member::split(&member.name)?;
            while levels.last().is_some_and(|level| level.name != above) {
                if let Some(level) = levels.pop() {
                    close(&level)?;
                }
            }
            let place = match levels.last() {
                Some(level) => &level.directory,
                None if above.is_empty() => root,
                None => return Err(Error::Damaged(format!("`{}` is out of order", shown(&member.name)))),
            };
            if member.kind == EntryType::Directory {
                let place = rustix::io::fcntl_dupfd_cloexec(place, 0).map_err(at("open", &member.name))?;
                levels.push(self.directory(&place, member, subvolume)?);
            } else {
                let place = rustix::io::fcntl_dupfd_cloexec(place, 0).map_err(at("open", &member.name))?;
                self.other(root, &place, &member)?;
            }
            members += 1;
        }
    }

    fn directory(
        &self,
        place: &OwnedFd,
        member: Member,
        subvolume: &mut dyn FnMut(&str) -> io::Result<()>,
    ) -> Result<Level> {
        let (_, last) = member::split(&member.name)?;
        let name = &member.name;
        let as_text =
            std::str::from_utf8(name).ok().filter(|name| self.manifest.subvolumes.contains_key(*name));
        match as_text {
            Some(name) => subvolume(name).map_err(at("create", name.as_bytes()))?,
            None => match mkdirat(place, last, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(at("create", name)(error)),
            },
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = openat(place, last, flags, Mode::empty()).map_err(at("open", name))?;
        attributes::set(&directory, &member.owned, &member.records.xattrs)
            .map_err(at("set the attributes of", name))?;
        Ok(Level { directory, modified: member.owned.modified, name: member.name })
    }

    fn other(&mut self, root: &OwnedFd, place: &OwnedFd, member: &Member) -> Result<()> {
        let name = &member.name;
        let (_, last) = member::split(name)?;
        let is_file = matches!(member.kind, EntryType::Regular);
        if !is_file && !name.starts_with(FREE) && !name.starts_with(PROGRAMS) {
            let reason = "is neither a file nor a directory";
            return Err(Error::Name { name: shown(name), reason });
        }
        let create = at("create", name);
        match member.kind {
            EntryType::Regular => return self.file(root, place, last, member),
            EntryType::Link => {
                let target = member.records.link.as_deref().unwrap_or_default();
                let (above, target) = member::split(target)?;
                let above = if above.is_empty() { b"." } else { above };
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let above = beneath(root, above, flags).map_err(at("find", target))?;
                // Its attributes are those of the first name.
                return linkat(&above, target, place, last, AtFlags::empty()).map_err(create);
            }
            EntryType::Symlink => {
                symlinkat(member.records.link.as_deref().unwrap_or_default(), place, last).map_err(create)?;
            }
            EntryType::Fifo | EntryType::Char | EntryType::Block => {
                let kind = match member.kind {
                    EntryType::Fifo => FileType::Fifo,
                    EntryType::Char => FileType::CharacterDevice,
                    _ => FileType::BlockDevice,
                };
                let device = makedev(member.device.0, member.device.1);
                mknodat(place, last, kind, Mode::RUSR | Mode::WUSR, device).map_err(create)?;
                // The creation applies the mask of this process.
                rustix::fs::chmodat(place, last, Mode::from_raw_mode(member.owned.mode), AtFlags::empty())
                    .map_err(at("set the permissions of", name))?;
            }
            kind => return Err(Error::Damaged(format!("`{}` is of kind {}", shown(name), kind.as_byte()))),
        }
        attributes::set_at(place, last, &member.owned, &member.records.xattrs)
            .map_err(at("set the attributes of", name))?;
        if member.kind != EntryType::Symlink {
            // After the owner, whose change clears set-id bits.
            rustix::fs::chmodat(place, last, Mode::from_raw_mode(member.owned.mode), AtFlags::empty())
                .map_err(at("set the permissions of", name))?;
        }
        Ok(())
    }

    fn file(&mut self, root: &OwnedFd, place: &OwnedFd, last: &[u8], member: &Member) -> Result<()> {
        let name = &member.name;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(place, last, flags, Mode::RUSR | Mode::WUSR).map_err(at("create", name))?;
        let file = File::from(file);
        match (&member.records.copy, member.records.real_size) {
            (Some(first), _) => share(root, first, &file).map_err(at("copy", name))?,
            (None, Some(size)) => {
                let (parts, left) = sparse::read_map(&mut self.input, member.size, size)
                    .map_err(|error| Error::Damaged(format!("`{}`: {error}", shown(name))))?;
                for (offset, length) in parts {
                    self.copy(name, &file, offset, length)?;
                }
                ftruncate(&file, size).map_err(at("write", name))?;
                self.pad(left)?;
            }
            (None, None) => {
                self.copy(name, &file, 0, member.size)?;
                self.pad(member.size)?;
            }
        }
        attributes::set(&file, &member.owned, &member.records.xattrs)
            .map_err(at("set the attributes of", name))?;
        futimens(&file, &attributes::times(member.owned.modified)).map_err(at("set the time of", name))
    }

    /// Copies `length` bytes of the archive to a file.
    fn copy(&mut self, name: &[u8], file: &File, mut offset: u64, length: u64) -> Result<()> {
        let end = offset + length;
        while offset < end {
            let part = usize::try_from(end - offset).unwrap_or(CHUNK).min(CHUNK);
            self.input.read_exact(&mut self.buffer[..part]).map_err(input)?;
            file.write_all_at(&self.buffer[..part], offset).map_err(at("write", name))?;
            offset += part as u64;
        }
        Ok(())
    }

    /// The content of a small member.
    fn content(&mut self, size: u64) -> Result<Vec<u8>> {
        let mut content = Vec::new();
        let read = (&mut self.input).take(size).read_to_end(&mut content).map_err(input)?;
        if (read as u64) < size {
            return Err(Error::Damaged("it ends early".into()));
        }
        self.pad(size)?;
        Ok(content)
    }

    fn pad(&mut self, size: u64) -> Result<()> {
        let over = usize::try_from(size % BLOCK as u64).unwrap_or(0);
        let mut padding = [0; BLOCK];
        if over == 0 { Ok(()) } else { self.input.read_exact(&mut padding[over..]).map_err(input) }
    }

    /// Compares the digest of the archive, and reads it to its end: then the checksum of the compression has been compared too.
    fn compare(&mut self, member: &Member, sha256: &str) -> Result<()> {
        if self.content(member.size.min(1024))? != sha256.as_bytes() {
            return Err(Error::Damaged("its content does not have the digest it should have".into()));
        }
        io::copy(&mut self.input, &mut io::sink()).map_err(input).map(drop)
    }

    /// The next member; `None` at the end of the archive.
    fn next(&mut self) -> Result<Option<Member>> {
        let mut records = Records::default();
        let mut has_records = false;
        loop {
            let mut header = Header::new_ustar();
            self.input.read_exact(header.as_mut_bytes()).map_err(input)?;
            if header.as_bytes().iter().all(|byte| *byte == 0) {
                return Ok(None);
            }
            let damaged = |error: io::Error| Error::Damaged(error.to_string());
            let sum: u32 = header
                .as_bytes()
                .iter()
                .enumerate()
                .map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u32::from(*byte) })
                .sum();
            if header.cksum().map_err(damaged)? != sum {
                return Err(Error::Damaged("the checksum of a member is wrong".into()));
            }
            let size = header.entry_size().map_err(damaged)?;
            let kind = header.entry_type();
            if kind == EntryType::XHeader {
                if has_records || size > MAX_RECORDS {
                    return Err(Error::Damaged("a member has too many records".into()));
                }
                records = Records::decode(&self.content(size)?)?;
                has_records = true;
                continue;
            }
            if kind != EntryType::Regular && size != 0 {
                return Err(Error::Damaged("something that is not a file has content".into()));
            }
            let id = |found: io::Result<u64>| {
                u32::try_from(found.map_err(damaged)?)
                    .map_err(|_| Error::Damaged("an id is too large".into()))
            };
            let owned = Owned {
                uid: id(header.uid())?,
                gid: id(header.gid())?,
                mode: header.mode().map_err(damaged)? & 0o7777,
                modified: match records.modified {
                    Some(modified) => modified,
                    None => (i64::try_from(header.mtime().map_err(damaged)?).unwrap_or(0), 0),
                },
            };
            let name = records.path.take().unwrap_or_else(|| header.path_bytes().into_owned());
            let device = match kind {
                EntryType::Char | EntryType::Block => (
                    header.device_major().map_err(damaged)?.unwrap_or(0),
                    header.device_minor().map_err(damaged)?.unwrap_or(0),
                ),
                _ => (0, 0),
            };
            return Ok(Some(Member { name, kind, owned, size, device, records }));
        }
    }
}

const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// Opens what is below `root`, following no link. The kernel takes no path of such a length as names in an archive may have.
fn beneath(root: &OwnedFd, mut path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    /// Length of a part, which with the name that follows is shorter than the kernel's maximum.
    const PART: usize = 2048;
    let mut above = None;
    while let Some(length) = path.get(PART..).and_then(|rest| rest.iter().position(|byte| *byte == b'/')) {
        let (part, rest) = path.split_at(PART + length);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let next = openat2(above.as_ref().unwrap_or(root), part, flags, Mode::empty(), BENEATH)?;
        above = Some(next);
        path = &rest[1..];
    }
    openat2(above.as_ref().unwrap_or(root), path, flags, Mode::empty(), BENEATH)
}

/// Gives `file` the content of an earlier member, sharing it on disk where that is possible.
fn share(root: &OwnedFd, first: &[u8], file: &File) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let first = File::from(beneath(root, first, flags)?);
    if FileType::from_raw_mode(fstat(&first)?.st_mode) != FileType::RegularFile {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    if ioctl_ficlone(file, &first).is_err() {
        // On another file system, or one that shares nothing.
        io::copy(&mut &first, &mut &*file)?;
    }
    Ok(())
}

/// Sets the time of a directory, after its last member.
fn close(level: &Level) -> Result<()> {
    futimens(&level.directory, &attributes::times(level.modified)).map_err(at("set the time of", &level.name))
}

fn input(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Error::Damaged("it ends early".into()),
        // What the decoder says of data that it did not write.
        io::ErrorKind::Other | io::ErrorKind::InvalidData => Error::Damaged(error.to_string()),
        _ => Error::Input(error),
    }
}

/// A reader that computes the digest of what is read.
struct Hashed<R> {
    input: R,
    hasher: Sha256,
    bytes: u64,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        self.bytes += count as u64;
        Ok(count)
    }
}

impl std::fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("manifest", &self.manifest).finish_non_exhaustive()
    }
}
