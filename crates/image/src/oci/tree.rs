//! The tree that layers are flattened into. The kernel resolves every path with the tree as root, and nothing follows a link at the last
//! name of a path, so that no layer reaches a file of the host. Nobody else changes the tree meanwhile.
//!
//! Whiteouts apply to the layers below, not to entries of the same layer, whatever their order. So the tree remembers what the current
//! layer has written: 8 bytes for each entry, and the depth of each directory it has written to.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::fs::{
    CWD, chmodat, chownat, fstat, futimens, linkat, mkdirat, mknodat, openat, openat2, statat, symlinkat,
    unlinkat, utimensat,
};
use rustix::io::Errno;

use super::tar_stream::Entry;
use super::write::{ids, set_attributes, times};

/// Maximum number of directories above an entry. Deleting a tree needs a descriptor for each level.
const MAX_DEPTH: u16 = 256;
/// Attempts to resolve a path, which the kernel refuses at times while anything on the host is renamed.
const ATTEMPTS: u32 = 64;

/// A failed operation, for an error text.
pub(super) type Result<T> = std::result::Result<T, Errno>;

/// The directory into which layers of an image are unpacked.
#[derive(Debug)]
pub(super) struct Tree {
    root: Arc<OwnedFd>,
    root_inode: u64,
    /// Entries of the current layer, as hashes of the inode of their directory and their name.
    written: HashSet<u64>,
    /// Directories with entries of the current layer somewhere below, by inode, with their depth.
    directories: HashMap<u64, u16>,
    /// Directories that hold nothing of layers below any more, by inode: each is read once, however often a layer hides them.
    hidden: HashSet<u64>,
    /// Times of directories, which are set at the end.
    times: HashMap<u64, (i64, u32)>,
    /// The directory of the last entry, by its path.
    last: Option<(Vec<u8>, Place)>,
    hasher: RandomState,
}

/// A directory of the tree.
#[derive(Debug, Clone)]
struct Place {
    directory: Arc<OwnedFd>,
    inode: u64,
}

