//! What a sandbox may ask of the kernel.
//!
//! An entry is a group of calls that programs need together, or a rule on the arguments of one call. Each has a reason. To
//! add a call, name who makes it; to see what a program misses, start the server with `--seccomp-log`.

use super::profile::Condition::{Bits, OneOf, Pointer};
use super::profile::{Call, Group, Profile, Rule, call, calls};

pub(super) const SANDBOX: Profile = Profile {
    allowed: ALLOWED,
    unrecorded: UNRECORDED,
    allowed_if: ALLOWED_IF,
    answered: ANSWERED,
    refused: REFUSED,
    refused_if: REFUSED_IF,
};

/// Calls that recorded programs make. Not among them are kernel AIO, because all sandboxes and the host share one count of
/// its requests (`fs.aio-max-nr`), and `mincore`, which tells what others read of a layer; programs do without.
#[rustfmt::skip]
const ALLOWED: &[Group] = &[
    Group { reason: "reading and writing files, pipes and sockets", calls: calls![
        SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_pwritev, SYS_preadv2, SYS_pwritev2,
        SYS_openat, SYS_close, SYS_close_range, SYS_lseek, SYS_dup, SYS_dup3, SYS_fcntl, SYS_flock, SYS_pipe2,
        SYS_sendfile, SYS_copy_file_range, SYS_splice,
    ] },
    Group { reason: "durable files: databases and package managers", calls: calls![
        SYS_fsync, SYS_fdatasync, SYS_syncfs, SYS_sync_file_range, SYS_truncate, SYS_ftruncate, SYS_fallocate,
        SYS_fadvise64,
    ] },
    Group { reason: "directories, links and names: shells, package managers, version control", calls: calls![
        SYS_getdents64, SYS_getcwd, SYS_chdir, SYS_fchdir, SYS_mkdirat, SYS_mknodat, SYS_unlinkat, SYS_renameat,
        SYS_renameat2, SYS_linkat, SYS_symlinkat, SYS_readlinkat,
    ] },
    Group { reason: "root inside a directory: package scripts, sshd", calls: calls![SYS_chroot] },
    Group { reason: "modes, owners, times, attributes", calls: calls![
        SYS_fchmod, SYS_fchmodat, SYS_fchown, SYS_fchownat, SYS_umask, SYS_utimensat, SYS_setxattr, SYS_fsetxattr,
        SYS_getxattr, SYS_listxattr, SYS_llistxattr, SYS_flistxattr, SYS_removexattr,
    ] },
    Group { reason: "what a file is, and whether it may be used", calls: calls![
        SYS_newfstatat, SYS_fstat, SYS_statx, SYS_statfs, SYS_fstatfs, SYS_faccessat2,
    ] },
    Group { reason: "files without a name, and changes of files: shared memory, watchers of build tools", calls: calls![
        SYS_memfd_create, SYS_inotify_init1, SYS_inotify_add_watch, SYS_inotify_rm_watch,
    ] },
    Group { reason: "waiting for several things: servers, runtimes, shells", calls: calls![
        SYS_ppoll, SYS_pselect6, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait, SYS_eventfd2, SYS_signalfd4,
    ] },
    Group { reason: "memory of a process", calls: calls![
        SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_msync, SYS_brk, SYS_mbind,
    ] },
    Group { reason: "protection keys: Chromium and Node.js ask whether the processor has them", calls: calls![SYS_pkey_alloc] },
    Group { reason: "programs and their ends", calls: calls![
        SYS_execve, SYS_exit, SYS_exit_group, SYS_wait4, SYS_waitid, SYS_getpid, SYS_getppid, SYS_gettid, SYS_getpgid,
        SYS_setpgid, SYS_getsid, SYS_setsid, SYS_pidfd_open, SYS_pidfd_send_signal,
    ] },
    Group { reason: "threads, and the locks between them", calls: calls![
        SYS_set_tid_address, SYS_set_robust_list, SYS_rseq, SYS_futex,
    ] },
    Group { reason: "signals to and from one's own processes", calls: calls![
        SYS_kill, SYS_tkill, SYS_tgkill, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigpending,
        SYS_rt_sigsuspend, SYS_rt_sigtimedwait, SYS_rt_tgsigqueueinfo, SYS_sigaltstack,
    ] },
    Group { reason: "debuggers of one's own processes: gdb, strace", calls: calls![SYS_ptrace, SYS_process_vm_readv] },
    Group { reason: "walls of one's own: xz, Chromium", calls: calls![
        SYS_prctl, SYS_landlock_create_ruleset, SYS_landlock_restrict_self,
    ] },
    Group { reason: "scheduling and priorities, within the control group's share", calls: calls![
        SYS_sched_yield, SYS_sched_getaffinity, SYS_sched_setaffinity, SYS_sched_getparam, SYS_sched_setparam,
        SYS_sched_getscheduler, SYS_sched_setscheduler, SYS_sched_setattr, SYS_sched_get_priority_max,
        SYS_sched_get_priority_min, SYS_sched_rr_get_interval, SYS_getpriority, SYS_setpriority, SYS_ioprio_set,
    ] },
    Group { reason: "limits and use of one's own processes", calls: calls![
        SYS_prlimit64, SYS_getrusage, SYS_times, SYS_sysinfo, SYS_uname,
    ] },
    Group { reason: "the kernel makes the call, after a signal", calls: calls![SYS_restart_syscall] },
    Group { reason: "random numbers", calls: calls![SYS_getrandom] },
    Group { reason: "users and groups inside: sudo, su, package managers, databases", calls: calls![
        SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_getgroups, SYS_setuid, SYS_setgid, SYS_setresuid,
        SYS_setresgid, SYS_getresuid, SYS_getresgid, SYS_setgroups, SYS_setfsuid, SYS_setfsgid, SYS_capget, SYS_capset,
    ] },
    Group { reason: "clocks and timers", calls: calls![
        SYS_clock_gettime, SYS_clock_getres, SYS_clock_nanosleep, SYS_getitimer, SYS_setitimer, SYS_timer_create,
        SYS_timer_settime,
    ] },
    Group { reason: "use of sockets that exist; `ALLOWED_IF` says which can", calls: calls![
        SYS_bind, SYS_listen, SYS_accept, SYS_accept4, SYS_connect, SYS_getsockname, SYS_getpeername, SYS_sendto,
        SYS_recvfrom, SYS_sendmsg, SYS_recvmsg, SYS_sendmmsg, SYS_shutdown, SYS_setsockopt, SYS_getsockopt,
    ] },
    Group { reason: "System V memory, semaphores and messages, in a namespace of the sandbox: PostgreSQL, ipcs", calls: calls![
        SYS_semget, SYS_semctl, SYS_shmget, SYS_shmat, SYS_shmdt, SYS_shmctl, SYS_msgctl,
    ] },
    #[cfg(target_arch = "x86_64")]
    Group { reason: "older forms that the C library of x86-64 still uses", calls: calls![
        SYS_open, SYS_creat, SYS_inotify_init, SYS_access, SYS_alarm, SYS_arch_prctl, SYS_chmod, SYS_chown, SYS_dup2,
        SYS_epoll_wait, SYS_getpgrp, SYS_lchown, SYS_link, SYS_mkdir, SYS_pause, SYS_poll, SYS_readlink, SYS_rename,
        SYS_rmdir, SYS_symlink, SYS_unlink, SYS_vfork,
    ] },
];

