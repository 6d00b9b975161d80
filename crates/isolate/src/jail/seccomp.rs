//! The system calls of a jail, as an allow-list. Calls that are not listed return "not implemented", so that programs
//! fall back to older calls; calls that affect the host or other namespaces return "not permitted".

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::handover::{Failure, JailKind};
use crate::sys;

/// Calls that are refused to every process: each manages something that is shared with the host, or creates a namespace
/// in which the kernel exposes far more of its code to the caller.
const REFUSED: &[c_long] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_lookup_dcookie,
    libc::SYS_vhangup,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
];

/// Calls that are allowed with any arguments. Kernel AIO is not among them: all sandboxes and the host share one count
/// of its requests (`fs.aio-max-nr`), and programs that use it fall back.
#[rustfmt::skip]
const ALLOWED: &[c_long] = &[
    // Files and directories.
    libc::SYS_read, libc::SYS_write, libc::SYS_readv, libc::SYS_writev, libc::SYS_pread64, libc::SYS_pwrite64,
    libc::SYS_preadv, libc::SYS_pwritev, libc::SYS_preadv2, libc::SYS_pwritev2, libc::SYS_openat, libc::SYS_openat2,
    libc::SYS_close, libc::SYS_close_range, libc::SYS_lseek, libc::SYS_dup, libc::SYS_dup3, libc::SYS_fcntl,
    libc::SYS_flock, libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_sync, libc::SYS_syncfs, libc::SYS_sync_file_range,
    libc::SYS_truncate, libc::SYS_ftruncate, libc::SYS_fallocate, libc::SYS_fadvise64, libc::SYS_readahead,
    libc::SYS_getdents64, libc::SYS_getcwd, libc::SYS_chdir, libc::SYS_fchdir, libc::SYS_chroot,
    libc::SYS_mkdirat, libc::SYS_mknodat, libc::SYS_unlinkat, libc::SYS_renameat, libc::SYS_renameat2,
    libc::SYS_linkat, libc::SYS_symlinkat, libc::SYS_readlinkat, libc::SYS_fchmod, libc::SYS_fchmodat, 452,
    libc::SYS_fchown, libc::SYS_fchownat, libc::SYS_umask, libc::SYS_faccessat, libc::SYS_faccessat2,
    libc::SYS_newfstatat, libc::SYS_fstat, libc::SYS_statx, libc::SYS_statfs, libc::SYS_fstatfs, libc::SYS_utimensat,
    libc::SYS_setxattr, libc::SYS_lsetxattr, libc::SYS_fsetxattr, libc::SYS_getxattr, libc::SYS_lgetxattr,
    libc::SYS_fgetxattr, libc::SYS_listxattr, libc::SYS_llistxattr, libc::SYS_flistxattr, libc::SYS_removexattr,
    libc::SYS_lremovexattr, libc::SYS_fremovexattr, libc::SYS_sendfile, libc::SYS_copy_file_range, libc::SYS_splice,
    libc::SYS_tee, libc::SYS_vmsplice, libc::SYS_memfd_create, libc::SYS_inotify_init1, libc::SYS_inotify_add_watch,
    libc::SYS_inotify_rm_watch,
    // Waiting.
    libc::SYS_ppoll, libc::SYS_pselect6, libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2, libc::SYS_eventfd2, libc::SYS_signalfd4, libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime, libc::SYS_timerfd_gettime, libc::SYS_pipe2,
    // Memory.
    libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_mprotect, libc::SYS_pkey_mprotect,
    libc::SYS_pkey_alloc, libc::SYS_pkey_free, libc::SYS_madvise, libc::SYS_process_madvise, libc::SYS_mincore,
    libc::SYS_msync, libc::SYS_brk, libc::SYS_mlock, libc::SYS_mlock2, libc::SYS_munlock, libc::SYS_mlockall,
    libc::SYS_munlockall, libc::SYS_membarrier, libc::SYS_remap_file_pages, libc::SYS_get_mempolicy,
    libc::SYS_set_mempolicy, libc::SYS_mbind, libc::SYS_process_mrelease,
    // Processes, threads, signals.
    libc::SYS_execve, libc::SYS_execveat, libc::SYS_exit, libc::SYS_exit_group, libc::SYS_wait4, libc::SYS_waitid,
    libc::SYS_getpid, libc::SYS_getppid, libc::SYS_gettid, libc::SYS_getpgid, libc::SYS_setpgid, libc::SYS_getsid,
    libc::SYS_setsid, libc::SYS_set_tid_address, libc::SYS_set_robust_list, libc::SYS_get_robust_list, libc::SYS_rseq,
    libc::SYS_futex, libc::SYS_futex_waitv, 454, 455, 456, libc::SYS_kill, libc::SYS_tkill, libc::SYS_tgkill,
    libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn, libc::SYS_rt_sigpending,
    libc::SYS_rt_sigqueueinfo, libc::SYS_rt_sigsuspend, libc::SYS_rt_sigtimedwait, libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_sigaltstack, libc::SYS_restart_syscall, libc::SYS_pidfd_open, libc::SYS_pidfd_send_signal,
    libc::SYS_pidfd_getfd, libc::SYS_prctl, libc::SYS_personality, libc::SYS_ptrace, libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev, libc::SYS_kcmp, libc::SYS_seccomp,
    libc::SYS_landlock_create_ruleset, libc::SYS_landlock_add_rule, libc::SYS_landlock_restrict_self,
    libc::SYS_sched_yield, libc::SYS_sched_getaffinity, libc::SYS_sched_setaffinity, libc::SYS_sched_getparam,
    libc::SYS_sched_setparam, libc::SYS_sched_getscheduler, libc::SYS_sched_setscheduler, libc::SYS_sched_getattr,
    libc::SYS_sched_setattr, libc::SYS_sched_get_priority_max, libc::SYS_sched_get_priority_min,
    libc::SYS_sched_rr_get_interval, libc::SYS_getpriority, libc::SYS_setpriority, libc::SYS_ioprio_get,
    libc::SYS_ioprio_set, libc::SYS_getcpu, libc::SYS_getrlimit, libc::SYS_setrlimit, libc::SYS_prlimit64,
    libc::SYS_getrusage, libc::SYS_times, libc::SYS_sysinfo, libc::SYS_uname, libc::SYS_getrandom,
    // Identity.
    libc::SYS_getuid, libc::SYS_geteuid, libc::SYS_getgid, libc::SYS_getegid, libc::SYS_getgroups, libc::SYS_setuid,
    libc::SYS_setgid, libc::SYS_setreuid, libc::SYS_setregid, libc::SYS_setresuid, libc::SYS_setresgid,
    libc::SYS_getresuid, libc::SYS_getresgid, libc::SYS_setgroups, libc::SYS_setfsuid, libc::SYS_setfsgid,
    libc::SYS_capget, libc::SYS_capset,
    // Time.
    libc::SYS_clock_gettime, libc::SYS_clock_getres, libc::SYS_clock_nanosleep, libc::SYS_nanosleep,
    libc::SYS_gettimeofday, libc::SYS_getitimer, libc::SYS_setitimer, libc::SYS_timer_create,
    libc::SYS_timer_settime, libc::SYS_timer_gettime, libc::SYS_timer_getoverrun, libc::SYS_timer_delete,
    // Sockets and System V IPC.
    libc::SYS_bind, libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4, libc::SYS_connect,
    libc::SYS_getsockname, libc::SYS_getpeername, libc::SYS_sendto, libc::SYS_recvfrom, libc::SYS_sendmsg,
    libc::SYS_recvmsg, libc::SYS_sendmmsg, libc::SYS_recvmmsg, libc::SYS_shutdown, libc::SYS_setsockopt,
    libc::SYS_getsockopt, libc::SYS_msgget, libc::SYS_msgsnd, libc::SYS_msgrcv, libc::SYS_msgctl, libc::SYS_semget,
    libc::SYS_semop, libc::SYS_semctl, libc::SYS_semtimedop, libc::SYS_shmget, libc::SYS_shmat, libc::SYS_shmdt,
    libc::SYS_shmctl, libc::SYS_mq_open, libc::SYS_mq_unlink, libc::SYS_mq_timedsend, libc::SYS_mq_timedreceive,
    libc::SYS_mq_notify, libc::SYS_mq_getsetattr,
];

