//! Watches of inotify. CRIU looks for a watched file by the number of its inode, which overlays may have more than once, so what is preloaded into it
//! hides them (`packaging/criu/preload.c`), and it stores and restores descriptors without a watch. The watches are read here, with the paths
//! of their files, and added again before the processes run.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::inotify::{WatchFlags, add_watch, remove_watch};
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::ioctl_fionread;
use serde::{Deserialize, Serialize};

use super::budget::Budget;
use super::descriptors;
use super::numbers::{named, processes};
use super::refusal::refused;
use crate::sys::{FileHandle, handle_of, is_same_file, open_handle, path_of_inode};
use crate::{Error, Result};

/// File with the watches in the directory of the images.
const FILE: &str = "inotify.json";
/// Name of a descriptor of inotify in `/proc/PID/fd`.
const DESCRIPTOR: &str = "anon_inode:inotify";
/// Maximum sum of the highest numbers of all descriptors. The kernel counts up, so a restore gets to a number by all numbers below.
const MAX_NUMBERS: i64 = 1 << 18;
/// Maximum length of all paths together, bytes.
const MAX_PATHS: usize = 64 << 20;
/// Kind of a handle of an overlay (`OVL_FILEID_V1`), and where in it the kind and the bytes of the handle in the layer are.
const OVERLAY: i32 = 0xF8;
const LAYER_KIND: usize = 7;
const LAYER_START: usize = 24;
/// Kind of a handle of btrfs (`FILEID_BTRFS_WITHOUT_PARENT`): the numbers of the inode and of its subvolume, eight bytes each, and a generation.
const BTRFS: i32 = 0x4D;
/// How a file is opened as a place, and how a directory that handles are opened in.
const PLACE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

/// An instance of inotify, by one of the descriptors that refer to it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Watcher {
    /// Number of a process inside that has it.
    process: u32,
    descriptor: i32,
    watches: Vec<Watch>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Watch {
    number: i32,
    /// Events, as inotify_add_watch(2) has them.
    events: u32,
    /// Path of the file inside.
    path: Vec<u8>,
}

/// A watch, as the kernel shows it.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    number: i32,
    events: u32,
    inode: u64,
    device: u64,
    /// Handle of the file. Before Linux 6.6, files of overlays have none.
    handle: Option<FileHandle>,
}

/// Finds the watches of the frozen processes `pids`. `layers` is a directory in the file system that has the layers of their root.
/// `mounts` are the device numbers and paths of its mounts.
pub(super) fn find(
    pids: &[u32],
    layers: &Path,
    mounts: &[(u64, PathBuf)],
    budget: &Budget,
) -> Result<Vec<Watcher>> {
    let (mut found, mut seen, mut numbers, mut paths) = (Vec::new(), Vec::<(u32, i32)>::new(), 0, 0);
    for (inside, pid) in processes(pids) {
        let own = descriptors::of(pid).into_iter().filter(|(_, target)| target == Path::new(DESCRIPTOR));
        for (descriptor, _) in own {
            budget.check()?;
            // Descriptors that processes share have one set of watches.
            let is_same = |one: &(u32, i32)| is_same_file(*one, (pid, descriptor)).unwrap_or(false);
            if seen.iter().any(is_same) {
                continue;
            }
            seen.push((pid, descriptor));
            let failed = |source| Error::Kernel { action: format!("read watches of process {pid}"), source };
            let info = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{descriptor}")).map_err(failed)?;
            let shown = shown(&info).ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))?;
            let copy = descriptors::copy(pid, descriptor).map_err(failed)?;
            if ioctl_fionread(&copy).map_err(|error| failed(error.into()))? > 0 {
                return Err(refused(format!("{} has events of inotify that it has not read", named(pid))));
            }
            numbers += shown.iter().map(|watch| i64::from(watch.number)).max().unwrap_or_default();
            if numbers > MAX_NUMBERS {
                return Err(refused(format!("it has added more than {MAX_NUMBERS} watches of inotify")));
            }
            let mut places = Places::of(pid, layers, mounts).map_err(failed)?;
            let mut watches = Vec::new();
            for watch in shown {
                budget.check()?;
                let path = watch.handle.ok_or_else(|| "the kernel shows no handle of it".to_owned());
                let path = path.and_then(|handle| places.path(watch.device, &handle)).map_err(|reason| {
                    let (process, inode) = (named(pid), watch.inode);
                    refused(format!(
                        "{process} watches inode {inode} with inotify, whose path is not known: {reason}"
                    ))
                })?;
                paths += path.len();
                if paths > MAX_PATHS {
                    return Err(refused("its watches of inotify have too long paths together".into()));
                }
                watches.push(Watch { number: watch.number, events: watch.events, path });
            }
            found.push(Watcher { process: inside, descriptor, watches });
        }
    }
    Ok(found)
}

/// Writes watches into the directory of the images.
pub(super) fn store(watchers: &[Watcher], directory: &Path) -> io::Result<()> {
    std::fs::write(directory.join(FILE), serde_json::to_vec(watchers)?)
}

