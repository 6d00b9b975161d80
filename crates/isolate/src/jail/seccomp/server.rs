//! What the server process may ask of the kernel.
//!
//! `recorded-server.txt` lists the calls that it makes. It was recorded by `tests/record_server_calls.py`, and a test compares it with
//! the profile. To see what the process misses, start the server with `--seccomp-log`.

use super::profile::Condition::{Bits, OneOf};
use super::profile::{Group, Profile, Rule, call, calls};

pub(super) const SERVER: Profile = Profile {
    allowed: ALLOWED,
    unrecorded: UNRECORDED,
    allowed_if: ALLOWED_IF,
    answered: &[],
    refused: &[],
    refused_if: &[],
};

/// Calls that the server process was seen to make. Not among them are programs, processes, namespaces, mounts, identities, traces of
/// other processes, memory of others, and whatever else a server does not need.
#[rustfmt::skip]
const ALLOWED: &[Group] = &[
    Group { reason: "files of the server: the database, logs of builds, uploads", calls: calls![
        SYS_openat, SYS_close, SYS_read, SYS_write, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_lseek, SYS_ftruncate,
        SYS_fsync, SYS_fdatasync, SYS_statx, SYS_newfstatat, SYS_getdents64, SYS_fcntl, SYS_utimensat,
    ] },
    Group { reason: "what room there is for an upload", calls: calls![SYS_statfs] },
    Group { reason: "waiting for several things", calls: calls![SYS_epoll_create1, SYS_epoll_ctl, SYS_eventfd2] },
    Group { reason: "use of sockets that exist; `ALLOWED_IF` says which can", calls: calls![
        SYS_accept4, SYS_connect, SYS_getsockname, SYS_getpeername, SYS_getsockopt, SYS_setsockopt, SYS_sendmsg, SYS_recvmsg,
        SYS_recvfrom, SYS_shutdown,
    ] },
    Group { reason: "an archive of a template comes through a pipe", calls: calls![SYS_pipe2] },
    Group { reason: "memory", calls: calls![SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise] },
    Group { reason: "threads, the locks between them, and their end", calls: calls![
        SYS_futex, SYS_set_robust_list, SYS_rseq, SYS_sched_getaffinity, SYS_gettid, SYS_exit, SYS_exit_group,
    ] },
    Group { reason: "signals to itself", calls: calls![
        SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_sigaltstack,
    ] },
    Group { reason: "facts about itself, and its limits", calls: calls![SYS_getpid, SYS_geteuid, SYS_prlimit64] },
    Group { reason: "random numbers", calls: calls![SYS_getrandom] },
    #[cfg(target_arch = "x86_64")]
    Group { reason: "older forms that the C library of x86-64 still uses", calls: calls![
        SYS_epoll_wait, SYS_mkdir, SYS_rename, SYS_unlink, SYS_readlink,
    ] },
];

/// Calls that stay although nothing recorded makes them.
#[rustfmt::skip]
const UNRECORDED: &[Group] = &[
    Group { reason: "other forms of recorded calls, which other C libraries and architectures use", calls: calls![
        SYS_mkdirat, SYS_renameat, SYS_renameat2, SYS_unlinkat, SYS_ppoll, SYS_epoll_pwait, SYS_readv, SYS_preadv, SYS_pwritev,
        SYS_fstat, SYS_fstatfs, SYS_sendmmsg, SYS_recvmmsg, SYS_dup, SYS_faccessat, SYS_readlinkat,
    ] },
    #[cfg(target_arch = "x86_64")]
    Group { reason: "older forms of recorded calls", calls: calls![
        SYS_open, SYS_stat, SYS_lstat, SYS_access, SYS_rmdir, SYS_time, SYS_poll,
    ] },
    Group { reason: "memory of the first thread, which the C library takes before any other", calls: calls![SYS_brk] },
    Group { reason: "clocks, where the kernel shows none to the C library", calls: calls![
        SYS_clock_gettime, SYS_clock_getres, SYS_gettimeofday, SYS_clock_nanosleep, SYS_nanosleep, SYS_getcpu,
    ] },
    Group { reason: "the database: owners and modes of its files, locks, sorting in files", calls: calls![
        SYS_fchmod, SYS_fchown, SYS_flock, SYS_fallocate, SYS_getcwd, SYS_umask, SYS_fadvise64,
    ] },
    Group { reason: "copies of files, and from files to sockets", calls: calls![
        SYS_copy_file_range, SYS_sendfile, SYS_splice,
    ] },
    Group { reason: "names of hosts: the C library binds a socket, and asks what this host is", calls: calls![
        SYS_bind, SYS_sendto, SYS_uname, SYS_sysinfo, SYS_getuid, SYS_getgid, SYS_getegid,
    ] },
    Group { reason: "the end of a process whose code has failed, and the kernel's own calls after a signal", calls: calls![
        SYS_tgkill, SYS_rt_sigreturn, SYS_restart_syscall, SYS_sched_yield, SYS_membarrier,
    ] },
];

/// Flags of a thread.
pub(super) const THREAD: u32 = libc::CLONE_THREAD as u32;
const REQUESTS_OF_FILES: &[u32] = &[libc::FIONBIO as u32, libc::FIONREAD as u32, libc::TCGETS as u32];
/// Bits of a socket type without its flags.
const TYPE: u32 = 0xf;

/// Uses of calls that are allowed for some arguments only.
const ALLOWED_IF: &[Rule] = &[
    Rule {
        reason: "threads, and no processes; the newer form of the call hides its flags, and is not there",
        call: call!(SYS_clone),
        when: &[Bits(0, THREAD, THREAD)],
    },
    Rule {
        reason: "TCP, to receivers of webhooks, registries and collectors of traces",
        call: call!(SYS_socket),
        when: &[
            OneOf(0, &[libc::AF_INET as u32, libc::AF_INET6 as u32]),
            Bits(1, TYPE, libc::SOCK_STREAM as u32),
            OneOf(2, &[libc::IPPROTO_IP as u32, libc::IPPROTO_TCP as u32]),
        ],
    },
    Rule {
        reason: "UDP, to name servers",
        call: call!(SYS_socket),
        when: &[
            OneOf(0, &[libc::AF_INET as u32, libc::AF_INET6 as u32]),
            Bits(1, TYPE, libc::SOCK_DGRAM as u32),
            OneOf(2, &[libc::IPPROTO_IP as u32, libc::IPPROTO_UDP as u32]),
        ],
    },
    Rule {
        reason: "signals arrive by a pair of sockets",
        call: call!(SYS_socketpair),
        when: &[OneOf(0, &[libc::AF_UNIX as u32])],
    },
    Rule {
        reason: "descriptors that do not block, and whether one is a terminal",
        call: call!(SYS_ioctl),
        when: &[OneOf(1, REQUESTS_OF_FILES)],
    },
    Rule {
        reason: "names of threads, and of their memory",
        call: call!(SYS_prctl),
        when: &[OneOf(0, &[libc::PR_SET_NAME as u32, PR_SET_VMA])],
    },
];

/// An option of `prctl`, argument 0: names of mappings.
pub(super) const PR_SET_VMA: u32 = 0x53564d41;
