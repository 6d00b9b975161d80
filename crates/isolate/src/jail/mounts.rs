//! The file systems that a sandbox sees.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, chmod, mkdirat, open, symlinkat, unlinkat};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags, mount, mount_bind, mount_change,
    mount_remount, move_mount, unmount,
};
use rustix::process::{chdir, pivot_root};
use sandcove_wire::boot::LIBEXEC;

use super::handover::{DEVICES, Failure, Launch, NEW_ROOT};

/// Files of `/proc` that reveal or reach the host; covered by an empty device.
const MASKED_FILES: [&str; 10] = [
    "/proc/cmdline",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/key-users",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/sysrq-trigger",
    "/proc/timer_list",
    "/proc/kallsyms",
];
/// Directories that are covered by an empty read-only one.
const MASKED_DIRECTORIES: [&str; 8] = [
    "/proc/acpi",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/kernel",
    "/sys/fs",
    "/sys/module",
    "/sys/block",
    // Energy counters, from which the work of other sandboxes can be inferred.
    "/sys/devices/virtual/powercap",
];
/// Directories of `/proc` that are read-only.
const READ_ONLY: [&str; 4] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"];

/// Temporary mount point of the old root, below the new one.
const OLD_ROOT: &str = "run/old";

const QUIET: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);

/// Attaches `root`, mounts the kernel's file systems in it, pivots to it, and detaches the old root. `processes` is a
/// `/proc` for a process that may not mount one.
pub(super) fn enter(root: &OwnedFd, processes: Option<&OwnedFd>, launch: &Launch) -> Result<(), Failure> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(Failure::at("unshare mounts"))?;
    move_mount(root, "", CWD, NEW_ROOT, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(Failure::at("attach root"))?;
    chdir(NEW_ROOT).map_err(Failure::at("enter root"))?;
    for directory in ["proc", "sys", "dev", "run", "tmp"] {
        // Templates from images may lack one; an existing one is fine.
        let _ = mkdirat(CWD, directory, Mode::from_raw_mode(0o755));
    }
    match processes {
        Some(processes) => move_mount(processes, "", CWD, "proc", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH),
        None => mount("proc", "proc", "proc", QUIET, None),
    }
    .map_err(Failure::at("mount /proc"))?;
    mount("sysfs", "sys", "sysfs", QUIET | MountFlags::RDONLY, None).map_err(Failure::at("mount /sys"))?;
    devices(launch)?;
    memory_backed("run", "mode=755", launch)?;
    guest_programs(launch)?;

    // Not on top of the new root, as is often done: a process that enters the namespaces at that moment would get the
    // old root.
    mkdirat(CWD, OLD_ROOT, Mode::from_raw_mode(0o700))
        .map_err(Failure::at("create the mount point of the old root"))?;
    pivot_root(".", OLD_ROOT).map_err(Failure::at("pivot root"))?;
    chdir("/").map_err(Failure::at("enter new root"))?;
    unmount(OLD_ROOT, UnmountFlags::DETACH).map_err(Failure::at("detach the old root"))?;
    unlinkat(CWD, OLD_ROOT, AtFlags::REMOVEDIR)
        .map_err(Failure::at("remove the mount point of the old root"))?;
    mask()?;
    // After masking, because the file is below a directory that was just bound again.
    boot_id()
}

/// Gives the sandbox a boot id of its own. The host's would be the same in all sandboxes and after a cold start.
fn boot_id() -> Result<(), Failure> {
    let (source, target) = ("/run/boot_id", "/proc/sys/kernel/random/boot_id");
    let fresh = std::fs::read("/proc/sys/kernel/random/uuid").map_err(Failure::at("create a boot id"))?;
    std::fs::write(source, fresh).map_err(Failure::at("write the boot id"))?;
    chmod(source, Mode::from_raw_mode(0o444)).map_err(Failure::at("write the boot id"))?;
    mount_bind(source, target).map_err(Failure::at("show the boot id"))?;
    unlinkat(CWD, source, AtFlags::empty()).map_err(Failure::at("hide the boot id's file"))
}