/// Calls that stay although nothing recorded makes them.
#[rustfmt::skip]
const UNRECORDED: &[Group] = &[
    Group { reason: "a fork of a template's process loads its last filter; Chromium and man load their own", calls: calls![
        SYS_seccomp,
    ] },
    #[cfg(target_arch = "x86_64")]
    Group { reason: "older forms of recorded calls: programs with an older C library, linked statically, or in Go", calls: calls![
        SYS_stat, SYS_lstat, SYS_mknod, SYS_utime, SYS_utimes, SYS_futimesat, SYS_getdents, SYS_epoll_create, SYS_eventfd,
        SYS_signalfd, SYS_fork, SYS_pipe, SYS_select,
    ] },
    #[cfg(target_arch = "x86_64")]
    Group { reason: "the C library makes the call where the kernel shows it no clock", calls: calls![SYS_time] },
    Group { reason: "the C library makes the call where the kernel shows it no clock or processor", calls: calls![
        SYS_gettimeofday, SYS_getcpu,
    ] },
    Group { reason: "older forms of recorded calls, on all processors", calls: calls![
        SYS_nanosleep, SYS_getrlimit, SYS_setrlimit, SYS_faccessat, SYS_preadv, SYS_setreuid, SYS_setregid,
    ] },
    Group { reason: "newer forms of recorded calls: programs with a newer C library", calls: &[
        call!(SYS_epoll_pwait2), call!(SYS_mlock2), call!(SYS_futex_waitv), call!(SYS_openat2), FCHMODAT2,
    ] },
    Group { reason: "programs by descriptor (`fexecve`, Python's `os.execve`)", calls: calls![SYS_execveat] },
    Group { reason: "the other forms of recorded calls: attributes, priorities, timers, messages, queued signals", calls: calls![
        SYS_fgetxattr, SYS_lgetxattr, SYS_lsetxattr, SYS_fremovexattr, SYS_lremovexattr, SYS_ioprio_get, SYS_sched_getattr,
        SYS_timer_delete, SYS_timer_gettime, SYS_timer_getoverrun, SYS_recvmmsg, SYS_rt_sigqueueinfo,
        SYS_landlock_add_rule,
    ] },
    Group { reason: "timers as descriptors: event loops of Rust and C (async-io, libevent, systemd's)", calls: calls![
        SYS_timerfd_create, SYS_timerfd_settime, SYS_timerfd_gettime,
    ] },
    Group { reason: "processors with protection keys: Chromium and Node.js use those they get", calls: calls![
        SYS_pkey_free, SYS_pkey_mprotect,
    ] },
    Group { reason: "barriers of .NET and of libraries for lock-free data (liburcu)", calls: calls![SYS_membarrier] },
    Group { reason: "keys and passwords that are not swapped (gpg, ssh-agent), and real-time programs", calls: calls![
        SYS_mlock, SYS_munlock, SYS_mlockall, SYS_munlockall,
    ] },
    Group { reason: "Open MPI copies between its processes", calls: calls![SYS_process_vm_writev] },
    Group { reason: "POSIX message queues, limited for each sandbox", calls: calls![
        SYS_mq_open, SYS_mq_unlink, SYS_mq_timedsend, SYS_mq_timedreceive, SYS_mq_notify, SYS_mq_getsetattr,
    ] },
    Group { reason: "System V semaphores and messages, of which recorded programs use a part: fakeroot", calls: calls![
        SYS_semop, SYS_semtimedop, SYS_msgget, SYS_msgsnd, SYS_msgrcv,
    ] },
];

