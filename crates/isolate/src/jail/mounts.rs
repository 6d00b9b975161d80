//! The file systems that a sandbox sees.

use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, fstat, mkdirat, open, openat2, stat, unlinkat};
use rustix::io::Errno;
use rustix::mount::{
    MountAttrFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags, mount_change, move_mount, unmount,
};
use rustix::process::{chdir, pivot_root};
use sandcove_wire::boot::LIBEXEC;

use super::file_systems::{self, QUIET, attach};
use super::handover::{Failure, JailKind, Launch, NEW_ROOT};
use super::masks;

/// Maximum number of terminals of a sandbox.
pub(crate) const TERMINALS: u64 = 256;

/// Temporary mount point of the old root, below the new one.
const OLD_ROOT: &str = "run/old";

/// The file systems that the builder has mounted, attached nowhere yet.
pub(super) struct Trees {
    /// The volumes, in the order of [`Launch::volumes`].
    volumes: Vec<OwnedFd>,
    root: OwnedFd,
    devices: OwnedFd,
    system: OwnedFd,
    programs: OwnedFd,
    /// Files that stand in for some of `/proc`.
    stand_ins: Vec<OwnedFd>,
}

impl Trees {
    /// Takes the builder's descriptors from the end of those that came with `launch`; `None` when some are missing.
    pub(super) fn take(fds: &mut std::vec::IntoIter<OwnedFd>, launch: &Launch) -> Option<Self> {
        let mut stand_ins: Vec<OwnedFd> = (0..masks::STAND_IN_COUNT).map_while(|_| fds.next_back()).collect();
        stand_ins.reverse();
        let programs = fds.next_back()?;
        let (system, devices, root) = (fds.next_back()?, fds.next_back()?, fds.next_back()?);
        let mut volumes: Vec<OwnedFd> = launch.volumes.iter().map_while(|_| fds.next_back()).collect();
        volumes.reverse();
        (volumes.len() == launch.volumes.len()).then_some(Self {
            volumes,
            root,
            devices,
            system,
            programs,
            stand_ins,
        })
    }
}

/// Attaches the root and the kernel's file systems in it, pivots to it, detaches the old root, and attaches the volumes.
pub(super) fn enter(trees: Trees, launch: &Launch) -> Result<(), Failure> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(Failure::at("unshare mounts"))?;
    move_mount(&trees.root, "", CWD, NEW_ROOT, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(Failure::at("attach root"))?;
    chdir(NEW_ROOT).map_err(Failure::at("enter root"))?;
    let root = open(".", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(Failure::at("open root"))?;
    for directory in ["proc", "sys", "dev", "run", "tmp"] {
        // Templates from images may lack one; an existing one is fine.
        let _ = mkdirat(&root, directory, Mode::from_raw_mode(0o755));
    }
    let visible: &[(&str, &str)] = match launch.kind {
        JailKind::Sandbox => &[],
        // A warm process sees itself only, and not the first processes of its sandboxes.
        JailKind::Warm { .. } => &[("hidepid", "invisible")],
    };
    let processes = file_systems::create("proc", visible, QUIET).map_err(Failure::at("mount /proc"))?;
    attach(&processes, &root, "proc").map_err(Failure::at("attach /proc"))?;
    attach(&trees.system, &root, "sys").map_err(Failure::at("attach /sys"))?;
    devices(&trees.devices, &root, launch)?;
    memory_backed(&root, "run", "755", launch)?;
    let programs = LIBEXEC.trim_start_matches('/');
    mkdirat(&root, programs, Mode::from_raw_mode(0o755))
        .map_err(Failure::at("make the programs' directory"))?;
    attach(&trees.programs, &root, programs).map_err(Failure::at("attach the programs"))?;

    // Not on top of the new root, as is often done: what follows would then see two roots for a moment.
    mkdirat(&root, OLD_ROOT, Mode::from_raw_mode(0o700))
        .map_err(Failure::at("create the mount point of the old root"))?;
    pivot_root(".", OLD_ROOT).map_err(Failure::at("pivot root"))?;
    chdir("/").map_err(Failure::at("enter new root"))?;
    unmount(OLD_ROOT, UnmountFlags::DETACH).map_err(Failure::at("detach the old root"))?;
    unlinkat(CWD, OLD_ROOT, AtFlags::REMOVEDIR)
        .map_err(Failure::at("remove the mount point of the old root"))?;
    masks::apply(&trees.stand_ins)?;
    volumes(&trees.volumes, launch)
}

/// Attaches the volumes, in directories of the template or of other volumes. The old root is detached by now, so no link of the template or of
/// a volume leads to it.
fn volumes(trees: &[OwnedFd], launch: &Launch) -> Result<(), Failure> {
    let failed = |errno: Errno| Failure::at("attach a volume")(errno);
    let device = |directory: &OwnedFd| fstat(directory).map(|stat| stat.st_dev);
    // In many images `/var/run` is a link to `/run`, which is memory of the sandbox's own.
    let mut devices = Vec::new();
    for path in ["/", "/run"] {
        devices.push(stat(path).map_err(failed)?.st_dev);
    }
    for (tree, volume) in trees.iter().zip(&launch.volumes) {
        let target = mount_point(&volume.target).map_err(failed)?;
        if !devices.contains(&device(&target).map_err(failed)?) {
            let reason = format!("a link leads from '{}' to a file system of the kernel's", volume.target);
            return Err(Failure { step: "attach a volume".into(), reason });
        }
        let both = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(tree, "", &target, "", both).map_err(failed)?;
        devices.push(device(tree).map_err(failed)?);
    }
    Ok(())
}

/// Opens the directory `path`, and creates what is missing of it. Links of the template are followed, but none that stand for descriptors of this
/// process.
fn mount_point(path: &str) -> rustix::io::Result<OwnedFd> {
    let open = |path: &Path| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS)
    };
    let (mut so_far, mut directory) = (PathBuf::from("/"), open(Path::new("/"))?);
    for name in Path::new(path).components().filter(|part| matches!(part, Component::Normal(_))) {
        so_far.push(name);
        directory = match open(&so_far) {
            Err(Errno::NOENT) => {
                mkdirat(&directory, name.as_os_str(), Mode::from_raw_mode(0o755))?;
                open(&so_far)?
            }
            opened => opened?,
        };
    }
    Ok(directory)
}

fn memory_backed(root: &OwnedFd, target: &str, mode: &str, launch: &Launch) -> Result<(), Failure> {
    let size = format!("{}m", launch.tmpfs_mib);
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    file_systems::create("tmpfs", &[("mode", mode), ("size", &size)], flags)
        .and_then(|tree| attach(&tree, root, target))
        .map_err(Failure::at(&format!("mount {target}")))
}

fn devices(tree: &OwnedFd, root: &OwnedFd, launch: &Launch) -> Result<(), Failure> {
    attach(tree, root, "dev").map_err(Failure::at("attach /dev"))?;
    // The kernel counts terminals for the whole host; without a maximum one sandbox could take all.
    let maximum = TERMINALS.to_string();
    let options = [("ptmxmode", "0666"), ("mode", "0620"), ("gid", "5"), ("max", &maximum)];
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    file_systems::create("devpts", &options, flags)
        .and_then(|tree| attach(&tree, root, "dev/pts"))
        .map_err(Failure::at("mount /dev/pts"))?;
    memory_backed(root, "dev/shm", "1777", launch)?;
    file_systems::create("mqueue", &[], QUIET)
        .and_then(|tree| attach(&tree, root, "dev/mqueue"))
        .map_err(Failure::at("mount /dev/mqueue"))
}
