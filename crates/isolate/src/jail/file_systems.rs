//! New file systems that are attached nowhere yet, and attaching them below a root that is not trusted.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen, move_mount,
};

/// Flags of file systems that hold neither programs nor devices.
pub(super) const QUIET: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID
    .union(MountAttrFlags::MOUNT_ATTR_NODEV)
    .union(MountAttrFlags::MOUNT_ATTR_NOEXEC);

/// Creates a file system of type `kind`.
pub(super) fn create(kind: &str, options: &[(&str, &str)], flags: MountAttrFlags) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(context.as_fd(), *key, *value)?;
    }
    fsconfig_create(context.as_fd())?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags).map_err(Into::into)
}

/// Maximum length of an option of a file system, bytes.
const MAX_OPTION: usize = 255;

/// The files of layers, topmost first, as a sandbox sees them. They are attached nowhere, and can only be read.
pub(crate) fn merged(layers: &[PathBuf]) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened: Vec<OwnedFd> =
        layers.iter().map(|layer| open(layer, flags, Mode::empty())).collect::<Result<_, _>>()?;
    if opened.len() < 2 {
        return opened.into_iter().next().ok_or_else(|| io::ErrorKind::NotFound.into());
    }
    let rights = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let names: Vec<String> =
        opened.iter().map(|layer| format!("/proc/self/fd/{}", layer.as_raw_fd())).collect();
    let all = names.join(":");
    let mut options = vec![("source", "sandcove"), ("redirect_dir", "follow")];
    if all.len() <= MAX_OPTION {
        options.push(("lowerdir", all.as_str()));
    } else {
        // Kernels from 6.5 on take layers one by one.
        options.extend(names.iter().map(|name| ("lowerdir+", name.as_str())));
    }
    create("overlay", &options, rights)
}

/// Attaches `tree` at the directory `path` below `root`. The files there are the template's or the sandbox's, so no link is
/// followed: a link could lead to another place of the spawner's file system.
pub(super) fn attach(tree: &OwnedFd, root: &OwnedFd, path: &str) -> io::Result<()> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let target = openat2(root, path, flags, Mode::empty(), resolve)?;
    let both = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, "", &target, "", both).map_err(Into::into)
}