/// Calls that only older architectures have.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const ALLOWED_HERE: &[c_long] = &[
    libc::SYS_open, libc::SYS_creat, libc::SYS_stat, libc::SYS_lstat, libc::SYS_access, libc::SYS_mkdir,
    libc::SYS_rmdir, libc::SYS_mknod, libc::SYS_unlink, libc::SYS_rename, libc::SYS_link, libc::SYS_symlink,
    libc::SYS_readlink, libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown, libc::SYS_utime, libc::SYS_utimes,
    libc::SYS_futimesat, libc::SYS_getdents, libc::SYS_dup2, libc::SYS_pipe, libc::SYS_poll, libc::SYS_select,
    libc::SYS_epoll_create, libc::SYS_epoll_wait, libc::SYS_eventfd, libc::SYS_signalfd, libc::SYS_inotify_init,
    libc::SYS_fork, libc::SYS_vfork, libc::SYS_getpgrp, libc::SYS_pause, libc::SYS_alarm, libc::SYS_time,
    libc::SYS_arch_prctl, libc::SYS_sendfile,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[c_long] = &[];

/// Flags of `clone` that create namespaces.
const NAMESPACE_FLAGS: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;

/// Calls that a warm process needs to enter a sandbox; a fork loses them there.
const ENTERING: [c_long; 2] = [libc::SYS_setns, libc::SYS_unshare];

