//! Unpacks layers into a tree, one above the other: entries, whiteouts, and the limits of the whole image.

use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::ahead::{self, Ended, Parts};
use super::digest::Digest;
use super::tar_stream::{Entry, Kind, TarStream};
use super::tree::Tree;
use super::write::Writer;
use crate::files::MAX_ID;

/// Maximum length of a path, bytes.
const MAX_PATH: usize = 4095;
const MAX_NAME: usize = 255;
/// Allowance for the headers of an entry beside its data, bytes. Most take 512 to 2048.
const HEADERS: u64 = 4096;
const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// Reason why a layer cannot be unpacked.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LayerError {
    /// Something in it is wrong or not supported.
    Invalid(String),
    /// A limit is exceeded: what was counted, and the limit.
    TooLarge(String, Limit),
    /// The disk is full.
    Full,
    /// The import was cancelled.
    Cancelled,
}

type Result<T> = std::result::Result<T, LayerError>;

/// Limit that an image exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limit {
    /// Size of the data, bytes.
    Bytes(u64),
    /// Number of files, directories and links.
    Entries(u64),
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{} MB", bytes / 1_000_000),
            Self::Entries(entries) => write!(f, "{entries} entries"),
        }
    }
}

/// Limits of an image.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Limits {
    /// Size of the files, bytes.
    pub bytes: u64,
    /// Number of entries.
    pub entries: u64,
}

/// The tree of an image, and what has been counted.
#[derive(Debug)]
pub(super) struct Unpacker {
    tree: Tree,
    limits: Limits,
    bytes: u64,
    entries: u64,
    is_cancelled: Arc<AtomicBool>,
}

impl Unpacker {
    /// Prepares to unpack into the empty directory `root`.
    pub(super) fn new(root: &Path, limits: Limits, is_cancelled: Arc<AtomicBool>) -> Result<Self> {
        let tree = Tree::open(root).map_err(|errno| failed(b"/", errno))?;
        Ok(Self { tree, limits, bytes: 0, entries: 0, is_cancelled })
    }

    /// Size of the files, bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Unpacks a layer above those that have been unpacked. The digest of the uncompressed layer has to be `expected`, if there is one.
    pub(super) fn unpack(&mut self, compressed: impl Read + Send, expected: Option<&Digest>) -> Result<()> {
        let read = |error: io::Error| LayerError::Invalid(format!("it cannot be read: {error}"));
        let left = self.limits.entries.saturating_sub(self.entries).saturating_mul(HEADERS);
        let limit = self.limits.bytes.saturating_sub(self.bytes).saturating_add(left);
        self.tree.begin_layer();
        let work = |parts: &mut Parts| {
            self.entries(&mut TarStream::new(&mut *parts))?;
            // The digest is that of everything, and some programs write more than the end needs.
            io::copy(parts, &mut io::sink()).map_err(read)
        };
        let (unpacked, ended) = ahead::with(compressed, limit, work).map_err(read)?;
        // Data is read ahead of the entries, so how far it came when an entry was refused is chance: the entry's reason counts.
        if let Err(error @ LayerError::TooLarge(..)) = unpacked {
            return Err(error);
        }
        let found = match ended {
            Ended::TooLong => return Err(self.too_large()),
            Ended::Failed(error) => return Err(read(error)),
            Ended::Stopped => None,
            Ended::Whole(found) => Some(found),
        };
        unpacked?;
        match (expected, found) {
            (Some(expected), Some(found)) if found != *expected => Err(LayerError::Invalid(format!(
                "its uncompressed data has the digest {found}, but the configuration says {expected}"
            ))),
            (Some(_), None) => Err(LayerError::Invalid("it was not read to its end".to_owned())),
            _ => Ok(()),
        }
    }