/// The number is the same on all architectures; `libc` does not have it on all.
const FCHMODAT2: Call = Call { name: "SYS_fchmodat2", number: 452 };

// Families, types and protocols of sockets; argument 0 is the family, 1 the type with flags, 2 the protocol.
const IPV4: u32 = libc::AF_INET as u32;
const IPV6: u32 = libc::AF_INET6 as u32;
const STREAM: u32 = libc::SOCK_STREAM as u32;
const DATAGRAM: u32 = libc::SOCK_DGRAM as u32;
/// Bits of a socket type without its flags.
const TYPE: u32 = 0xf;

/// Flags of `clone` that create namespaces.
const NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

// Requests of `ioctl`, which are argument 1: bits 8 to 15 are the type, which says what they are for.
const REQUEST_TYPE: u32 = 0xff00;
const TERMINAL: u32 = 0x5400;
/// Requests of sockets from 0x8900 to 0x893f: their owner and marks, and the addresses and flags of interfaces.
const SOCKET_REQUESTS: (u32, u32) = (0xffc0, 0x8900);
const SIOCGIFTXQLEN: u32 = 0x8942;
const SIOCETHTOOL: u32 = 0x8946;
const SIOCOUTQNSD: u32 = 0x894b;
const SIOCGARP: u32 = 0x8954;
const SIOCGIFMAP: u32 = 0x8970;
const FICLONE: u32 = 0x4004_9409;
const FICLONERANGE: u32 = 0x4020_940d;
const FIDEDUPERANGE: u32 = 0xc018_9436;
const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_FIEMAP: u32 = 0xc020_660b;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const RNDGETENTCNT: u32 = 0x8004_5200;