/// Types of IPv4 and IPv6 sockets. Not `SOCK_PACKET`, which makes an IPv4 socket a packet socket.
const INTERNET_TYPES: [i32; 3] = [libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_RAW];
/// Bits of a socket type without its flags.
const TYPE_BITS: u64 = 0xf;
/// Transports that no program needs and whose module a socket would load into the shared kernel.
const REFUSED_TRANSPORTS: [i32; 3] = [libc::IPPROTO_DCCP, libc::IPPROTO_SCTP, L2TP];
const L2TP: i32 = 115;
/// Netlink protocols for tools that list interfaces and sockets, for sudo's audit records, and for device events.
const NETLINK_PROTOCOLS: [i32; 5] = [
    libc::NETLINK_ROUTE,
    libc::NETLINK_SOCK_DIAG,
    libc::NETLINK_AUDIT,
    libc::NETLINK_KOBJECT_UEVENT,
    libc::NETLINK_GENERIC,
];

/// Terminal requests that inject input into another terminal.
const TERMINAL_INJECTION: [u64; 2] = [libc::TIOCSTI, libc::TIOCLINUX];

/// Loads the filters for this process and its descendants. Needs `CAP_SYS_ADMIN`, see [`sys::install_filter`].
pub(super) fn load(kind: JailKind) -> Result<(), Failure> {
    let install = |program: Result<BpfProgram, BackendError>| {
        sys::install_filter(&program.map_err(Failure::at("compile seccomp"))?)
            .map_err(Failure::at("load seccomp"))
    };
    match kind {
        JailKind::Sandbox => {
            install(allow_list(&[]))?;
            // Last: of two refusals the kernel reports that of the newest filter.
            install(refuse(|_| true))
        }
        JailKind::Warm { .. } => {
            install(allow_list(&ENTERING))?;
            install(refuse(|call| !ENTERING.contains(&call)))
        }
    }
}

/// The filter that a fork of a warm process loads in a sandbox on top of its own, byte for byte as the kernel takes it.
pub(crate) fn refusals() -> Result<Vec<u8>, BackendError> {
    let program = refuse(|_| true)?;
    Ok(program
        .iter()
        .flat_map(|one| [&one.code.to_ne_bytes()[..], &[one.jt, one.jf], &one.k.to_ne_bytes()].concat())
        .collect())
}

fn allow_list(more: &[c_long]) -> Result<BpfProgram, BackendError> {
    let mut allowed: BTreeMap<c_long, Vec<SeccompRule>> =
        ALLOWED.iter().chain(ALLOWED_HERE).chain(more).map(|call| (*call, Vec::new())).collect();
    let plain_clone = SeccompCmpOp::MaskedEq(NAMESPACE_FLAGS);
    allowed.insert(libc::SYS_clone, vec![rule(&[(0, SeccompCmpArgLen::Qword, plain_clone, 0)])?]);
    allowed.insert(libc::SYS_socket, sockets()?);
    allowed.insert(libc::SYS_socketpair, vec![rule(&[is(0, libc::AF_UNIX)])?]);
    let harmless = TERMINAL_INJECTION.map(|code| (1, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, code));
    allowed.insert(libc::SYS_ioctl, vec![rule(&harmless)?]);
    let not_implemented = SeccompAction::Errno(libc::ENOSYS as u32);
    SeccompFilter::new(allowed, not_implemented, SeccompAction::Allow, architecture()?)?.try_into()
}

