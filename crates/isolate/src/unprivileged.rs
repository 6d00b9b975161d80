//! A process without privileges: the server, which parses what strangers send, or the egress proxies, which parse what sandboxes send. It
//! has an account and a root directory of its own, no capabilities, and no way to get any.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Gid, Mode, Uid};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_change,
    mount_remount, move_mount, open_tree, unmount,
};
use rustix::process::{DumpableBehavior, Signal, chdir, pivot_root, umask};
use rustix::thread::{
    CapabilitySet, CapabilitySets, UnshareFlags, capabilities, clear_ambient_capability_set,
    set_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::sys::{self, RefusedCalls};
use crate::{crash, jail, net};

/// Directories of the host that the process sees, read-only: libraries, certificates of authorities, settings of name resolution.
const SEEN: [&str; 6] = ["/usr", "/etc", "/lib", "/lib32", "/lib64", "/nix/store"];
/// Files of the host that the process sees: its load, its hardware, its name.
const SEEN_FILES: [&str; 4] = ["/proc/stat", "/proc/meminfo", "/proc/cpuinfo", "/proc/sys/kernel/hostname"];
/// Settings of name resolution, which may be a link to a directory that a program of the host keeps.
const RESOLVER: &str = "/etc/resolv.conf";
/// Where the new root is built; what is there on the host stays below it.
const NEW_ROOT: &str = "/tmp";

/// Rights that [`renounce`] takes.
const NEEDED: [(CapabilitySet, &str); 5] = [
    (CapabilitySet::SYS_ADMIN, "CAP_SYS_ADMIN"),
    (CapabilitySet::SETUID, "CAP_SETUID"),
    (CapabilitySet::SETGID, "CAP_SETGID"),
    (CapabilitySet::SETPCAP, "CAP_SETPCAP"),
    (CapabilitySet::CHOWN, "CAP_CHOWN"),
];

/// A reason why a process cannot become an account.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Objection {
    /// The number is one of a sandbox's.
    #[error("the ids from {} up are for sandboxes", net::FIRST_ID)]
    OfSandboxes,
    /// The process lacks a capability.
    #[error("it takes {0}, which this process does not have")]
    Incapable(&'static str),
    /// The kernel does not say which capabilities the process has.
    #[error("the capabilities of this process are unknown: {0}")]
    Unknown(io::ErrorKind),
    /// The number does not exist where the process is.
    #[error("there is no id {account} in this user namespace: `{map}`")]
    Unmapped {
        /// The number.
        account: u32,
        /// The file that lists the numbers.
        map: &'static str,
    },
}

/// Says why a process on this host cannot become `account`, a user and group of the same number; `None` if it can.
pub fn cannot_become(account: u32) -> Option<Objection> {
    if account >= net::FIRST_ID {
        return Some(Objection::OfSandboxes);
    }
    let own = match capabilities(None) {
        Ok(sets) => sets.effective,
        Err(error) => return Some(Objection::Unknown(error.kind())),
    };
    if let Some((_, name)) = NEEDED.into_iter().find(|(one, _)| !own.contains(*one)) {
        return Some(Objection::Incapable(name));
    }
    let is_mapped = |file: &str| {
        std::fs::read_to_string(file).is_ok_and(|map| map.lines().any(|line| covers(line, account)))
    };
    let map = ["/proc/self/uid_map", "/proc/self/gid_map"].into_iter().find(|file| !is_mapped(file))?;
    Some(Objection::Unmapped { account, map })
}

/// Whether a line of an id map has `id` among the ids inside.
fn covers(line: &str, id: u32) -> bool {
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    matches!(numbers[..], [first, _, count] if (first..first + count).contains(&id.into()))
}

/// Has programs that this process starts inherit none of its descriptors but the standard ones: not those that it was started with either.
pub fn pass_on_no_descriptors() -> io::Result<()> {
    sys::close_on_exec_from(3)
}

/// Purpose of a process without privileges.
#[derive(Debug, Clone, Copy)]
pub enum Unprivileged<'a> {
    /// The server, or a command that opens its database: it sees libraries and settings.
    Server {
        /// The directory of the host that it keeps, under the same absolute path.
        directory: &'a Path,
        /// Whether it ends when its parent ends.
        ends_with_parent: bool,
    },
    /// The egress proxies: they have no files and no network but the sockets that they are given.
    Egress,
}