// Values of `personality`.
const LINUX: u32 = 0;
const ADDR_NO_RANDOMIZE: u32 = 0x0004_0000;
const QUERY: u32 = 0xffff_ffff;

/// Uses of calls that are allowed for some arguments only.
const ALLOWED_IF: &[Rule] = &[
    Rule {
        reason: "processes and threads; a new namespace would show far more of the kernel to its creator",
        call: call!(SYS_clone),
        when: &[Bits(0, NAMESPACES, 0)],
    },
    Rule { reason: "local sockets", call: call!(SYS_socket), when: &[OneOf(0, &[libc::AF_UNIX as u32])] },
    Rule { reason: "local sockets", call: call!(SYS_socketpair), when: &[OneOf(0, &[libc::AF_UNIX as u32])] },
    Rule {
        reason: "TCP; any other protocol, such as MPTCP or SCTP, may load its module into the shared kernel",
        call: call!(SYS_socket),
        when: &[
            OneOf(0, &[IPV4, IPV6]),
            Bits(1, TYPE, STREAM),
            OneOf(2, &[libc::IPPROTO_IP as u32, libc::IPPROTO_TCP as u32]),
        ],
    },
    Rule {
        reason: "UDP; not UDP-Lite, L2TP and others",
        call: call!(SYS_socket),
        when: &[
            OneOf(0, &[IPV4, IPV6]),
            Bits(1, TYPE, DATAGRAM),
            OneOf(2, &[libc::IPPROTO_IP as u32, libc::IPPROTO_UDP as u32]),
        ],
    },
    Rule {
        reason: "ping, without raw sockets",
        call: call!(SYS_socket),
        when: &[OneOf(0, &[IPV4]), Bits(1, TYPE, DATAGRAM), OneOf(2, &[libc::IPPROTO_ICMP as u32])],
    },
    Rule {
        reason: "ping, without raw sockets",
        call: call!(SYS_socket),
        when: &[OneOf(0, &[IPV6]), Bits(1, TYPE, DATAGRAM), OneOf(2, &[libc::IPPROTO_ICMPV6 as u32])],
    },
    Rule {
        reason: "lists of interfaces and addresses for every program, and sudo's audit records",
        call: call!(SYS_socket),
        when: &[
            OneOf(0, &[libc::AF_NETLINK as u32]),
            OneOf(2, &[libc::NETLINK_ROUTE as u32, libc::NETLINK_AUDIT as u32]),
        ],
    },
    Rule {
        reason: "terminals, pipes and descriptors; `REFUSED_IF` has the exceptions",
        call: call!(SYS_ioctl),
        when: &[Bits(1, REQUEST_TYPE, TERMINAL)],
    },
    Rule {
        reason: "sockets and interfaces; other requests of this type load modules (bridges, VLANs)",
        call: call!(SYS_ioctl),
        when: &[Bits(1, SOCKET_REQUESTS.0, SOCKET_REQUESTS.1)],
    },
    Rule {
        reason: "ifconfig, psutil, and programs that wait for sent bytes",
        call: call!(SYS_ioctl),
        when: &[OneOf(1, &[SIOCGIFTXQLEN, SIOCETHTOOL, SIOCOUTQNSD, SIOCGARP, SIOCGIFMAP])],
    },
    Rule {
        reason: "copies that share blocks (cp); other requests of this type are btrfs's: subvolumes without a limit",
        call: call!(SYS_ioctl),
        when: &[OneOf(1, &[FICLONE, FICLONERANGE, FIDEDUPERANGE])],
    },
    Rule {
        reason: "flags and extents of a file (lsattr, filefrag, tar)",
        call: call!(SYS_ioctl),
        when: &[OneOf(1, &[FS_IOC_GETFLAGS, FS_IOC_FIEMAP, FS_IOC_FSGETXATTR])],
    },
    Rule {
        reason: "cryptographic libraries that read /dev/random (libsodium)",
        call: call!(SYS_ioctl),
        when: &[OneOf(1, &[RNDGETENTCNT])],
    },
    Rule {
        reason: "debuggers and sanitizers, which start programs at the same addresses every time",
        call: call!(SYS_personality),
        when: &[OneOf(0, &[LINUX, QUERY, ADDR_NO_RANDOMIZE])],
    },
];