/// Gives the descriptors of the restored processes `pids` the watches that are in the directory `generation`. One of an earlier version has none.
pub(super) fn restore(pids: &[u32], generation: &Path) -> io::Result<()> {
    let stored: Vec<Watcher> = super::stored(generation, FILE)?;
    let processes = processes(pids);
    for Watcher { process, descriptor, mut watches } in stored {
        if let Some(pid) = processes.get(&process) {
            let root = root_of(*pid)?;
            let inotify = descriptors::copy(*pid, descriptor)?;
            watches.sort_by_key(|watch| watch.number);
            for watch in watches {
                let path = Path::new(OsStr::from_bytes(&watch.path));
                add(&inotify, &root, path, &watch).map_err(|error| {
                    io::Error::new(error.kind(), format!("watch {}: {error}", path.display()))
                })?;
            }
            read_all(&inotify)?;
        }
    }
    Ok(())
}

/// Adds a watch of the file `path` below `root`, under its number.
fn add(inotify: &OwnedFd, root: &OwnedFd, path: &Path, watch: &Watch) -> io::Result<()> {
    let file = open_inside(root, path, PLACE)?;
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    loop {
        let number = add_watch(inotify, &link, WatchFlags::from_bits_retain(watch.events))?;
        if number == watch.number {
            return Ok(());
        }
        remove_watch(inotify, number)?;
        if number > watch.number {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
    }
}

/// Reads what the removal of watches has left.
fn read_all(inotify: &OwnedFd) -> io::Result<()> {
    loop {
        let unread = ioctl_fionread(inotify)?;
        if unread == 0 {
            return Ok(());
        }
        rustix::io::read(inotify, &mut vec![0_u8; unread as usize])?;
    }
}

/// The watches in the description of a descriptor, if it has the form that it should.
fn shown(info: &str) -> Option<Vec<Shown>> {
    info.lines().filter_map(|line| line.strip_prefix("inotify ")).map(watch).collect()
}

fn watch(line: &str) -> Option<Shown> {
    let field = |name: &str| {
        line.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    };
    let hex = |name| u32::from_str_radix(field(name)?, 16).ok();
    let all = WatchFlags::ALL_EVENTS | WatchFlags::EXCL_UNLINK | WatchFlags::ONESHOT;
    Some(Shown {
        number: field("wd")?.parse().ok()?,
        events: hex("mask")? & all.bits(),
        inode: u64::from_str_radix(field("ino")?, 16).ok()?,
        device: hex("sdev")?.into(),
        handle: field("f_handle").and_then(|bytes| handle(hex("fhandle-type")?, bytes)),
    })
}

fn handle(kind: u32, bytes: &str) -> Option<FileHandle> {
    let byte = |at| u8::from_str_radix(bytes.get(at..at + 2)?, 16).ok();
    let bytes = (0..bytes.len()).step_by(2).map(byte).collect::<Option<_>>()?;
    Some(FileHandle { kind: kind as i32, bytes })
}

/// The file systems in which a process may have files.
struct Places<'a> {
    root: OwnedFd,
    /// A directory in the file system of the layers.
    layers: OwnedFd,
    /// Device numbers and paths of the mounts.
    mounts: &'a [(u64, PathBuf)],
    /// How many components of a path on the host are not those of the path inside: the same for all files of a layer.
    outside: usize,
}

impl<'a> Places<'a> {
    fn of(pid: u32, layers: &Path, mounts: &'a [(u64, PathBuf)]) -> io::Result<Self> {
        let layers = open(layers, DIRECTORY, Mode::empty())?;
        Ok(Self { root: root_of(pid)?, layers, mounts, outside: 0 })
    }

    /// The path inside of a file, or why it has none.
    fn path(&mut self, device: u64, handle: &FileHandle) -> std::result::Result<Vec<u8>, String> {
        let of_layer = of_layer(handle);
        let handle_there = of_layer.as_ref().unwrap_or(handle);
        let opened = |mount: OwnedFd| open_handle(&mount, handle_there).map(|file| (mount, file));
        let found = match of_layer {
            Some(_) => self.layers.try_clone().and_then(opened).ok(),
            None => {
                let paths = self.mounts.iter().filter(|(found, _)| *found == device);
                paths
                    .map(|(_, path)| path)
                    .find_map(|path| open_inside(&self.root, path, DIRECTORY).and_then(opened).ok())
            }
        };
        let (mount, file) = found.ok_or("no file system of the sandbox has it")?;
        let on_host = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
            .map_err(|error| format!("it cannot be read: {error}"))?;
        let path = self.inside(&on_host, handle).or_else(|| {
            // A file that was linked after it was opened without a name, as those are that clients write, may still be known as that.
            self.inside(&linked(&mount, handle_there)?, handle)
        });
        let name = || on_host.file_name().unwrap_or_default().display().to_string();
        path.ok_or_else(|| format!("`{}` is not there inside", name()))
    }