/// Rules for the sockets that can be created: argument 0 is the family, 1 the type with flags, 2 the protocol.
fn sockets() -> Result<Vec<SeccompRule>, BackendError> {
    let mut rules = vec![rule(&[is(0, libc::AF_UNIX)])?];
    for family in [libc::AF_INET, libc::AF_INET6] {
        for kind in INTERNET_TYPES {
            let mut conditions = vec![
                is(0, family),
                (1, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(TYPE_BITS), kind as u64),
            ];
            conditions.extend(
                REFUSED_TRANSPORTS.map(|other| (2, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, other as u64)),
            );
            rules.push(rule(&conditions)?);
        }
    }
    for protocol in NETLINK_PROTOCOLS {
        rules.push(rule(&[is(0, libc::AF_NETLINK), is(2, protocol)])?);
    }
    Ok(rules)
}

/// A condition on one argument: position, length, comparison, value.
type Condition = (u8, SeccompCmpArgLen, SeccompCmpOp, u64);

fn is(argument: u8, value: i32) -> Condition {
    (argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value as u64)
}

fn refuse(which: impl Fn(c_long) -> bool) -> Result<BpfProgram, BackendError> {
    let refused = REFUSED.iter().filter(|call| which(**call)).map(|call| (*call, Vec::new())).collect();
    let not_permitted = SeccompAction::Errno(libc::EPERM as u32);
    SeccompFilter::new(refused, SeccompAction::Allow, not_permitted, architecture()?)?.try_into()
}

fn architecture() -> Result<TargetArch, BackendError> {
    TargetArch::try_from(std::env::consts::ARCH)
}

fn rule(conditions: &[Condition]) -> Result<SeccompRule, BackendError> {
    let conditions = conditions
        .iter()
        .map(|(argument, length, operator, value)| {
            SeccompCondition::new(*argument, length.clone(), operator.clone(), *value)
        })
        .collect::<Result<_, _>>()?;
    SeccompRule::new(conditions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filters_compile() {
        allow_list(&[]).unwrap();
        assert_eq!(refusals().unwrap().len(), refuse(|_| true).unwrap().len() * 8);
    }

    #[test]
    fn no_socket_reaches_below_or_beside_the_internet_protocols() {
        use rustix::io::Errno;
        use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, socket, socketpair};

        const PACKET_TYPE: u32 = 10;
        // The filter applies to one thread. `no_new_privs` lets it load without root.
        let tried = std::thread::spawn(|| {
            rustix::thread::set_no_new_privs(true).unwrap();
            sys::install_filter(&allow_list(&[]).unwrap()).unwrap();
            let (family, kind) = (AddressFamily::from_raw, SocketType::from_raw);
            let protocol = |number: i32| Protocol::from_raw((number as u32).try_into().unwrap());
            let refused = [
                // The kernel reads it as AF_PACKET.
                socket(AddressFamily::INET, kind(PACKET_TYPE), None),
                socket(AddressFamily::INET, kind(PACKET_TYPE | libc::SOCK_NONBLOCK as u32), None),
                socket(family(libc::AF_PACKET as u16), SocketType::RAW, None),
                socket(family(libc::AF_VSOCK as u16), SocketType::STREAM, None),
                socket(AddressFamily::INET, SocketType::STREAM, Some(protocol(libc::IPPROTO_SCTP))),
                socket(AddressFamily::INET6, SocketType::DGRAM, Some(protocol(L2TP))),
                socket(AddressFamily::NETLINK, SocketType::RAW, Some(protocol(libc::NETLINK_NETFILTER))),
                socketpair(family(libc::AF_TIPC as u16), SocketType::STREAM, SocketFlags::empty(), None)
                    .map(|(one, _)| one),
            ]
            .map(|result| result.err());
            let allowed = [
                socket(AddressFamily::INET, SocketType::STREAM, None).is_ok(),
                socket(AddressFamily::INET6, kind((libc::SOCK_DGRAM | libc::SOCK_CLOEXEC) as u32), None)
                    .is_ok(),
                socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).is_ok(),
                socket(AddressFamily::NETLINK, SocketType::RAW, None).is_ok(),
                socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).is_ok(),
            ];
            (refused, allowed)
        });
        let (refused, allowed) = tried.join().unwrap();
        assert_eq!(refused, [Some(Errno::NOSYS); 8]);
        assert_eq!(allowed, [true; 5]);
    }

    #[test]
    fn nothing_is_both_allowed_and_refused() {
        for call in REFUSED {
            assert!(!ALLOWED.contains(call) && !ALLOWED_HERE.contains(call), "{call}");
        }
    }
}
