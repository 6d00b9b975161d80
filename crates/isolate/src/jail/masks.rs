//! What a sandbox sees of the kernel in `/proc` and `/sys`: only what is listed here. What a module of the host adds is
//! hidden without being listed.
//!
//! Processor, memory, load and uptime in `/proc` are the host's: programs size themselves by them.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, chmod};
use rustix::mount::{
    MountAttrFlags, MountFlags, MoveMountFlags, OpenTreeFlags, mount, mount_bind, mount_remount, move_mount,
    open_tree,
};

use super::file_systems;
use super::handover::{Failure, NEW_ROOT};

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
pub(super) const SHOWN_IN_SYS: [&str; 4] =
    ["class/net", "devices/system/cpu", "devices/system/node", "devices/virtual/net"];
/// Directories of `/sys` that programs expect to list; they are empty.
const EMPTY_IN_SYS: [&str; 6] = ["block", "dev/block", "firmware", "fs", "kernel", "module"];
/// Files of `/proc` that are shown with contents of our own, below directories that are bound again.
pub(super) const STAND_INS: [&str; 2] = ["/proc/vmstat", "/proc/sys/kernel/random/boot_id"];
/// Content of `/proc/vmstat`, for programs that do not start when the file is empty. The host's has the work of its memory and
/// disks, and so of all sandboxes.
const VMSTAT: &str = "pgpgin 0\npgpgout 0\npswpin 0\npswpout 0\npgfault 0\npgmajfault 0\n";

const QUIET: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);

/// Hides all else in `/proc`. `/proc`, `/dev` and `/run` are mounted, and the old root is detached.
pub(super) fn apply(stand_ins: &[OwnedFd]) -> Result<(), Failure> {
    hide_in_proc()?;
    mount_bind("/proc/sys", "/proc/sys").map_err(Failure::at("/proc/sys"))?;
    mount_remount("/proc/sys", MountFlags::BIND | MountFlags::RDONLY | QUIET, "")
        .map_err(Failure::at("/proc/sys"))?;
    for (tree, target) in stand_ins.iter().zip(STAND_INS) {
        if Path::new(target).exists() {
            attach(tree, Path::new(target)).map_err(Failure::at(target))?;
        }
    }
    Ok(())
}

fn attach(tree: &OwnedFd, path: &Path) -> rustix::io::Result<()> {
    move_mount(tree, "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
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

/// Creates the `/sys` of a sandbox: a directory, owned by `owner`, in which only parts of the kernel's are mounted. It is attached
/// nowhere yet. The builder does this, in its own mount namespace and in the sandbox's network namespace, so that the sandbox has no
/// mount of the whole: what is covered there could not be stored on disk with it.
pub(super) fn create_sys(owner: u32) -> Result<OwnedFd, Failure> {
    let sys = Path::new("/sys");
    let whole = file_systems::create("sysfs", &[], file_systems::QUIET | MountAttrFlags::MOUNT_ATTR_RDONLY)
        .map_err(Failure::at("mount /sys"))?;
    attach(&whole, sys).map_err(Failure::at("mount /sys"))?;
    let cloned = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let mut parts: Vec<(PathBuf, OwnedFd)> = Vec::new();
    for part in SHOWN_IN_SYS.map(|part| sys.join(part)).into_iter().filter(|part| part.exists()) {
        let tree = open_tree(CWD, &part, cloned).map_err(Failure::at(&part.to_string_lossy()))?;
        parts.push((part, tree));
    }
    let owner = owner.to_string();
    let options = [("mode", "755"), ("size", "64k"), ("uid", &owner), ("gid", &owner)];
    let cover = file_systems::create("tmpfs", &options, file_systems::QUIET)
        .map_err(Failure::at("mount parts of /sys"))?;
    attach(&cover, sys).map_err(Failure::at("mount parts of /sys"))?;
    for directory in EMPTY_IN_SYS.map(|directory| sys.join(directory)) {
        std::fs::create_dir_all(directory).map_err(Failure::at("make a directory of /sys"))?;
    }
    for (part, tree) in parts {
        std::fs::create_dir_all(&part).map_err(Failure::at("make a directory of /sys"))?;
        attach(&tree, &part).map_err(Failure::at(&part.to_string_lossy()))?;
    }
    mount_remount(sys, MountFlags::BIND | MountFlags::RDONLY | QUIET, "")
        .map_err(Failure::at("make /sys read-only"))?;
    open_tree(CWD, sys, cloned | OpenTreeFlags::AT_RECURSIVE).map_err(Failure::at("open /sys"))
}

/// Number of the files that [`create_stand_ins`] returns.
pub(super) const STAND_IN_COUNT: usize = STAND_INS.len();

/// Creates the files that [`apply`] shows, owned by `owner`, each as a mount that is attached nowhere yet. The builder does this, in its
/// own mount namespace: a file that the sandbox could not find under its name could not be stored on disk with it.
pub(super) fn create_stand_ins(owner: u32) -> Result<Vec<OwnedFd>, Failure> {
    let failed = "create the stand-ins of /proc";
    // The host's boot id would be the same in all sandboxes and after a cold start.
    let boot_id = std::fs::read("/proc/sys/kernel/random/uuid").map_err(Failure::at("create a boot id"))?;
    let owner = owner.to_string();
    let options = [("mode", "755"), ("size", "64k"), ("uid", &owner), ("gid", &owner)];
    let files = file_systems::create("tmpfs", &options, file_systems::QUIET).map_err(Failure::at(failed))?;
    let directory = Path::new(NEW_ROOT);
    attach(&files, directory).map_err(Failure::at(failed))?;
    let paths = ["vmstat", "boot_id"].map(|name| directory.join(name));
    for (path, content) in paths.iter().zip([VMSTAT.as_bytes(), &boot_id]) {
        std::fs::write(path, content).map_err(Failure::at(failed))?;
        chmod(path, Mode::from_raw_mode(0o444)).map_err(Failure::at(failed))?;
    }
    mount_remount(directory, MountFlags::BIND | MountFlags::RDONLY | QUIET, "")
        .map_err(Failure::at(failed))?;
    let cloned = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let open = |path: &PathBuf| open_tree(CWD, path, cloned).map_err(Failure::at(failed));
    paths.iter().map(open).collect()
}
