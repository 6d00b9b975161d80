//! The spawner process.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags, mkdirat, open};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_change,
    mount_remount, move_mount, open_tree, unmount,
};
use rustix::process::{
    Resource, Rlimit, WaitOptions, chdir, getrlimit, pivot_root, set_child_subreaper, setrlimit, setsid,
    umask, wait,
};
use rustix::thread::UnshareFlags;

use super::greeting::Greeting;
use crate::jail::{
    self, BuildRequest, CRIU, EMPTY, Failure, GIVEN, LAYERS, MAX_LAYERS, NEW_ROOT, PROGRAMS, Parent, Reply,
    UPPER,
};
use crate::packet::{passed_socket, receive, send};
use crate::precedence;
use crate::sys::{self, Forked, RefusedCalls};

/// Paths at which programs that CRIU starts look for their loader, on either architecture.
const LOADERS: [&str; 2] = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];

/// Runs `sandcove __spawner <pool> <programs>... [--criu <directory>]`, with the server's socket as standard input. Returns after the server and
/// every sandbox have ended, or after a failure has been reported to the server. With `log_refused_calls` the kernel logs
/// the system calls that sandboxes are refused.
pub fn spawner_main(
    pool: &Path,
    programs: &[PathBuf],
    criu: Option<&Path>,
    log_refused_calls: bool,
) -> io::Result<()> {
    let socket = passed_socket()?;
    // It has the server's protection when memory runs out; a sandbox has neither.
    precedence::prioritize_spawner();
    let refused_calls = if log_refused_calls { RefusedCalls::Logged } else { RefusedCalls::Silent };
    if let Err(failure) = prepare(pool, programs, criu, refused_calls) {
        return send(&socket, &Greeting::Failed(failure), &[]);
    }
    send(&socket, &Greeting::Ready, &[])?;
    serve(&socket)
}

fn prepare(
    pool: &Path,
    programs: &[PathBuf],
    criu: Option<&Path>,
    refused_calls: RefusedCalls,
) -> Result<(), Failure> {
    // Users of sandboxes pass through directories that are made here. Services are often started with a strict mask.
    umask(Mode::WGRP | Mode::WOTH);
    // Ctrl-C in the server's terminal must not reach sandboxes.
    let _ = setsid();
    allow_core_limit()?;
    set_child_subreaper(Some(rustix::process::getpid())).map_err(Failure::at("adopt orphans"))?;
    // The kernel reaps children at once: a control group is not empty before its last process is reaped.
    sys::set_reaps_children(false).map_err(Failure::at("have children reaped"))?;
    for path in [pool].into_iter().chain(programs.iter().map(PathBuf::as_path)).chain(criu) {
        std::fs::metadata(path).map_err(Failure::at(&format!("find `{}`", path.display())))?;
    }
    // Once, here: each process that is forked finds them in its memory.
    jail::prepare_filters(refused_calls)?;
    enter_own_root(pool, programs, criu).map_err(Failure::at("leave the host's file system"))
}

/// Allows the limit of core files that sandboxes set for themselves, 1 (see `jail::init`). Services often have the limit 0, above which a
/// process in a user namespace cannot raise its own.
fn allow_core_limit() -> Result<(), Failure> {
    let limit = getrlimit(Resource::Core);
    if limit.maximum != Some(0) {
        return Ok(());
    }
    setrlimit(Resource::Core, Rlimit { maximum: Some(1), ..limit }).map_err(Failure::at(
        "raise the limit of core files from 0 to 1, which sandboxes need: start the server with that limit (`ulimit -Hc 1`, or \
         `LimitCORE=0:1` of the service) or with CAP_SYS_RESOURCE",
    ))
}

