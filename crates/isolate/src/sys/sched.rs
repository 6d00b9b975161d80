//! Scheduling of a thread by the kernel.

use std::io;
use std::time::Duration;

use super::check;

/// `struct sched_attr` of its first version; see sched_setattr(2).
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Scheduling of threads and processes that a thread starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Children {
    /// Scheduling of the thread.
    Inherit,
    /// Default of the kernel.
    Reset,
}

/// Kind of a number of a thread, for the calls for I/O priorities.
const IOPRIO_WHO_PROCESS: i32 = 1;

/// I/O priority of a thread.
pub(crate) fn io_priority(thread: u32) -> io::Result<i32> {
    // SAFETY: the call has no pointers.
    let priority = check(unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, thread) })?;
    Ok(priority as i32)
}

/// Sets the I/O priority of a thread.
pub(crate) fn set_io_priority(thread: u32, priority: i32) -> io::Result<()> {
    // SAFETY: the call has no pointers.
    check(unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, thread, priority) }).map(drop)
}

/// Sets niceness and time slice of the calling thread. Linux before 6.12 ignores the slice.
pub(crate) fn set_schedule(nice: i32, slice: Duration, children: Children) -> io::Result<()> {
    const RESET_ON_FORK: u64 = 1;
    let attributes = SchedAttr {
        size: size_of::<SchedAttr>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: if children == Children::Reset { RESET_ON_FORK } else { 0 },
        nice,
        runtime: slice.as_nanos() as u64,
        ..SchedAttr::default()
    };
    // SAFETY: `attributes` is a sched_attr of the size that it names; 0 stands for the calling thread.
    check(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, std::ptr::from_ref(&attributes), 0) }).map(drop)
}
