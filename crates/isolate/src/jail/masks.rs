//! What a sandbox sees of the kernel in `/proc` and `/sys`: only what is listed here. What a module of the host adds is
//! hidden without being listed.
//!
//! Processor, memory, load and uptime in `/proc` are the host's: programs size themselves by them.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, chmod, unlinkat};
use rustix::mount::{
    MountFlags, MoveMountFlags, OpenTreeFlags, mount, mount_bind, mount_remount, move_mount, open_tree,
};

use super::handover::Failure;

/// Entries of `/proc` that are shown besides processes, with who reads them.
const SHOWN_IN_PROC: [(&str, &str); 15] = [
    ("cpuinfo", "runtimes, numerical libraries, lscpu"),
    ("filesystems", "mount, df, psutil"),
    ("loadavg", "uptime, top, build tools"),
    ("meminfo", "free, top, psutil, runtimes"),
    ("mounts", "df, mount"),
    ("net", "ss, ip, psutil; the sandbox's own network"),
    ("self", "every program"),
    ("stat", "top, psutil, runtimes"),
    ("sys", "runtimes, databases; the sandbox's own names and network"),
    ("sysvipc", "ipcs; the sandbox's own"),
    ("thread-self", "runtimes"),
    ("tty", "ps, for names of terminals"),
    ("uptime", "ps, uptime"),
    ("version", "installers"),
    ("vmstat", "vmstat, psutil; see `STAND_INS`"),
];
/// Directories of `/sys` that are shown: processors and memory nodes, and the sandbox's own network interfaces.
const SHOWN_IN_SYS: [&str; 4] =
    ["class/net", "devices/system/cpu", "devices/system/node", "devices/virtual/net"];
/// Directories of `/sys` that programs expect to list; they are empty.
const EMPTY_IN_SYS: [&str; 6] = ["block", "dev/block", "firmware", "fs", "kernel", "module"];
/// Files of `/proc` with fixed contents, for programs that do not start when the file is empty. The host's has the work
/// of its memory and disks, and so of all sandboxes.
const STAND_INS: [(&str, &str); 1] =
    [("/proc/vmstat", "pgpgin 0\npgpgout 0\npswpin 0\npswpout 0\npgfault 0\npgmajfault 0\n")];

const QUIET: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);

/// Hides all else. `/proc`, `/sys`, `/dev` and `/run` are mounted, and the old root is detached.
pub(super) fn apply() -> Result<(), Failure> {
    hide_in_proc()?;
    show_parts_of_sys()?;
    mount_bind("/proc/sys", "/proc/sys").map_err(Failure::at("/proc/sys"))?;
    mount_remount("/proc/sys", MountFlags::BIND | MountFlags::RDONLY | QUIET, "")
        .map_err(Failure::at("/proc/sys"))?;
    for (target, content) in STAND_INS {
        stand_in(target, content.as_bytes())?;
    }
    // Below a directory that was just bound again. The host's boot id would be the same in all sandboxes and after a
    // cold start.
    let fresh = std::fs::read("/proc/sys/kernel/random/uuid").map_err(Failure::at("create a boot id"))?;
    stand_in("/proc/sys/kernel/random/boot_id", &fresh)
}

fn hide_in_proc() -> Result<(), Failure> {
    let mut empty: Option<PathBuf> = None;
    for entry in std::fs::read_dir("/proc").map_err(Failure::at("list /proc"))? {
        let entry = entry.map_err(Failure::at("list /proc"))?;
        let (name, path) = (entry.file_name(), entry.path());
        let is_process = name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
        let kind = entry.file_type().map_err(Failure::at("list /proc"))?;
        // A link leads to where something else is shown or hidden, and cannot be a mount point.
        if is_process || kind.is_symlink() || SHOWN_IN_PROC.iter().any(|(shown, _)| name == *shown) {
            continue;
        }
        let hidden = match &empty {
            _ if !kind.is_dir() => mount_bind("/dev/null", &path),
            Some(empty) => mount_bind(empty, &path),
            None => mount("tmpfs", &path, "tmpfs", QUIET | MountFlags::RDONLY, Some(c"mode=555")),
        };
        hidden.map_err(Failure::at(&path.to_string_lossy()))?;
        if kind.is_dir() && empty.is_none() {
            empty = Some(path);
        }
    }
    Ok(())
}

/// Covers `/sys` by a directory in which only parts of it are mounted. It is not unmounted below: that takes the kernel ten
/// milliseconds, and nothing leads to what is covered.
fn show_parts_of_sys() -> Result<(), Failure> {
    let sys = Path::new("/sys");
    let mut parts: Vec<(PathBuf, OwnedFd)> = Vec::new();
    for part in SHOWN_IN_SYS.map(|part| sys.join(part)).into_iter().filter(|part| part.exists()) {
        let tree = open_tree(CWD, &part, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)
            .map_err(Failure::at(&part.to_string_lossy()))?;
        parts.push((part, tree));
    }
    mount("tmpfs", sys, "tmpfs", QUIET, Some(c"mode=755,size=64k"))
        .map_err(Failure::at("mount parts of /sys"))?;
    for directory in EMPTY_IN_SYS.map(|directory| sys.join(directory)) {
        std::fs::create_dir_all(directory).map_err(Failure::at("make a directory of /sys"))?;
    }
    for (part, tree) in parts {
        std::fs::create_dir_all(&part).map_err(Failure::at("make a directory of /sys"))?;
        move_mount(&tree, "", CWD, &part, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(Failure::at(&part.to_string_lossy()))?;
    }
    mount_remount(sys, MountFlags::BIND | MountFlags::RDONLY | QUIET, "")
        .map_err(Failure::at("make /sys read-only"))
}

/// Shows `content` at `target`, in a file that has no name of its own.
fn stand_in(target: &str, content: &[u8]) -> Result<(), Failure> {
    let source = "/run/stand-in";
    if !Path::new(target).exists() {
        return Ok(());
    }
    std::fs::write(source, content).map_err(Failure::at(target))?;
    chmod(source, Mode::from_raw_mode(0o444)).map_err(Failure::at(target))?;
    mount_bind(source, target).map_err(Failure::at(target))?;
    unlinkat(CWD, source, AtFlags::empty()).map_err(Failure::at(target))
}