/// Gives up the privileges of the calling process, for good. It becomes the user and group `account` without further groups; of the
/// host's files and the kernel's calls it keeps what `purpose` takes. With `log_refused_calls`, the kernel logs other calls.
///
/// The process must be single-threaded, and [`cannot_become`] must have no objection.
///
/// # Errors
/// An error if the kernel refuses a step. The process must end then: it may have lost some rights and not others.
pub fn renounce(account: u32, purpose: Unprivileged<'_>, log_refused_calls: bool) -> io::Result<()> {
    crash::keep_file();
    // Of the new root's directories, which the process has to pass through. Services are often started with a strict one.
    let mask = umask(Mode::WGRP | Mode::WOTH);
    match purpose {
        Unprivileged::Server { directory, .. } => enter_own_root(directory)?,
        Unprivileged::Egress => {
            enter_empty_root()?;
            sys::unshare(UnshareFlags::NEWNET)?;
        }
    }
    umask(mask);
    jail::drop_bounding_set()?;
    clear_ambient_capability_set()?;
    let (user, group) = (Uid::from_raw(account), Gid::from_raw(account));
    set_thread_groups(&[])?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    set_no_new_privs(true)?;
    // Another process of the same account can neither trace this one nor read its memory.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let refused_calls = if log_refused_calls { RefusedCalls::Logged } else { RefusedCalls::Silent };
    match purpose {
        Unprivileged::Server { ends_with_parent, .. } => {
            if ends_with_parent {
                // Not before: a change of identity clears it.
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            }
            jail::load_for_server(refused_calls)
        }
        // Any thread of the parent may have started it; it ends when its socket is closed.
        Unprivileged::Egress => jail::load_for_egress(refused_calls),
    }
}

/// Leaves the host's file system for an empty one.
fn enter_empty_root() -> io::Result<()> {
    sys::unshare(UnshareFlags::NEWNS)?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("sandcove", NEW_ROOT, "tmpfs", flags, Some(c"mode=755,size=4k"))?;
    std::fs::create_dir(Path::new(NEW_ROOT).join("old"))?;
    leave_for(Path::new(NEW_ROOT))?;
    mount_remount("/", MountFlags::BIND | MountFlags::RDONLY | flags, "").map_err(Into::into)
}

/// Makes `root` the root directory, and its directory `old` go with the former one.
fn leave_for(root: &Path) -> io::Result<()> {
    chdir(root)?;
    pivot_root(".", "old")?;
    chdir("/")?;
    unmount("/old", UnmountFlags::DETACH)?;
    std::fs::remove_dir("/old")
}