/// Attaches the volumes. The old root is detached by now, so no link of the template or of a volume leads to it.
pub(super) fn attach(volumes: &[OwnedFd], launch: &Launch) -> Result<(), Failure> {
    for (tree, volume) in volumes.iter().zip(&launch.volumes) {
        std::fs::create_dir_all(&volume.target).map_err(Failure::at("create the mount point of a volume"))?;
        move_mount(tree, "", CWD, &volume.target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(Failure::at("attach a volume"))?;
    }
    Ok(())
}

fn memory_backed(target: &str, options: &str, launch: &Launch) -> Result<(), Failure> {
    let options = std::ffi::CString::new(format!("{options},size={}m", launch.tmpfs_mib))
        .map_err(Failure::at("mount options"))?;
    mount("tmpfs", target, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(options.as_c_str()))
        .map_err(Failure::at(&format!("mount {target}")))
}

fn devices(launch: &Launch) -> Result<(), Failure> {
    mount("tmpfs", "dev", "tmpfs", MountFlags::NOSUID | MountFlags::NOEXEC, Some(c"mode=755,size=64k"))
        .map_err(Failure::at("mount /dev"))?;
    for device in DEVICES {
        let source = Path::new("/dev").join(device);
        if !source.exists() {
            continue;
        }
        let target = format!("dev/{device}");
        open(&target, OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::from_raw_mode(0o666))
            .map_err(Failure::at("make a device file"))?;
        mount_bind(&source, &target).map_err(Failure::at("bind a device"))?;
    }
    for (directory, mode) in [("dev/pts", 0o755), ("dev/shm", 0o1777), ("dev/mqueue", 0o1777)] {
        mkdirat(CWD, directory, Mode::from_raw_mode(mode)).map_err(Failure::at("make a /dev directory"))?;
    }
    let options = Some(c"newinstance,ptmxmode=0666,mode=0620,gid=5");
    mount("devpts", "dev/pts", "devpts", MountFlags::NOSUID | MountFlags::NOEXEC, options)
        .map_err(Failure::at("mount /dev/pts"))?;
    memory_backed("dev/shm", "mode=1777", launch)?;
    mount("mqueue", "dev/mqueue", "mqueue", QUIET, None).map_err(Failure::at("mount /dev/mqueue"))?;
    for (name, to) in [
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        symlinkat(to, CWD, format!("dev/{name}")).map_err(Failure::at("link in /dev"))?;
    }
    Ok(())
}

fn guest_programs(launch: &Launch) -> Result<(), Failure> {
    let target = LIBEXEC.trim_start_matches('/');
    mkdirat(CWD, target, Mode::from_raw_mode(0o755)).map_err(Failure::at("make the programs' directory"))?;
    mount_bind(&launch.libexec, target).map_err(Failure::at("bind programs"))?;
    mount_remount(target, MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV, "")
        .map_err(Failure::at("make programs read-only"))
}

fn mask() -> Result<(), Failure> {
    for path in READ_ONLY {
        if Path::new(path).exists() {
            mount_bind(path, path).map_err(Failure::at(path))?;
            mount_remount(path, MountFlags::BIND | MountFlags::RDONLY | QUIET, "")
                .map_err(Failure::at(path))?;
        }
    }
    for path in MASKED_FILES {
        if Path::new(path).exists() {
            mount_bind("/dev/null", path).map_err(Failure::at(path))?;
        }
    }
    for path in MASKED_DIRECTORIES {
        if Path::new(path).exists() {
            mount("tmpfs", path, "tmpfs", QUIET | MountFlags::RDONLY, Some(c"mode=555,size=0"))
                .map_err(Failure::at(path))?;
        }
    }
    let _ = chmod("/dev/shm", Mode::from_raw_mode(0o1777));
    Ok(())
}