    /// Completes the tree after the last layer.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.tree.finish().map_err(|errno| failed(b"/", errno))
    }

    fn entries<R: Read>(&mut self, stream: &mut TarStream<R>) -> Result<()> {
        while let Some(entry) =
            stream.next().map_err(|error| LayerError::Invalid(format!("it cannot be read: {error}")))?
        {
            if self.is_cancelled.load(Ordering::Relaxed) {
                return Err(LayerError::Cancelled);
            }
            self.entries += 1;
            if self.entries > self.limits.entries {
                let limit = Limit::Entries(self.limits.entries);
                return Err(LayerError::TooLarge("it has more entries".to_owned(), limit));
            }
            self.entry(&entry, stream)?;
        }
        Ok(())
    }

    fn entry<R: Read>(&mut self, entry: &Entry, stream: &mut TarStream<R>) -> Result<()> {
        let path = &entry.path;
        let names = names(path, path)?;
        let fail = |errno| failed(path, errno);
        if let Some((name, above)) = names.split_last()
            && name.starts_with(WHITEOUT)
        {
            return self.whiteout(path, name, above);
        }
        // A link has the owner of its target; what its entry says is not used.
        let is_owned = !matches!(entry.kind, Kind::HardLink(_));
        if is_owned && (entry.uid > u64::from(MAX_ID) || entry.gid > u64::from(MAX_ID)) {
            return Err(LayerError::Invalid(format!(
                "'{}' belongs to user {} and group {}; ids up to {MAX_ID} are supported",
                shown(path),
                entry.uid,
                entry.gid
            )));
        }
        match &entry.kind {
            Kind::Directory => self.tree.directory(&names, entry).map_err(fail),
            Kind::Symlink(target) => {
                check_target(path, target)?;
                self.tree.symlink(&names, target, entry).map_err(fail)
            }
            Kind::HardLink(target) => {
                let target_names = self::names(target, path)?;
                self.tree.hard_link(&names, &target_names).map_err(|errno| {
                    LayerError::Invalid(format!(
                        "the link '{}' to '{}' cannot be created: {}",
                        shown(path),
                        shown(target),
                        text(errno)
                    ))
                })
            }
            Kind::Pipe => self.tree.pipe(&names, entry).map_err(fail),
            // Every sandbox has a /dev of its own, which covers that of the image.
            Kind::Device if names.first() == Some(&&b"dev"[..]) => Ok(()),
            Kind::Device => Err(LayerError::Invalid(format!(
                "'{}' is a device node; sandboxes have none outside of /dev, remove it from the image",
                shown(path)
            ))),
            Kind::File(map) => {
                let data = stream.left();
                let size = map.as_ref().map_or(data, |map| map.size);
                if size > self.limits.bytes || data > self.limits.bytes - self.bytes {
                    return Err(self.too_large());
                }
                self.bytes += data;
                let file = self.tree.file(&names).map_err(fail)?;
                let mut writer = Writer::new(&file);
                let is_cancelled = self.is_cancelled.clone();
                let mut read = |buffer: &mut [u8]| {
                    if is_cancelled.load(Ordering::Relaxed) {
                        return Err(io::Error::other("cancelled"));
                    }
                    stream.read_data(buffer)
                };
                let parts = map.as_ref().map_or_else(|| vec![(0, data)], |map| map.parts.clone());
                parts
                    .into_iter()
                    .try_for_each(|(offset, length)| writer.copy(offset, length, &mut read))
                    .and_then(|()| writer.finish(size))
                    .map_err(|error| match Errno::from_io_error(&error) {
                        Some(errno) => fail(errno),
                        None => LayerError::Invalid(format!("'{}' cannot be read: {error}", shown(path))),
                    })?;
                Tree::finish_file(&file, entry).map_err(fail)
            }
        }
    }

    fn whiteout(&mut self, path: &[u8], name: &[u8], above: &[&[u8]]) -> Result<()> {
        let hidden = &name[WHITEOUT.len()..];
        let done = if name == OPAQUE {
            self.tree.hide_below(above)
        } else if hidden.starts_with(WHITEOUT) {
            // Other notes of aufs have no meaning here.
            Ok(())
        } else if matches!(hidden, b"" | b"." | b"..") {
            return Err(LayerError::Invalid(format!("'{}' is not a valid whiteout", shown(path))));
        } else {
            self.tree.hide(&[above, &[hidden]].concat())
        };
        done.map_err(|errno| failed(path, errno))
    }

    fn too_large(&self) -> LayerError {
        LayerError::TooLarge("its files have more data".to_owned(), Limit::Bytes(self.limits.bytes))
    }
}

/// Splits a path, relative to the root of the tree, into names.
fn names<'a>(path: &'a [u8], entry: &[u8]) -> Result<Vec<&'a [u8]>> {
    let wrong = |why: &str| Err(LayerError::Invalid(format!("the name '{}' {why}", shown(entry))));
    if path.len() > MAX_PATH {
        return wrong("is longer than 4095 bytes");
    }
    if path.is_empty() {
        return wrong("or its target is empty");
    }
    let names: Vec<&[u8]> =
        path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".").collect();
    for name in &names {
        if *name == b".." {
            return wrong("or its target has '..'");
        }
        if name.contains(&0) {
            return wrong("or its target has a zero byte");
        }
        if name.len() > MAX_NAME {
            return wrong("has a part of more than 255 bytes");
        }
    }
    Ok(names)
}

fn check_target(path: &[u8], target: &[u8]) -> Result<()> {
    if target.is_empty() || target.len() > MAX_PATH || target.contains(&0) {
        return Err(LayerError::Invalid(format!("the target of the link '{}' is not a path", shown(path))));
    }
    Ok(())
}

fn failed(path: &[u8], errno: Errno) -> LayerError {
    match errno {
        Errno::NOSPC | Errno::DQUOT => LayerError::Full,
        errno => LayerError::Invalid(format!("'{}' cannot be created: {}", shown(path), text(errno))),
    }
}

fn text(errno: Errno) -> String {
    match errno {
        Errno::NAMETOOLONG => "a name is too long, or more than 256 directories are above it".to_owned(),
        Errno::NOENT => "a directory or link on its path leads nowhere".to_owned(),
        Errno::NOTDIR => "a name on its path is not a directory".to_owned(),
        Errno::LOOP => "too many links are on its path".to_owned(),
        errno => errno.to_string(),
    }
}

/// A path for an error: printable, and not too long.
fn shown(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(&path[..path.len().min(300)]);
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