/// Leaves the host's file system for one that has only `kept` and what the process reads.
fn enter_own_root(kept: &Path) -> io::Result<()> {
    sys::unshare(UnshareFlags::NEWNS)?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    // All opened before the new root covers anything.
    let mut trees = Vec::new();
    for (path, kind) in seen() {
        let recursive = if kind == Kind::File { OpenTreeFlags::empty() } else { OpenTreeFlags::AT_RECURSIVE };
        if let Some(tree) = tree(&path, recursive)? {
            trees.push((path, tree, kind));
        }
    }
    let own = tree(kept, OpenTreeFlags::empty())?.ok_or(ErrorKind::NotFound)?;
    trees.push((kept.to_owned(), own, Kind::Own));

    let root = Path::new(NEW_ROOT);
    let restricted = MountFlags::NOSUID | MountFlags::NODEV;
    mount("sandcove", root, "tmpfs", restricted, Some(c"mode=755,size=64m"))?;
    for directory in ["tmp", "old"] {
        std::fs::create_dir(root.join(directory))?;
    }
    // The database sorts what is large in a file.
    std::fs::set_permissions(root.join("tmp"), std::os::unix::fs::PermissionsExt::from_mode(0o1777))?;
    for (path, tree, kind) in trees {
        let target = root.join(path.strip_prefix("/").unwrap_or(&path));
        match kind {
            Kind::File => {
                target.parent().map_or(Ok(()), std::fs::create_dir_all)?;
                std::fs::File::create(&target)?;
            }
            // Below a directory that is seen, it is there.
            Kind::ReadOnly | Kind::Own => std::fs::create_dir_all(&target)?,
        }
        move_mount(&tree, "", CWD, &target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
        let bind = MountFlags::BIND | restricted;
        match kind {
            Kind::ReadOnly => mount_remount(&target, bind | MountFlags::RDONLY, "")?,
            Kind::File => mount_remount(&target, bind | MountFlags::RDONLY | MountFlags::NOEXEC, "")?,
            Kind::Own => mount_remount(&target, bind | MountFlags::NOEXEC, "")?,
        }
    }
    for link in ["/lib", "/lib32", "/lib64"] {
        if let Ok(target) = std::fs::read_link(link) {
            std::os::unix::fs::symlink(target, root.join(&link[1..]))?;
        }
    }
    leave_for(root)
}

/// Kinds of mounts of the new root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    ReadOnly,
    File,
    Own,
}

/// Directories and files of the host that the process sees. A link to a directory is made again, and not mounted.
fn seen() -> Vec<(PathBuf, Kind)> {
    let is_directory = |path: &&str| Path::new(path).symlink_metadata().is_ok_and(|it| it.is_dir());
    let directories = SEEN.into_iter().filter(is_directory).map(|path| (path.into(), Kind::ReadOnly));
    let mut seen: Vec<(PathBuf, Kind)> = directories.collect();
    if let Ok(file) = Path::new(RESOLVER).canonicalize() {
        seen.extend(resolver(&file).filter(|(path, _)| !seen.iter().any(|(one, _)| path.starts_with(one))));
    }
    seen.extend(SEEN_FILES.map(|path| (path.into(), Kind::File)));
    seen
}

/// The place of the settings of name resolution: the directory of a program that replaces the file now and then, but not the
/// whole of `/run`, where sockets of services are, or of a mount point; otherwise the file.
fn resolver(file: &Path) -> Option<(PathBuf, Kind)> {
    let directory = file.parent()?;
    let is_of_a_program =
        directory.strip_prefix("/run").is_ok_and(|below| below.components().next().is_some());
    Some(if is_of_a_program { (directory.into(), Kind::ReadOnly) } else { (file.into(), Kind::File) })
}

/// A copy of a mount, or of a part of it; `None` if there is nothing at the path.
fn tree(path: &Path, more: OpenTreeFlags) -> io::Result<Option<std::os::fd::OwnedFd>> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | more;
    match open_tree(CWD, path, flags) {
        Err(rustix::io::Errno::NOENT) => Ok(None),
        tree => Ok(Some(tree?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_looked_for_in_every_range() {
        assert!(covers("         0          0 4294967295", 60_888));
        assert!(covers("0 100000 65536", 65_535) && !covers("0 100000 65536", 65_536));
        assert!(!covers("", 0) && !covers("a b c", 0));
    }

    #[test]
    fn settings_of_name_resolution_are_seen_where_they_are() {
        let place = |path: &str| resolver(Path::new(path)).unwrap();
        assert_eq!(
            place("/run/systemd/resolve/stub-resolv.conf"),
            ("/run/systemd/resolve".into(), Kind::ReadOnly)
        );
        for file in ["/run/resolv.conf", "/mnt/wsl/resolv.conf", "/etc/resolv.conf"] {
            assert_eq!(place(file), (file.into(), Kind::File));
        }
    }

    #[test]
    fn the_ids_of_sandboxes_are_not_for_the_server() {
        assert_eq!(cannot_become(net::FIRST_ID), Some(Objection::OfSandboxes));
    }
}