    /// The path inside of a file, by the last components of one on the host.
    fn inside(&mut self, on_host: &Path, handle: &FileHandle) -> Option<Vec<u8>> {
        let names: Vec<Component<'_>> =
            on_host.components().filter(|name| *name != Component::RootDir).collect();
        let likely = self.outside.min(names.len());
        let (outside, path) = [likely].into_iter().chain(0..=names.len()).find_map(|outside| {
            let path: PathBuf = names.get(outside..)?.iter().collect();
            let found = open_inside(&self.root, &path, PLACE).and_then(handle_of).ok()?;
            (found == *handle).then_some((outside, path))
        })?;
        self.outside = outside;
        Some(OsString::from(path).into_vec())
    }
}

/// A path of a file on btrfs in its subvolume, by its handle, as its directories have it.
fn linked(mount: &OwnedFd, handle: &FileHandle) -> Option<PathBuf> {
    let number = |at: usize| Some(u64::from_ne_bytes(handle.bytes.get(at..at + 8)?.try_into().ok()?));
    let (inode, subvolume) = (number(0)?, number(8)?);
    (handle.kind == BTRFS).then(|| path_of_inode(mount.as_fd(), subvolume, inode).ok()).flatten()
}

/// Handle in its layer of a file of an overlay, by its handle in the overlay.
fn of_layer(handle: &FileHandle) -> Option<FileHandle> {
    if handle.kind != OVERLAY {
        return None;
    }
    let kind = i32::from(*handle.bytes.get(LAYER_KIND)?);
    Some(FileHandle { kind, bytes: handle.bytes.get(LAYER_START..)?.to_vec() })
}

fn root_of(pid: u32) -> io::Result<OwnedFd> {
    Ok(open(format!("/proc/{pid}/root"), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens something below `root`, and follows no link: the path has none, unless somebody changes it. Nobody inside may mount, so no file system
/// on the way is one that a frozen process would have to answer for.
fn open_inside(root: impl AsFd, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let relative = path.strip_prefix("/").unwrap_or(path);
    let relative = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
    Ok(openat2(root, relative, flags, Mode::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS)?)
}

#[cfg(test)]
mod tests {
    use rustix::fs::inotify::{CreateFlags, init};

    use super::*;

    #[test]
    fn watches_come_back_under_their_numbers() {
        let directory = tempfile::tempdir().unwrap();
        let inotify = init(CreateFlags::CLOEXEC).unwrap();
        let watcher =
            |watches| Watcher { process: std::process::id(), descriptor: inotify.as_raw_fd(), watches };
        let watch = |number, path: &str| {
            let path = directory.path().join(path).as_os_str().as_bytes().to_vec();
            Watch { number, events: WatchFlags::CREATE.bits(), path }
        };
        for name in ["a", "b"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        store(&[watcher(vec![watch(7, "b"), watch(3, "a")])], directory.path()).unwrap();
        restore(&[std::process::id()], directory.path()).unwrap();
        assert_eq!(ioctl_fionread(&inotify).unwrap(), 0);
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", inotify.as_raw_fd())).unwrap();
        let mut numbers: Vec<i32> = shown(&info).unwrap().iter().map(|watch| watch.number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [3, 7]);
        let find = || {
            let device = rustix::fs::stat(directory.path()).unwrap().st_dev;
            let device = u64::from(rustix::fs::major(device)) << 20 | u64::from(rustix::fs::minor(device));
            let mounts = [(device, directory.path().into())];
            find(&[std::process::id()], directory.path(), &mounts, &Budget::start())
        };
        // Only root opens files by their handles.
        if rustix::process::geteuid().is_root() {
            let copy = inotify.try_clone().unwrap();
            let [watcher] = &mut find().unwrap()[..] else {
                panic!("both descriptors have one set of watches")
            };
            let mut found = std::mem::take(&mut watcher.watches);
            drop(copy);
            found.sort_by_key(|watch| watch.number);
            let slash = |mut watch: Watch| {
                watch.path.insert(0, b'/');
                watch
            };
            let found: Vec<Watch> = found.into_iter().map(slash).collect();
            assert_eq!(found, [watch(3, "a"), watch(7, "b")]);
        }
        std::fs::write(directory.path().join("b/new"), "").unwrap();
        assert!(ioctl_fionread(&inotify).unwrap() > 0);
        assert!(matches!(find(), Err(Error::NotStored { .. })));
    }

    #[test]
    fn a_watch_that_is_shown_is_read() {
        let line = "wd:2 ino:110 sdev:cb mask:80000fff ignored_mask:0 fhandle-bytes:2c fhandle-type:f8 \
                    f_handle:00000000fb29044deada85ad7ec4463fb6afd2612932827810010000000000003c01000000000000c0000000";
        let read = watch(line).unwrap();
        assert_eq!((read.number, read.events, read.inode, read.device), (2, 0x8000_0FFF, 0x110, 0xCB));
        let of_layer = of_layer(&read.handle.unwrap()).unwrap();
        assert_eq!((of_layer.kind, of_layer.bytes.len()), (0x4D, 20));
        assert_eq!(watch("wd:2 ino:110 sdev:cb mask:fff ignored_mask:0 ").unwrap().handle, None);
        assert_eq!(watch("wd:2 ino:110 sdev:cb"), None);
    }
}