impl Tree {
    /// Opens the directory `root`, which is empty.
    pub(super) fn open(root: &Path) -> Result<Self> {
        let root = openat(CWD, root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let root_inode = fstat(&root)?.st_ino;
        Ok(Self {
            root: Arc::new(root),
            root_inode,
            written: HashSet::new(),
            directories: HashMap::new(),
            hidden: HashSet::new(),
            times: HashMap::new(),
            last: None,
            hasher: RandomState::new(),
        })
    }

    /// Begins a layer above all that has been written.
    pub(super) fn begin_layer(&mut self) {
        self.written.clear();
        self.directories.clear();
        self.hidden.clear();
    }

    /// Writes a directory, or changes the attributes of one that exists. No names stand for the root.
    pub(super) fn directory(&mut self, names: &[&[u8]], entry: &Entry) -> Result<()> {
        let directory = match names.split_last() {
            None => openat(&*self.root, ".", readable(), Mode::empty())?,
            Some((name, above)) => {
                let place = self.place(above)?;
                match mkdirat(&*place.directory, *name, Mode::from_raw_mode(0o700)) {
                    Err(Errno::EXIST) if !self.is_directory(&place, name)? => {
                        self.remove(&place, name)?;
                        mkdirat(&*place.directory, *name, Mode::from_raw_mode(0o700))?;
                        self.made(&place, name)?;
                    }
                    Err(Errno::EXIST) => {}
                    other => {
                        other?;
                        self.made(&place, name)?;
                    }
                }
                self.note(&place, name);
                openat(&*place.directory, *name, readable() | OFlags::NOFOLLOW, Mode::empty())?
            }
        };
        self.times.insert(fstat(&directory)?.st_ino, entry.modified);
        set_attributes(&directory, entry)
    }

    /// Creates a file in place of whatever exists, and returns it, empty.
    pub(super) fn file(&mut self, names: &[&[u8]]) -> Result<File> {
        self.create(names, |place, name| {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(&*place.directory, name, flags, Mode::from_raw_mode(0o600))
        })
        .map(File::from)
    }

    /// Sets the attributes of a file that has been written.
    pub(super) fn finish_file(file: &File, entry: &Entry) -> Result<()> {
        set_attributes(file, entry)?;
        futimens(file, &times(entry.modified))
    }

    /// Creates a symbolic link in place of whatever exists.
    pub(super) fn symlink(&mut self, names: &[&[u8]], target: &[u8], entry: &Entry) -> Result<()> {
        self.create(names, |place, name| symlinkat(target, &*place.directory, name))?;
        self.own(names, entry)
    }

    /// Creates a pipe in place of whatever exists.
    pub(super) fn pipe(&mut self, names: &[&[u8]], entry: &Entry) -> Result<()> {
        let mode = Mode::from_raw_mode(entry.mode);
        self.create(names, |place, name| {
            mknodat(&*place.directory, name, FileType::Fifo, mode, 0)?;
            // The process's own mask has been applied.
            chmodat(&*place.directory, name, mode, AtFlags::empty())
        })?;
        self.own(names, entry)
    }

    /// Gives the file at `target` a further name in place of whatever exists.
    pub(super) fn hard_link(&mut self, names: &[&[u8]], target: &[&[u8]]) -> Result<()> {
        let (target_name, above) = target.split_last().ok_or(Errno::PERM)?;
        let from = self.find(above)?;
        if self.is_directory(&from, target_name)? {
            return Err(Errno::PERM);
        }
        if names == target {
            return Ok(());
        }
        self.create(names, |place, name| {
            linkat(&*from.directory, *target_name, &*place.directory, name, AtFlags::empty())
        })
    }

    /// Removes what layers below have at this path.
    pub(super) fn hide(&mut self, names: &[&[u8]]) -> Result<()> {
        let Some((name, above)) = names.split_last() else { return Ok(()) };
        match self.find(above) {
            Ok(place) => self.hide_at(&place, name),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Removes what layers below have in this directory.
    pub(super) fn hide_below(&mut self, names: &[&[u8]]) -> Result<()> {
        match self.find(names) {
            Ok(place) => self.hide_in(&place),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Sets the times of directories, after the last layer.
    pub(super) fn finish(&mut self) -> Result<()> {
        if self.times.is_empty() {
            return Ok(());
        }
        let root = openat(&*self.root, ".", readable(), Mode::empty())?;
        self.set_times(&root, self.root_inode)
    }

    fn set_times(&self, directory: &OwnedFd, inode: u64) -> Result<()> {
        for item in Dir::read_from(directory)? {
            let item = item?;
            let name = item.file_name();
            let is_directory = match item.file_type() {
                FileType::Unknown => is_directory(&statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?),
                kind => kind == FileType::Directory,
            };
            if is_directory && name != c"." && name != c".." {
                let inner = openat(directory, name, readable() | OFlags::NOFOLLOW, Mode::empty())?;
                self.set_times(&inner, item.ino())?;
            }
        }
        match self.times.get(&inode) {
            Some(time) => futimens(directory, &times(*time)),
            None => Ok(()),
        }
    }

    /// Runs `make` for the place and name of the path, a second time if something had to be removed first.
    fn create<T>(&mut self, names: &[&[u8]], make: impl Fn(&Place, &[u8]) -> Result<T>) -> Result<T> {
        let (name, above) = names.split_last().ok_or(Errno::ISDIR)?;
        let place = self.place(above)?;
        let made = match make(&place, name) {
            Err(Errno::EXIST) => {
                self.remove(&place, name)?;
                make(&place, name)?
            }
            made => made?,
        };
        self.note(&place, name);
        Ok(made)
    }

    /// Sets owner and time of an entry that is not opened.
    fn own(&mut self, names: &[&[u8]], entry: &Entry) -> Result<()> {
        let (name, above) = names.split_last().ok_or(Errno::ISDIR)?;
        let place = self.place(above)?;
        let (uid, gid) = ids(entry);
        chownat(&*place.directory, *name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        utimensat(&*place.directory, *name, &times(entry.modified), AtFlags::SYMLINK_NOFOLLOW)
    }

    /// The directory with this path, which is created if it is missing.
    fn place(&mut self, names: &[&[u8]]) -> Result<Place> {
        let path = names.join(&b'/');
        if let Some((last, place)) = &self.last
            && *last == path
        {
            return Ok(place.clone());
        }
        let place = match self.find(names) {
            Err(Errno::NOENT) => self.make_parents(names)?,
            found => found?,
        };
        self.mark(&place)?;
        self.last = Some((path, place.clone()));
        Ok(place)
    }

    fn make_parents(&mut self, names: &[&[u8]]) -> Result<Place> {
        let mut place = self.find(&[])?;
        for end in 1..=names.len() {
            place = match self.find(&names[..end]) {
                Err(Errno::NOENT) => {
                    let name = names[end - 1];
                    mkdirat(&*place.directory, name, Mode::from_raw_mode(0o755))?;
                    self.made(&place, name)?;
                    self.mark(&place)?;
                    self.note(&place, name);
                    self.find(&names[..end])?
                }
                found => found?,
            };
        }
        Ok(place)
    }

    /// The directory with this path. Links on the way are followed inside the tree.
    fn find(&self, names: &[&[u8]]) -> Result<Place> {
        if names.is_empty() {
            return Ok(Place { directory: self.root.clone(), inode: self.root_inode });
        }
        let path = names.join(&b'/');
        let limits = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut attempt = 0;
        let directory = loop {
            match openat2(&*self.root, path.as_slice(), flags, Mode::empty(), limits) {
                Err(Errno::AGAIN | Errno::INTR) if attempt < ATTEMPTS => attempt += 1,
                found => break found?,
            }
        };
        let inode = fstat(&directory)?.st_ino;
        Ok(Place { directory: Arc::new(directory), inode })
    }

    /// Marks a directory and those above it as having entries of the current layer.
    fn mark(&mut self, place: &Place) -> Result<()> {
        let mut above = Vec::new();
        let (mut directory, mut inode) = (place.directory.clone(), place.inode);
        let depth = loop {
            if let Some(depth) = self.directories.get(&inode) {
                break *depth;
            }
            if inode == self.root_inode {
                self.directories.insert(inode, 0);
                break 0;
            }
            above.push(inode);
            if above.len() > usize::from(MAX_DEPTH) {
                return Err(Errno::NAMETOOLONG);
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            directory = Arc::new(openat(&*directory, "..", flags, Mode::empty())?);
            inode = fstat(&*directory)?.st_ino;
        };
        for (depth, inode) in (depth + 1..).zip(above.into_iter().rev()) {
            if depth > MAX_DEPTH {
                return Err(Errno::NAMETOOLONG);
            }
            self.directories.insert(inode, depth);
        }
        Ok(())
    }

    /// Forgets what is known of a directory that had the inode of this new one.
    fn made(&mut self, place: &Place, name: &[u8]) -> Result<()> {
        let inode = statat(&*place.directory, name, AtFlags::SYMLINK_NOFOLLOW)?.st_ino;
        self.directories.remove(&inode);
        self.times.remove(&inode);
        Ok(())
    }

    fn note(&mut self, place: &Place, name: &[u8]) {
        self.written.insert(self.hasher.hash_one((place.inode, name)));
    }

    fn is_written(&self, place: &Place, name: &[u8]) -> bool {
        self.written.contains(&self.hasher.hash_one((place.inode, name)))
    }

    fn is_directory(&self, place: &Place, name: &[u8]) -> Result<bool> {
        Ok(is_directory(&statat(&*place.directory, name, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    fn hide_at(&mut self, place: &Place, name: &[u8]) -> Result<()> {
        let stat = match statat(&*place.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(()),
            stat => stat?,
        };
        let has_entries = is_directory(&stat) && self.directories.contains_key(&stat.st_ino);
        if has_entries {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let directory = openat(&*place.directory, name, flags, Mode::empty())?;
            return self.hide_in(&Place { directory: Arc::new(directory), inode: stat.st_ino });
        }
        if self.is_written(place, name) {
            // A directory of this layer without entries of this layer: what it holds is from below.
            return if is_directory(&stat) { self.empty(place, name) } else { Ok(()) };
        }
        self.remove(place, name)
    }

    fn hide_in(&mut self, place: &Place) -> Result<()> {
        // Whatever comes later is of this layer.
        if !self.hidden.insert(place.inode) {
            return Ok(());
        }
        let directory = openat(&*place.directory, ".", readable(), Mode::empty())?;
        for item in Dir::read_from(&directory)? {
            let item = item?;
            let name = item.file_name();
            if name != c"." && name != c".." {
                self.hide_at(place, name.to_bytes())?;
            }
        }
        Ok(())
    }

    fn empty(&mut self, place: &Place, name: &[u8]) -> Result<()> {
        self.last = None;
        let directory = openat(&*place.directory, name, readable() | OFlags::NOFOLLOW, Mode::empty())?;
        empty(&directory)
    }

    /// Removes whatever has this name.
    fn remove(&mut self, place: &Place, name: &[u8]) -> Result<()> {
        // The removed directory, or a link to one, may be on the way to the last one.
        self.last = None;
        remove(&place.directory, name)
    }
}

fn remove(directory: &OwnedFd, name: impl rustix::path::Arg + Copy) -> Result<()> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    let inner = openat(directory, name, readable() | OFlags::NOFOLLOW, Mode::empty())?;
    empty(&inner)?;
    unlinkat(directory, name, AtFlags::REMOVEDIR)
}

fn empty(directory: &OwnedFd) -> Result<()> {
    for item in Dir::read_from(directory)? {
        let item = item?;
        let name = item.file_name();
        if name != c"." && name != c".." {
            remove(directory, name)?;
        }
    }
    Ok(())
}

fn is_directory(stat: &rustix::fs::Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

fn readable() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC
}
