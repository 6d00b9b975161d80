//! What a process that unpacks an image may ask of the kernel.
//!
//! `recorded-unpacker.txt` lists the calls that it makes, recorded by `tests/record_server_calls.py` like those of the server process.

use super::profile::Condition::{Bits, OneOf};
use super::profile::{Group, Profile, Rule, call, calls};
use super::server::{PR_SET_VMA, THREAD};

pub(super) const UNPACKER: Profile = Profile {
    allowed: ALLOWED,
    unrecorded: UNRECORDED,
    allowed_if: ALLOWED_IF,
    answered: &[],
    refused: &[],
    refused_if: &[],
};

/// Calls that the process was seen to make. Not among them are sockets, other processes, and whatever else is not a file of the tree.
#[rustfmt::skip]
const ALLOWED: &[Group] = &[
    Group { reason: "layers and answers, through pipes", calls: calls![SYS_read, SYS_write, SYS_close] },
    Group { reason: "finding entries, with the tree as root", calls: calls![
        SYS_openat, SYS_openat2, SYS_fstat, SYS_newfstatat, SYS_getdents64, SYS_fcntl,
    ] },
    Group { reason: "making and removing entries", calls: calls![SYS_mkdirat, SYS_symlinkat, SYS_linkat, SYS_unlinkat] },
    Group { reason: "contents of files", calls: calls![SYS_pwrite64, SYS_ftruncate] },
    Group { reason: "attributes of entries", calls: calls![
        SYS_fchmod, SYS_fchmodat, SYS_fchown, SYS_fchownat, SYS_fsetxattr, SYS_utimensat,
    ] },
    Group { reason: "memory", calls: calls![SYS_mmap, SYS_munmap, SYS_mprotect, SYS_madvise] },
    Group { reason: "a thread that decodes, the locks between it and the first one, and its end", calls: calls![
        SYS_futex, SYS_set_robust_list, SYS_rseq, SYS_sched_getaffinity, SYS_gettid, SYS_exit, SYS_exit_group,
    ] },
    Group { reason: "signals to itself", calls: calls![SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_sigaltstack] },
    Group { reason: "random numbers", calls: calls![SYS_getrandom] },
];

/// Calls that stay although nothing recorded makes them.
#[rustfmt::skip]
const UNRECORDED: &[Group] = &[
    Group { reason: "other forms of recorded calls, which other C libraries and architectures use", calls: calls![
        SYS_statx, SYS_lseek, SYS_readv, SYS_writev, SYS_dup,
    ] },
    Group { reason: "memory that grows", calls: calls![SYS_mremap, SYS_brk] },
    Group { reason: "the end of a process whose code has failed, and the kernel's own calls after a signal", calls: calls![
        SYS_rt_sigreturn, SYS_restart_syscall, SYS_getpid,
    ] },
    Group { reason: "waiting for a lock", calls: calls![SYS_sched_yield, SYS_membarrier] },
    Group { reason: "clocks, where the kernel shows none to the C library", calls: calls![
        SYS_clock_gettime, SYS_clock_getres, SYS_gettimeofday, SYS_clock_nanosleep, SYS_nanosleep, SYS_getcpu,
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
        reason: "pipes, and no devices",
        call: call!(SYS_mknodat),
        when: &[Bits(2, libc::S_IFMT, libc::S_IFIFO)],
    },
    Rule {
        reason: "names of threads, and of their memory",
        call: call!(SYS_prctl),
        when: &[OneOf(0, &[libc::PR_SET_NAME as u32, PR_SET_VMA])],
    },
];
