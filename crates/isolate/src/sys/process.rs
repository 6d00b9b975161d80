//! Fork, clone into new namespaces, exec.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use super::check;
use super::sched::{Children, set_schedule};

/// Namespaces for a new process, as `clone3` takes them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CloneFlags(u64);

impl CloneFlags {
    /// All namespaces of a sandbox but two: the network namespace, which belongs to the user namespace above, and the cgroup
    /// namespace, which follows when PID 1 is in its control group.
    pub(crate) const SANDBOX: Self = Self(Self::ANCHOR.0 | Self::WARM.0);

    /// A user namespace alone.
    pub(crate) const USER: Self = Self(libc::CLONE_NEWUSER as u64);

    /// Namespaces of an anchor: those that a warm process shares with it and is not the first process of.
    pub(crate) const ANCHOR: Self = Self((libc::CLONE_NEWUSER | libc::CLONE_NEWPID) as u64);

    /// Namespaces that a warm process has in addition to its anchor's.
    pub(crate) const WARM: Self = Self((libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS) as u64);
}

/// Side of a fork that returns.
pub(crate) enum Forked {
    /// The child.
    Child,
    /// The parent.
    Parent {
        /// The child.
        child: OwnedFd,
    },
}

#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Clones the calling process into new namespaces.
///
/// The caller must be single-threaded: the child goes on in the same code with a copy of the memory, so a lock held by
/// another thread would stay locked there for ever.
pub(crate) fn clone_child(flags: CloneFlags) -> io::Result<Forked> {
    let mut child: RawFd = -1;
    let args = CloneArgs {
        flags: flags.0 | libc::CLONE_PIDFD as u64,
        pidfd: std::ptr::from_mut(&mut child) as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..CloneArgs::default()
    };
    // SAFETY: `args` is a valid clone_args of the given size, and `pidfd` points to room for a descriptor; no stack or TLS is
    // passed and CLONE_VM is not set, so the child has its own copy of the address space and returns here like from fork.
    let pid = check(unsafe {
        libc::syscall(libc::SYS_clone3, std::ptr::from_ref(&args), std::mem::size_of::<CloneArgs>())
    })?;
    if pid == 0 {
        return Ok(Forked::Child);
    }
    // SAFETY: the kernel has stored a new descriptor, closed on exec, that nothing else owns.
    Ok(Forked::Parent { child: unsafe { OwnedFd::from_raw_fd(child) } })
}

/// Forks the calling process, which must be single-threaded as for [`clone_child`].
pub(crate) fn fork() -> io::Result<Forked> {
    clone_child(CloneFlags(0))
}

/// Has a program run without the precedence of this process, on the processors and when memory runs out. Its writes beyond the limit on the size
/// of files fail (`EFBIG`) and do not end it.
pub(crate) fn start_without_precedence(command: &mut Command) {
    let prepare = || {
        set_schedule(0, Duration::ZERO, Children::Inherit)?;
        let score =
            rustix::fs::open(c"/proc/self/oom_score_adj", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let mut sign = [0];
        if rustix::io::pread(&score, &mut sign, 0)? == 1 && sign == *b"-" {
            rustix::io::pwrite(&score, b"0", 0)?;
        }
        // SAFETY: the process has no handler of this signal that would be lost.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        Ok(())
    };
    // SAFETY: `prepare` consists of system calls and allocates nothing, so it waits for no lock that another thread held at the fork.
    unsafe { command.pre_exec(prepare) };
}

/// Exits at once, without running destructors or flushing.
pub(crate) fn exit_now(status: i32) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(status) }
}

/// Moves the given descriptors to 0, 1, 2, … in order, without close-on-exec; whatever was there is replaced.
pub(crate) fn place_fds(fds: Vec<OwnedFd>) -> io::Result<()> {
    let count = fds.len() as RawFd;
    // First out of the way of the targets, so that no source is overwritten before it is used.
    let mut parked = Vec::with_capacity(fds.len());
    for fd in fds {
        // SAFETY: F_DUPFD_CLOEXEC on an open descriptor makes a new one at or above the given number.
        let high = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, count + 16) }.into())?;
        parked.push(high as RawFd);
    }
    for (target, source) in (0..).zip(parked) {
        // SAFETY: both are plain numbers below the limit; `source` was opened above and is not owned elsewhere.
        check(unsafe { libc::dup2(source, target) }.into())?;
    }
    Ok(())
}