/// Argument 0 of `setrlimit`, argument 1 of `prlimit64`.
const RLIMIT_CORE: u32 = 4;

/// Uses that have no effect. Programs take their success for granted.
const ANSWERED: &[Rule] = &[
    Rule {
        reason: "sync writes the data of the whole host; fsync and syncfs write a program's own",
        call: call!(SYS_sync),
        when: &[],
    },
    Rule {
        reason: "the limit of core files is the value with which no helper of the host is started for a dump; sudo and \
                 ssh-agent set it to 0, with which one is",
        call: call!(SYS_setrlimit),
        when: &[OneOf(0, &[RLIMIT_CORE])],
    },
    Rule {
        reason: "the other way to set that limit; reading it is allowed",
        call: call!(SYS_prlimit64),
        when: &[OneOf(1, &[RLIMIT_CORE]), Pointer(2)],
    },
];

/// Calls that are refused: each manages something that is shared with the host, or creates a namespace in which the
/// kernel exposes far more of its code to the caller.
#[rustfmt::skip]
const REFUSED: &[Group] = &[
    Group { reason: "mounts reach file systems that the sandbox does not have", calls: calls![
        SYS_mount, SYS_umount2, SYS_pivot_root, SYS_open_tree, SYS_move_mount, SYS_fsopen, SYS_fsconfig, SYS_fsmount,
        SYS_fspick, SYS_mount_setattr,
    ] },
    Group { reason: "root in a new namespace reaches packet filters, routes and mounts", calls: calls![
        SYS_unshare, SYS_setns,
    ] },
    Group { reason: "programs in the kernel, and what it does for others", calls: calls![
        SYS_bpf, SYS_perf_event_open, SYS_userfaultfd,
    ] },
    Group { reason: "keys have no namespace", calls: calls![SYS_keyctl, SYS_add_key, SYS_request_key] },
    Group { reason: "modules and other kernels", calls: calls![
        SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_reboot,
    ] },
    Group { reason: "swap, kernel log, accounting, quotas and terminals of the host", calls: calls![
        SYS_swapon, SYS_swapoff, SYS_syslog, SYS_acct, SYS_quotactl, SYS_vhangup,
    ] },
    Group { reason: "the host's clock", calls: calls![
        SYS_settimeofday, SYS_clock_settime, SYS_adjtimex, SYS_clock_adjtime,
    ] },
    Group { reason: "file handles know no mount namespace", calls: calls![
        SYS_open_by_handle_at, SYS_name_to_handle_at, SYS_lookup_dcookie,
    ] },
    Group { reason: "the server names the sandbox", calls: calls![SYS_sethostname, SYS_setdomainname] },
];

// Requests of terminals.
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;
const TIOCCONS: u32 = 0x541d;
const TIOCSETD: u32 = 0x5423;

