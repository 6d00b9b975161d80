//! The builder: forked by the spawner for one jail, ended when PID 1 has executed its program.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, open};
use rustix::mount::{MountAttrFlags, MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use rustix::thread::UnshareFlags;

use super::clone::Parent;
use super::file_systems;
use super::handover::{BuildRequest, EMPTY, Failure, LAYERS, Launch, PROGRAMS, Reply, UPPER, VolumeMount};
use super::{devices, masks, network};
use crate::packet::{pair, receive, send};
use crate::sys;

/// Builds one jail and reports to the server over the socket `server`. If the server ends meanwhile, the builder ends
/// too, and PID 1 with it, because the socket between them closes.
pub(crate) fn run(request: &BuildRequest, server: &OwnedFd, parent: Option<Parent>) {
    let built = match &request.restore {
        Some(restore) => super::restore::run(request, restore, server),
        None => build(request, server, parent),
    };
    if let Err(failure) = built {
        let _ = send(server, &Reply::Failed(failure), &[]);
    }
}

fn build(request: &BuildRequest, server: &OwnedFd, parent: Option<Parent>) -> Result<(), Failure> {
    let (ours, theirs) = pair().map_err(Failure::at("socketpair"))?;
    let (pid, ours) = super::clone::clone_first(request, parent, ours, theirs)?;
    send(server, &Reply::Cloned { pid }, &[]).map_err(Failure::at("report clone"))?;

    // None: the server gave up the start. The sockets close, and PID 1 exits.
    let Some((launch, fds)) = receive::<Launch>(server).map_err(Failure::at("receive launch"))? else {
        return Ok(());
    };
    network::configure(pid, launch.address)?;
    sys::unshare(UnshareFlags::NEWNS).map_err(Failure::at("unshare mounts"))?;
    // overlayfs creates files with the identity that mounts it, and on an idmapped upper only ids of the sandbox's
    // range exist. So that identity must own files as the sandbox's root, with all of the host's rights.
    super::capabilities::own_files_as(request.id_base).map_err(Failure::at("take file identity"))?;
    // Of the network namespace that the builder is in now.
    let system = masks::create_sys(request.id_base)?;
    let stand_ins = masks::create_stand_ins(request.id_base)?;
    let volumes = mount_volumes(&launch, pid)?;
    let root = mount_root(&launch, pid)?;
    let devices = devices::create(request.id_base).map_err(Failure::at("mount /dev"))?;
    let programs = mount_programs(&launch.programs).map_err(Failure::at("mount the programs"))?;
    // The order in which `Trees` takes them.
    let trees = volumes.iter().chain([&root, &devices, &system, &programs]).chain(&stand_ins);
    let all: Vec<_> = fds.iter().chain(trees).map(AsFd::as_fd).collect();
    send(&ours, &launch, &all).map_err(Failure::at("hand over the root"))?;
    drop(fds);
    // PID 1 reports a failed step; its socket closes on exec.
    match receive::<Failure>(&ours).map_err(Failure::at("wait for exec"))? {
        Some((failure, _)) => Err(failure),
        None => send(server, &Reply::Launched, &[]).map_err(Failure::at("report launch")),
    }
}

/// Opens detached mounts of the volumes that map their files to the sandbox's ids. The mounts ignore set-user-id bits,
/// so that a file of one sandbox gives no rights to users of another.
pub(super) fn mount_volumes(launch: &Launch, pid: u32) -> Result<Vec<OwnedFd>, Failure> {
    if launch.volumes.is_empty() {
        return Ok(Vec::new());
    }
    let user_namespace = user_namespace(pid)?;
    let mount = |volume: &VolumeMount| {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(CWD, &volume.source, flags)?;
        sys::idmap_mount(tree.as_fd(), user_namespace.as_fd(), sys::MountRights::Data)?;
        Ok(tree)
    };
    let mounted: io::Result<_> = launch.volumes.iter().map(mount).collect();
    mounted.map_err(Failure::at("mount volumes"))
}

/// Opens the user namespace of a process.
pub(crate) fn user_namespace(pid: u32) -> Result<OwnedFd, Failure> {
    open(format!("/proc/{pid}/ns/user"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(Failure::at("open user namespace"))
}

/// Mounts the sandbox's root and returns it as a detached mount.
pub(super) fn mount_root(launch: &Launch, pid: u32) -> Result<OwnedFd, Failure> {
    let user_namespace = user_namespace(pid)?;

    let mut lower = String::new();
    for (index, layer) in launch.layers.iter().enumerate() {
        let target = format!("{}/{index}", LAYERS);
        attach_idmapped(layer, &target, &user_namespace, sys::MountRights::ReadOnly)
            .map_err(Failure::at("attach layer"))?;
        if index > 0 {
            lower.push(':');
        }
        lower.push_str(&target);
    }
    attach_idmapped(&launch.upper, UPPER, &user_namespace, sys::MountRights::Programs)
        .map_err(Failure::at("attach upper"))?;

    overlay(&lower, UPPER).map_err(Failure::at("mount overlay"))
}

/// Mounts a version of the programs of the agent's side, read-only. An overlay has files of its own, so that no sandbox sees another's locks
/// and watches on them; their contents are in memory once.
pub(super) fn mount_programs(version: &str) -> io::Result<OwnedFd> {
    let flags = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV;
    // An overlay that cannot be written to needs two layers.
    let lower = format!("{PROGRAMS}/{version}:{EMPTY}");
    file_systems::create("overlay", &[("source", "sandcove"), ("lowerdir", &lower)], flags)
}

fn attach_idmapped(
    source: &Path,
    target: &str,
    user_namespace: &OwnedFd,
    rights: sys::MountRights,
) -> io::Result<()> {
    let tree = open_tree(CWD, source, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    sys::idmap_mount(tree.as_fd(), user_namespace.as_fd(), rights)?;
    move_mount(&tree, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(())
}

fn overlay(lower: &str, upper: &str) -> io::Result<OwnedFd> {
    let options = [
        ("source", "sandcove"),
        ("lowerdir", lower),
        ("upperdir", &format!("{upper}/upper")),
        ("workdir", &format!("{upper}/work")),
        // A directory of the template can be renamed as on a plain disk.
        ("redirect_dir", "on"),
    ];
    file_systems::create("overlay", &options, MountAttrFlags::MOUNT_ATTR_NODEV)
}