/// Replaces the process with `program`.
pub(crate) fn exec(program: &CStr, args: &[CString], env: &[CString]) -> io::Error {
    let argv: Vec<_> = args.iter().map(|a| a.as_ptr()).chain([std::ptr::null()]).collect();
    let envp: Vec<_> = env.iter().map(|e| e.as_ptr()).chain([std::ptr::null()]).collect();
    // SAFETY: both arrays end in null and their strings outlive the call.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    io::Error::last_os_error()
}

/// Gives the calling process namespaces of its own; it must be single-threaded as for [`clone_child`].
pub(crate) fn unshare(flags: rustix::thread::UnshareFlags) -> io::Result<()> {
    // SAFETY: of the flags, only FILES and FS are unsound with other threads, and the callers have none.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(Into::into)
}

/// Sets the ids that new files of the calling process get.
pub(crate) fn set_file_identity(uid: rustix::process::Uid, gid: rustix::process::Gid) -> io::Result<()> {
    // SAFETY: both take and return plain numbers. They report no error; a second call returns the ids in force.
    let now = unsafe {
        libc::setfsgid(gid.as_raw());
        libc::setfsuid(uid.as_raw());
        (libc::setfsuid(u32::MAX) as u32, libc::setfsgid(u32::MAX) as u32)
    };
    if now == (uid.as_raw(), gid.as_raw()) { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Changes the calling process's effective user and group to `id`, and nothing else.
pub(crate) fn set_effective_ids(id: u32) -> io::Result<()> {
    const UNCHANGED: u32 = u32::MAX;
    // SAFETY: plain numbers.
    unsafe {
        check(libc::syscall(libc::SYS_setresgid, UNCHANGED, id, UNCHANGED))?;
        check(libc::syscall(libc::SYS_setresuid, UNCHANGED, id, UNCHANGED))?;
    }
    Ok(())
}

/// Becomes user and group 0 of the calling process's user namespace, with no further groups.
pub(crate) fn become_root() -> io::Result<()> {
    // SAFETY: plain numbers; the process has one thread, so the per-thread nature of the raw calls does not matter.
    unsafe {
        check(libc::syscall(libc::SYS_setresgid, 0, 0, 0))?;
        check(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()))?;
        check(libc::syscall(libc::SYS_setresuid, 0, 0, 0))?;
    }
    Ok(())
}

/// Kind of a comparison of kcmp(2): two descriptors.
const KCMP_FILE: libc::c_int = 0;

/// Whether descriptors of two processes, each by the host's number of its process and its own, are of one open file.
pub(crate) fn is_same_file(one: (u32, i32), other: (u32, i32)) -> io::Result<bool> {
    // SAFETY: plain integers in, an integer out.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, one.0, other.0, KCMP_FILE, one.1, other.1) };
    Ok(check(order)? == 0)
}

/// Gives every signal its default action. An executed program inherits the signals that this process ignores: as `nohup` and shells do for what
/// they start in the background, whoever started the server may have had some ignored.
pub(crate) fn reset_signals() {
    for signal in 1..32 {
        // SAFETY: the default action runs no code of ours. The two signals that have no other are refused, which changes nothing.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Chooses who reaps the calling process's children: the process itself (`SIGCHLD` is delivered), or the kernel (it is
/// ignored). An executed program inherits an ignored signal.
pub(crate) fn set_reaps_children(by_itself: bool) -> io::Result<()> {
    let action = if by_itself { libc::SIG_DFL } else { libc::SIG_IGN };
    // SAFETY: neither disposition runs code of ours.
    if unsafe { libc::signal(libc::SIGCHLD, action) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Closes every descriptor from `first` up, whoever in this process has it; the process does nothing else with them.
pub(crate) fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: the callers are processes that were just forked and use no descriptor at or above `first` any more.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) }).map(drop)
}

/// Marks every descriptor from `first` up close-on-exec.
pub(crate) fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: changes a flag of descriptors only.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) })
        .map(drop)
}