// Names of socket options, argument 2 of `setsockopt`; argument 1 is the level.
const SO_ATTACH_FILTER: u32 = 26;
const SO_ATTACH_BPF: u32 = 50;
const SO_ATTACH_REUSEPORT_CBPF: u32 = 51;
const SO_ATTACH_REUSEPORT_EBPF: u32 = 52;
const TCP_MD5SIG: u32 = 14;
const TCP_ULP: u32 = 31;
const TCP_MD5SIG_EXT: u32 = 32;
const TCP_AO_ADD_KEY: u32 = 38;
const TCP_AO_DEL_KEY: u32 = 39;
const TCP_AO_INFO: u32 = 40;
const UDP_ENCAP: u32 = 100;
const IPV6_FLOWLABEL_MGR: u32 = 32;

// Options of `prctl`, argument 0.
const PR_SET_MM: u32 = 35;
const PR_SET_IO_FLUSHER: u32 = 57;
const PR_SCHED_CORE: u32 = 62;
const PR_SET_MEMORY_MERGE: u32 = 67;

const MAP_HUGETLB: u32 = 0x4_0000;
const MFD_HUGETLB: u32 = 0x4;
const SHM_HUGETLB: u32 = 0o4000;

/// Uses that are refused, of calls that are allowed otherwise.
const REFUSED_IF: &[Rule] = &[
    Rule {
        reason: "input for other programs at a terminal, and the host's console",
        call: call!(SYS_ioctl),
        when: &[OneOf(1, &[TIOCSTI, TIOCLINUX, TIOCCONS])],
    },
    Rule {
        reason: "line disciplines: rarely used code of the kernel, and modules of it",
        call: call!(SYS_ioctl),
        when: &[OneOf(1, &[TIOCSETD])],
    },
    Rule {
        reason: "programs on sockets: the kernel compiles them, up to one limit for the whole host, which starts need too",
        call: call!(SYS_setsockopt),
        when: &[
            OneOf(1, &[libc::SOL_SOCKET as u32]),
            OneOf(2, &[SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF, SO_ATTACH_REUSEPORT_EBPF]),
        ],
    },
    Rule {
        reason: "protocols on top of TCP (kernel TLS) and keys of routers: rarely used code, and modules by name",
        call: call!(SYS_setsockopt),
        when: &[
            OneOf(1, &[libc::IPPROTO_TCP as u32]),
            OneOf(2, &[TCP_MD5SIG, TCP_ULP, TCP_MD5SIG_EXT, TCP_AO_ADD_KEY, TCP_AO_DEL_KEY, TCP_AO_INFO]),
        ],
    },
    Rule {
        reason: "tunnels inside UDP: IPsec and L2TP code of the kernel reads the packets",
        call: call!(SYS_setsockopt),
        when: &[OneOf(1, &[libc::IPPROTO_UDP as u32]), OneOf(2, &[UDP_ENCAP])],
    },
    Rule {
        reason: "IPv6 flow labels: all sandboxes and the host share 4096",
        call: call!(SYS_setsockopt),
        when: &[OneOf(1, &[libc::IPPROTO_IPV6 as u32]), OneOf(2, &[IPV6_FLOWLABEL_MGR])],
    },
    Rule {
        reason: "core scheduling keeps a processor's other thread from others; merged memory tells what they hold; the \
                 other two are for checkpoints and storage daemons",
        call: call!(SYS_prctl),
        when: &[OneOf(0, &[PR_SCHED_CORE, PR_SET_MEMORY_MERGE, PR_SET_MM, PR_SET_IO_FLUSHER])],
    },
    Rule {
        reason: "memory merged with that of others tells what they hold",
        call: call!(SYS_madvise),
        when: &[OneOf(2, &[libc::MADV_MERGEABLE as u32])],
    },
    Rule {
        reason: "huge pages that the operator reserved count for no sandbox",
        call: call!(SYS_mmap),
        when: &[Bits(3, MAP_HUGETLB, MAP_HUGETLB)],
    },
    Rule {
        reason: "huge pages that the operator reserved count for no sandbox",
        call: call!(SYS_memfd_create),
        when: &[Bits(1, MFD_HUGETLB, MFD_HUGETLB)],
    },
    Rule {
        reason: "huge pages that the operator reserved count for no sandbox",
        call: call!(SYS_shmget),
        when: &[Bits(2, SHM_HUGETLB, SHM_HUGETLB)],
    },
];
