//! The `/dev` of a sandbox.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, Mode, makedev, mkdirat, mknodat, symlinkat};
use rustix::mount::MountAttrFlags;
use rustix::process::umask;

use super::file_systems;

/// Devices a sandbox may use, all without state that could leak from one sandbox to another, with their numbers.
const DEVICES: [(&str, u32, u32); 7] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
    ("fuse", 10, 229),
];
/// Directories on which file systems of the sandbox's own are mounted.
const DIRECTORIES: [&str; 3] = ["pts", "shm", "mqueue"];
const LINKS: [(&str, &str); 5] = [
    ("ptmx", "pts/ptmx"),
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];

/// Creates the file system with its nodes, owned by `owner`. The builder does this, because only root of the host may make
/// nodes that can be opened. Each sandbox has nodes of its own: locks, watches and times of the host's would be seen by all.
pub(super) fn create(owner: u32) -> io::Result<OwnedFd> {
    let owner = owner.to_string();
    let options = [("mode", "755"), ("size", "64k"), ("uid", &owner), ("gid", &owner)];
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let root = file_systems::create("tmpfs", &options, flags)?;
    let mask = umask(Mode::empty());
    let made = fill(&root);
    umask(mask);
    made.map(|()| root)
}

fn fill(root: &OwnedFd) -> io::Result<()> {
    for (name, major, minor) in DEVICES {
        let mode = Mode::from_raw_mode(0o666);
        mknodat(root, name, FileType::CharacterDevice, mode, makedev(major, minor))?;
    }
    for directory in DIRECTORIES {
        mkdirat(root, directory, Mode::from_raw_mode(0o755))?;
    }
    for (name, target) in LINKS {
        symlinkat(target, root, name)?;
    }
    Ok(())
}
