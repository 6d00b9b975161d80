//! What the process of the egress proxies may ask of the kernel.
//!
//! `recorded-egress.txt` lists the calls that it makes, recorded by `tests/record_server_calls.py` like those of the server process.

use super::profile::Condition::{Bits, OneOf};
use super::profile::{Group, Profile, Rule, call, calls};
use super::server::{PR_SET_VMA, THREAD};

pub(super) const EGRESS: Profile = Profile {
    allowed: ALLOWED,
    unrecorded: UNRECORDED,
    allowed_if: ALLOWED_IF,
    answered: &[],
    refused: &[],
    refused_if: &[],
};

/// Calls that the process was seen to make. Not among them are files, and sockets of its own: the host process gives it what it needs.
#[rustfmt::skip]
const ALLOWED: &[Group] = &[
    Group { reason: "descriptors that are there", calls: calls![SYS_close, SYS_write, SYS_fcntl] },
    Group { reason: "connections of sandboxes, and sockets from the host process", calls: calls![
        SYS_accept4, SYS_connect, SYS_getsockopt, SYS_setsockopt, SYS_sendto, SYS_recvfrom, SYS_sendmsg, SYS_recvmsg,
        SYS_shutdown,
    ] },
    Group { reason: "waiting for several things", calls: calls![SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_wait, SYS_eventfd2] },
    Group { reason: "memory", calls: calls![SYS_mmap, SYS_munmap, SYS_mprotect] },
    Group { reason: "threads, and the locks between them", calls: calls![
        SYS_futex, SYS_set_robust_list, SYS_rseq, SYS_sched_getaffinity, SYS_gettid,
    ] },
    Group { reason: "signals to itself", calls: calls![SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_sigaltstack] },
    Group { reason: "its limits", calls: calls![SYS_prlimit64] },
    Group { reason: "random numbers", calls: calls![SYS_getrandom] },
];

/// Calls that stay although nothing recorded makes them.
#[rustfmt::skip]
const UNRECORDED: &[Group] = &[
    Group { reason: "other forms of recorded calls, which other C libraries and architectures use", calls: calls![
        SYS_epoll_pwait, SYS_ppoll, SYS_readv, SYS_getsockname, SYS_mremap,
    ] },
    Group { reason: "waking up for a signal, and its log", calls: calls![SYS_read, SYS_writev] },
    Group { reason: "memory that is returned", calls: calls![SYS_madvise] },
    Group { reason: "the end of threads and of the process", calls: calls![SYS_exit, SYS_exit_group] },
    Group { reason: "memory of the first thread, which the C library takes before any other", calls: calls![SYS_brk] },
    Group { reason: "clocks, where the kernel shows none to the C library", calls: calls![
        SYS_clock_gettime, SYS_clock_getres, SYS_gettimeofday, SYS_clock_nanosleep, SYS_nanosleep, SYS_getcpu,
    ] },
    Group { reason: "the end of a process whose code has failed, and the kernel's own calls after a signal", calls: calls![
        SYS_getpid, SYS_tgkill, SYS_rt_sigreturn, SYS_restart_syscall, SYS_sched_yield, SYS_membarrier,
    ] },
];

/// Uses of calls that are allowed for some arguments only.
const ALLOWED_IF: &[Rule] = &[
    Rule {
        reason: "threads, and no processes; the newer form of the call hides its flags, and is not there",
        call: call!(SYS_clone),
        when: &[Bits(0, THREAD, THREAD)],
    },
    Rule {
        reason: "signals arrive by a pair of sockets",
        call: call!(SYS_socketpair),
        when: &[OneOf(0, &[libc::AF_UNIX as u32])],
    },
    Rule {
        reason: "descriptors that do not block",
        call: call!(SYS_ioctl),
        when: &[OneOf(1, &[libc::FIONBIO as u32])],
    },
    Rule {
        reason: "names of threads, and of their memory",
        call: call!(SYS_prctl),
        when: &[OneOf(0, &[libc::PR_SET_NAME as u32, PR_SET_VMA])],
    },
];