/// Leaves the host's file system: only what is mounted here can be reached from the mount namespace of a sandbox that is being
/// built. The guest programs are copied, so that nothing of the host's disk is mounted in sandboxes.
fn enter_own_root(pool: &Path, versions: &[PathBuf], criu: Option<&Path>) -> io::Result<()> {
    sys::unshare(UnshareFlags::NEWNS)?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    // Opened before the new root covers anything: the data directory may lie below its mount point.
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let pool_tree = open_tree(CWD, pool, flags)?;
    let once = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let criu = criu.map(|criu| open_tree(CWD, criu, once)).transpose()?;
    let versions = versions.iter().map(|version| {
        let name = version.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        Ok((name, open(version, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?))
    });
    let versions: Vec<(&OsStr, OwnedFd)> = versions.collect::<io::Result<_>>()?;
    let root = Path::new("/tmp");
    mount("sandcove", root, "tmpfs", MountFlags::NOSUID, Some(c"mode=755,size=1m"))?;
    let under = |path: &str| root.join(path.trim_start_matches('/'));

    // `dev`, `run` and `tmp` are CRIU's: it keeps in the second what it has found out about the kernel.
    for directory in
        ["proc", "sys", "dev", "run", "tmp", NEW_ROOT, LAYERS, UPPER, PROGRAMS, EMPTY, CRIU, GIVEN, "old"]
    {
        make_directory(&under(directory))?;
    }
    for index in 0..MAX_LAYERS {
        make_directory(&under(LAYERS).join(index.to_string()))?;
    }
    mount("proc", under("proc"), "proc", MountFlags::empty(), None)?;
    mount("sysfs", under("sys"), "sysfs", MountFlags::empty(), None)?;
    let programs = under(PROGRAMS);
    mount(
        "sandcove",
        &programs,
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        Some(c"mode=755,size=512m"),
    )?;
    for (name, version) in versions {
        let target = programs.join(name);
        make_directory(&target)?;
        // The directory is below /tmp on some hosts, which is covered by now.
        copy(Path::new(&format!("/proc/self/fd/{}", version.as_raw_fd())), &target)?;
    }
    mount_remount(&programs, MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV, "")?;
    if let Some(criu) = criu {
        let target = under(CRIU);
        move_mount(&criu, "", CWD, &target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
        let rights = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
        mount_remount(&target, rights, "")?;
        for loader in LOADERS {
            let link = under(loader);
            link.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            std::os::unix::fs::symlink(format!("{CRIU}/bin/ld.so"), link)?;
        }
    }
    let target = under(&pool.to_string_lossy());
    std::fs::create_dir_all(&target)?;
    move_mount(&pool_tree, "", CWD, &target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    chdir(root)?;
    pivot_root(".", "old")?;
    chdir("/")?;
    unmount("/old", UnmountFlags::DETACH)?;
    Ok(())
}

/// Copies a directory with everything in it; modes are kept.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            std::fs::create_dir(&target)?;
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

fn make_directory(path: &PathBuf) -> io::Result<()> {
    mkdirat(CWD, path, Mode::from_raw_mode(0o755)).map_err(Into::into)
}

fn serve(socket: &OwnedFd) -> io::Result<()> {
    let mut server = Some(socket.as_fd());
    loop {
        let Some(listening) = server else {
            // The server is gone: stay until the last sandbox has ended.
            match wait(WaitOptions::empty()) {
                Ok(_) => continue,
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return Ok(()),
            }
        };
        let mut fds = [PollFd::new(&listening, PollFlags::IN)];
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        match receive::<BuildRequest>(listening) {
            Ok(Some((request, fds))) => start_builder(&request, fds),
            Ok(None) => server = None,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => server = None,
            // The sender of a message that is unreadable or too long sees its reply socket close.
            Err(_) => {}
        }
    }
}

fn start_builder(request: &BuildRequest, mut fds: Vec<OwnedFd>) {
    let Some(reply) = fds.pop() else { return };
    let (processes, users) = (fds.pop(), fds.pop());
    let parent = processes.zip(users).map(|(processes, users)| Parent { users, processes });
    match sys::fork() {
        Ok(Forked::Child) => {
            jail::builder::run(request, &reply, parent);
            sys::exit_now(0);
        }
        Ok(Forked::Parent { .. }) => {}
        Err(error) => {
            let failure = Failure { step: "fork".into(), reason: error.to_string() };
            let _ = send(&reply, &Reply::Failed(failure), &[]);
        }
    }
}
