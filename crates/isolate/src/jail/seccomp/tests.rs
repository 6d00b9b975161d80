//! Tests of the profiles: what the filters answer to calls, by a small interpreter and by the kernel.

use std::collections::{BTreeMap, BTreeSet};

use libc::c_long;

use super::profile::{Call, Condition, Rule, calls};
use super::*;

/// Answer of all filters to a call.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Executed,
    /// The call returns this error, or success for 0.
    Returned(i32),
}

const NOT_PERMITTED: Answer = Answer::Returned(libc::EPERM);
const NOT_IMPLEMENTED: Answer = Answer::Returned(libc::ENOSYS);
const DONE: Answer = Answer::Returned(0);

/// The answer to a sandbox for the call `number`.
fn answer(number: c_long, arguments: &[u64]) -> Answer {
    answer_with(&[], number, arguments)
}

/// The answer to a jail whose profile allows the rules `more` too.
fn answer_with(more: &[Rule], number: c_long, arguments: &[u64]) -> Answer {
    const ERRNO: u32 = 0x0005_0000;
    const ALLOW: u32 = 0x7fff_0000;
    // The newest first, as the kernel does: it keeps the first error.
    let programs = [SANDBOX.refuses(more), SANDBOX.answers(), SANDBOX.allows(more)];
    for program in programs {
        match run(&program.unwrap(), number, arguments) {
            ALLOW => {}
            other => {
                assert_eq!(other & 0xffff_0000, ERRNO, "{other:#x}");
                return Answer::Returned((other & 0xffff) as i32);
            }
        }
    }
    Answer::Executed
}

/// Runs a filter as the kernel does.
fn run(program: &BpfProgram, number: c_long, arguments: &[u64]) -> u32 {
    // The second instruction compares the architecture.
    let mut data = vec![number as u32, program[1].k, 0, 0];
    for position in 0..6 {
        let argument = arguments.get(position).copied().unwrap_or(0);
        data.extend([argument as u32, (argument >> 32) as u32]);
    }
    let (mut accumulator, mut next) = (0, 0);
    loop {
        let instruction = &program[next];
        next += 1;
        let branch = |taken| usize::from(if taken { instruction.jt } else { instruction.jf });
        match instruction.code {
            0x06 => return instruction.k,
            0x05 => next += instruction.k as usize,
            0x20 => accumulator = data[instruction.k as usize / 4],
            0x54 => accumulator &= instruction.k,
            0x15 => next += branch(accumulator == instruction.k),
            0x25 => next += branch(accumulator > instruction.k),
            0x35 => next += branch(accumulator >= instruction.k),
            other => panic!("instruction {other:#x}"),
        }
    }
}

/// Arguments that meet the conditions of a rule, with `above` in the upper halves that the kernel does not read.
fn meeting(rule: &Rule, above: u64) -> Vec<Vec<u64>> {
    let mut all = vec![vec![0; 6]];
    for condition in rule.when {
        let (argument, values) = match *condition {
            Condition::OneOf(argument, values) => {
                (argument, values.iter().map(|value| u64::from(*value) | above << 32).collect())
            }
            Condition::Bits(argument, mask, value) => {
                (argument, vec![u64::from(value) | above << 32, u64::from(value | !mask)])
            }
            Condition::Pointer(argument) => (argument, vec![1, 1 << 32]),
        };
        all = all
            .iter()
            .flat_map(|begun| {
                values.iter().map(move |value| {
                    let mut one = begun.clone();
                    one[usize::from(argument)] = *value;
                    one
                })
            })
            .collect();
    }
    all
}

fn rules_of<'a>(rules: impl IntoIterator<Item = &'a Rule>) -> Vec<(&'a Rule, Vec<u64>)> {
    let with_arguments = |rule: &'a Rule| {
        [0, 0xffff_ffff].into_iter().flat_map(move |above| meeting(rule, above)).map(move |a| (rule, a))
    };
    rules.into_iter().flat_map(with_arguments).collect()
}

#[test]
fn allowed_calls_are_executed_and_all_others_are_not_implemented() {
    let allowed: BTreeSet<c_long> = groups(SANDBOX.allowed.iter().chain(SANDBOX.unrecorded))
        .chain(SANDBOX.allowed_if.iter().chain(SANDBOX.answered).map(|rule| rule.call))
        .chain(groups(SANDBOX.refused))
        .map(|call| call.number)
        .collect();
    for call in groups(SANDBOX.allowed.iter().chain(SANDBOX.unrecorded)) {
        assert_eq!(answer(call.number, &[]), Answer::Executed, "{}", call.name);
    }
    for number in (0..1000).filter(|number| !allowed.contains(number)) {
        assert_eq!(answer(number, &[]), NOT_IMPLEMENTED, "{number}");
    }
}

#[test]
fn refused_calls_are_not_permitted_whatever_their_arguments() {
    for call in groups(SANDBOX.refused) {
        for argument in [0, 1, u64::MAX] {
            assert_eq!(answer(call.number, &[argument; 6]), NOT_PERMITTED, "{}", call.name);
        }
    }
}

#[test]
fn each_rule_holds_for_the_arguments_it_names() {
    for (rule, arguments) in rules_of(SANDBOX.answered) {
        assert_eq!(answer(rule.call.number, &arguments), DONE, "{} {arguments:x?}", rule.reason);
    }
    for (rule, arguments) in rules_of(SANDBOX.refused_if) {
        assert_eq!(answer(rule.call.number, &arguments), NOT_PERMITTED, "{} {arguments:x?}", rule.reason);
    }
    let excepted = |number, arguments: &[u64]| {
        let is =
            |rule: &Rule, other: &[u64]| rule.call.number == number && other[1] as u32 == arguments[1] as u32;
        rules_of(SANDBOX.refused_if).iter().any(|(rule, other)| is(rule, other))
    };
    for (rule, arguments) in rules_of(SANDBOX.allowed_if) {
        if !excepted(rule.call.number, &arguments) {
            assert_eq!(
                answer(rule.call.number, &arguments),
                Answer::Executed,
                "{} {arguments:x?}",
                rule.reason
            );
        }
    }
}

#[test]
fn what_a_rule_does_not_name_is_another_matter() {
    const NEWUSER: u64 = libc::CLONE_NEWUSER as u64;
    const TCGETS: u64 = 0x5401;
    const SUBVOLUME: u64 = 0x5000_940e;
    const BRIDGE: u64 = 0x8940;
    let inet = libc::AF_INET as u64;
    let (stream, datagram, raw) = (libc::SOCK_STREAM as u64, libc::SOCK_DGRAM as u64, libc::SOCK_RAW as u64);
    for (number, arguments, expected) in [
        // One of several values.
        (libc::SYS_personality, vec![0x0040_0000], NOT_IMPLEMENTED),
        (libc::SYS_personality, vec![u64::MAX], Answer::Executed),
        (libc::SYS_madvise, vec![0, 0, libc::MADV_DONTNEED as u64], Answer::Executed),
        (libc::SYS_prctl, vec![libc::PR_SET_NAME as u64], Answer::Executed),
        (libc::SYS_setsockopt, vec![3, 6, 1], Answer::Executed),
        (libc::SYS_setsockopt, vec![3, 1, 31], Answer::Executed),
        // Bits.
        (libc::SYS_clone, vec![libc::CLONE_VM as u64 | 17], Answer::Executed),
        (libc::SYS_clone, vec![NEWUSER | 17], NOT_IMPLEMENTED),
        (libc::SYS_mmap, vec![0, 4096, 3, 0x22], Answer::Executed),
        // Requests by type; a set bit above the 32 that the kernel reads hides none.
        (libc::SYS_ioctl, vec![0, TCGETS], Answer::Executed),
        (libc::SYS_ioctl, vec![0, SUBVOLUME], NOT_IMPLEMENTED),
        (libc::SYS_ioctl, vec![0, SUBVOLUME | 1 << 32], NOT_IMPLEMENTED),
        (libc::SYS_ioctl, vec![0, BRIDGE], NOT_IMPLEMENTED),
        (libc::SYS_ioctl, vec![0, BRIDGE | 1 << 40], NOT_IMPLEMENTED),
        // Pointers: reading the limit of core files is no change of it.
        (libc::SYS_prlimit64, vec![0, 4, 0, 0x1000], Answer::Executed),
        (libc::SYS_prlimit64, vec![0, 7, 0x1000, 0], Answer::Executed),
        (libc::SYS_setrlimit, vec![7], Answer::Executed),
        // All conditions together.
        (libc::SYS_socket, vec![inet, stream, libc::IPPROTO_UDP as u64], NOT_IMPLEMENTED),
        (libc::SYS_socket, vec![inet, datagram, libc::IPPROTO_ICMPV6 as u64], NOT_IMPLEMENTED),
        (libc::SYS_socket, vec![inet, raw, libc::IPPROTO_ICMP as u64], NOT_IMPLEMENTED),
        (libc::SYS_socket, vec![inet, stream, 262], NOT_IMPLEMENTED),
    ] {
        assert_eq!(answer(number, &arguments), expected, "{number} {arguments:x?}");
    }
}

#[test]
fn a_rule_without_conditions_allows_any_arguments() {
    let setns = Rule { reason: "a test", call: super::profile::call!(SYS_setns), when: &[] };
    assert_eq!(answer_with(&[setns], libc::SYS_setns, &[3, u64::MAX]), Answer::Executed);
    let one = Rule {
        reason: "a test",
        call: super::profile::call!(SYS_unshare),
        when: &[Condition::OneOf(0, &[libc::CLONE_NEWCGROUP as u32])],
    };
    let cgroup = libc::CLONE_NEWCGROUP as u64;
    for (flags, expected) in
        [(cgroup, Answer::Executed), (cgroup | libc::CLONE_NEWUSER as u64, NOT_IMPLEMENTED)]
    {
        assert_eq!(
            answer_with(std::slice::from_ref(&one), libc::SYS_unshare, &[flags]),
            expected,
            "{flags:x}"
        );
    }
}

#[test]
fn refusals_are_written_as_the_kernel_takes_them() {
    assert_eq!(refusals().unwrap().len(), SANDBOX.refuses(&[]).unwrap().len() * 8);
    prepare(RefusedCalls::Silent).unwrap();
}

fn groups<'a>(groups: impl IntoIterator<Item = &'a super::profile::Group>) -> impl Iterator<Item = Call> {
    groups.into_iter().flat_map(|group| group.calls.iter().copied())
}

#[test]
fn every_entry_has_one_place_and_a_reason() {
    let mut place: BTreeMap<c_long, &str> = BTreeMap::new();
    for (name, list) in
        [("allowed", SANDBOX.allowed), ("unrecorded", SANDBOX.unrecorded), ("refused", SANDBOX.refused)]
    {
        for group in list {
            assert!(group.reason.len() > 10, "{name}");
            for call in group.calls {
                let before = place.insert(call.number, name);
                assert_eq!(before, None, "{} is also {name}", call.name);
            }
        }
    }
    for rule in SANDBOX.allowed_if.iter().chain(ENTERING) {
        assert!(rule.reason.len() > 10 && rule.call.name.starts_with("SYS_"), "{}", rule.reason);
    }
    for rule in SANDBOX.allowed_if {
        assert_eq!(place.get(&rule.call.number), None, "{} has a rule and a group", rule.call.name);
    }
    for rule in SANDBOX.refused_if {
        assert_ne!(place.get(&rule.call.number), Some(&"refused"), "{} is refused anyway", rule.call.name);
    }
}

/// Programs that make a call, from `recorded.txt`.
fn recorded() -> BTreeMap<String, Vec<&'static str>> {
    include_str!("recorded.txt")
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| {
            let (call, programs) =
                line.split_once(": ").unwrap_or_else(|| panic!("`{line}` is not CALL: PROGRAM ..."));
            (format!("SYS_{call}"), programs.split(' ').collect())
        })
        .collect()
}

#[test]
fn no_call_is_allowed_that_nobody_needs() {
    let recorded = recorded();
    let unneeded: Vec<_> =
        groups(SANDBOX.allowed).map(|call| call.name).filter(|name| !recorded.contains_key(*name)).collect();
    assert!(unneeded.is_empty(), "no recorded program makes these calls: {unneeded:?}");
    let needed: Vec<_> = groups(SANDBOX.unrecorded)
        .map(|call| call.name)
        .filter(|name| recorded.contains_key(*name))
        .collect();
    assert!(needed.is_empty(), "recorded programs make these calls; list them with the others: {needed:?}");
    for rule in SANDBOX.allowed_if {
        assert!(
            recorded.contains_key(rule.call.name),
            "no recorded program makes the call {}",
            rule.call.name
        );
    }
}

#[test]
fn no_socket_reaches_below_or_beside_the_internet_protocols() {
    use rustix::io::Errno;
    use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, socket, socketpair};

    const PACKET_TYPE: u32 = 10;
    const L2TP: i32 = 115;
    const MPTCP: i32 = 262;
    // The filter applies to one thread. `no_new_privs` lets it load without root.
    let tried = std::thread::spawn(|| {
        rustix::thread::set_no_new_privs(true).unwrap();
        sys::install_filter(&SANDBOX.allows(&[]).unwrap(), RefusedCalls::Silent).unwrap();
        let (family, kind) = (AddressFamily::from_raw, SocketType::from_raw);
        let protocol = |number: i32| Protocol::from_raw((number as u32).try_into().unwrap());
        let refused = [
            // The kernel reads it as AF_PACKET.
            socket(AddressFamily::INET, kind(PACKET_TYPE), None),
            socket(AddressFamily::INET, kind(PACKET_TYPE | libc::SOCK_NONBLOCK as u32), None),
            socket(family(libc::AF_PACKET as u16), SocketType::RAW, None),
            socket(family(libc::AF_VSOCK as u16), SocketType::STREAM, None),
            socket(AddressFamily::INET, SocketType::RAW, Some(protocol(libc::IPPROTO_ICMP))),
            socket(AddressFamily::INET, SocketType::STREAM, Some(protocol(libc::IPPROTO_SCTP))),
            socket(AddressFamily::INET, SocketType::STREAM, Some(protocol(MPTCP))),
            socket(AddressFamily::INET, SocketType::DGRAM, Some(protocol(libc::IPPROTO_UDPLITE))),
            socket(AddressFamily::INET6, SocketType::DGRAM, Some(protocol(L2TP))),
            socket(AddressFamily::NETLINK, SocketType::RAW, Some(protocol(libc::NETLINK_NETFILTER))),
            socket(AddressFamily::NETLINK, SocketType::RAW, Some(protocol(libc::NETLINK_GENERIC))),
            socketpair(family(libc::AF_TIPC as u16), SocketType::STREAM, SocketFlags::empty(), None)
                .map(|(one, _)| one),
        ]
        .map(|result| result.err());
        let allowed = [
            socket(AddressFamily::INET, SocketType::STREAM, None).is_ok(),
            socket(AddressFamily::INET6, kind((libc::SOCK_DGRAM | libc::SOCK_CLOEXEC) as u32), None).is_ok(),
            socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).is_ok(),
            socket(AddressFamily::NETLINK, SocketType::RAW, None).is_ok(),
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).is_ok(),
        ];
        (refused, allowed)
    });
    let (refused, allowed) = tried.join().unwrap();
    assert_eq!(refused, [Some(Errno::NOSYS); 12]);
    assert_eq!(allowed, [true; 5]);
}

#[test]
fn the_limit_of_core_files_stays_when_a_program_sets_it() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let seen = std::thread::spawn(|| {
        let before = getrlimit(Resource::Core);
        rustix::thread::set_no_new_privs(true).unwrap();
        sys::install_filter(&SANDBOX.answers().unwrap(), RefusedCalls::Silent).unwrap();
        let other =
            Rlimit { current: Some(before.current.map_or(4096, |now| now / 2)), maximum: before.maximum };
        setrlimit(Resource::Core, other).unwrap();
        (before, getrlimit(Resource::Core))
    });
    let (before, after) = seen.join().unwrap();
    assert_eq!(before, after);
}

/// The processes without privileges: their profiles, and the calls that they were seen to make.
const PROCESSES: [(&Profile, &str); 3] = [
    (&SERVER, include_str!("recorded-server.txt")),
    (&EGRESS, include_str!("recorded-egress.txt")),
    (&UNPACKER, include_str!("recorded-unpacker.txt")),
];

#[test]
fn processes_without_privileges_may_make_the_calls_that_they_need_and_few_others() {
    for (profile, recorded) in PROCESSES {
        let lines = recorded.lines().filter(|line| !line.starts_with('#'));
        let recorded: BTreeSet<String> = lines.map(|call| format!("SYS_{call}")).collect();
        let allowed: BTreeSet<&str> = groups(profile.allowed).map(|call| call.name).collect();
        let unneeded: Vec<_> = allowed.iter().filter(|name| !recorded.contains(**name)).collect();
        assert!(unneeded.is_empty(), "the process does not make these calls: {unneeded:?}");
        let by_argument: BTreeSet<&str> = profile.allowed_if.iter().map(|rule| rule.call.name).collect();
        let missing: Vec<_> = recorded
            .iter()
            .map(String::as_str)
            // The C library makes threads with the other call when it is not there.
            .filter(|name| !allowed.contains(name) && !by_argument.contains(name) && *name != "SYS_clone3")
            .collect();
        assert!(missing.is_empty(), "the process makes these calls; list them with the others: {missing:?}");

        let mut place = BTreeSet::new();
        for group in profile.allowed.iter().chain(profile.unrecorded) {
            assert!(group.reason.len() > 5);
            for call in group.calls {
                assert!(place.insert(call.number), "{} is listed twice", call.name);
            }
        }
        for rule in profile.allowed_if {
            assert!(rule.reason.len() > 5 && !place.contains(&rule.call.number), "{}", rule.call.name);
        }
    }
}

#[test]
fn processes_without_privileges_cannot_leave_their_places() {
    PROCESSES.iter().for_each(|(profile, _)| cannot_leave_its_place(profile));
}

fn cannot_leave_its_place(profile: &Profile) {
    let program = profile.allows(&[]).unwrap();
    let answer = |number, arguments: &[u64]| run(&program, number, arguments);
    const ALLOW: u32 = 0x7fff_0000;
    for call in calls![
        SYS_execve,
        SYS_execveat,
        SYS_clone3,
        SYS_unshare,
        SYS_setns,
        SYS_mount,
        SYS_umount2,
        SYS_pivot_root,
        SYS_chroot,
        SYS_open_tree,
        SYS_move_mount,
        SYS_ptrace,
        SYS_process_vm_readv,
        SYS_process_vm_writev,
        SYS_pidfd_getfd,
        SYS_kill,
        SYS_setuid,
        SYS_setgid,
        SYS_setresuid,
        SYS_setgroups,
        SYS_capset,
        SYS_keyctl,
        SYS_add_key,
        SYS_bpf,
        SYS_perf_event_open,
        SYS_userfaultfd,
        SYS_io_uring_setup,
        SYS_seccomp,
        SYS_personality,
        SYS_init_module,
        SYS_memfd_create,
    ] {
        assert_ne!(answer(call.number, &[]), ALLOW, "{}", call.name);
    }
    let device = [0, 0, u64::from(libc::S_IFCHR), 0];
    assert_ne!(answer(libc::SYS_mknodat, &device), ALLOW);
    let thread = (libc::CLONE_THREAD | libc::CLONE_VM | libc::CLONE_SIGHAND) as u64;
    assert_eq!(answer(libc::SYS_clone, &[thread]), ALLOW);
    for process in [libc::SIGCHLD, libc::CLONE_NEWUSER, libc::CLONE_VFORK | libc::CLONE_VM] {
        assert_ne!(answer(libc::SYS_clone, &[process as u64]), ALLOW, "{process:#x}");
    }
    for (family, kind) in [
        (libc::AF_NETLINK, libc::SOCK_RAW),
        (libc::AF_PACKET, libc::SOCK_RAW),
        (libc::AF_INET, libc::SOCK_RAW),
        (libc::AF_UNIX, libc::SOCK_STREAM),
        (libc::AF_VSOCK, libc::SOCK_STREAM),
        (libc::AF_ALG, libc::SOCK_SEQPACKET),
    ] {
        assert_ne!(answer(libc::SYS_socket, &[family as u64, kind as u64, 0]), ALLOW, "{family}");
    }
}

#[test]
fn only_what_unpacks_images_makes_links() {
    for (profile, _) in PROCESSES {
        let program = profile.allows(&[]).unwrap();
        for call in calls![SYS_symlinkat, SYS_linkat, SYS_mkdirat, SYS_fchownat, SYS_fsetxattr] {
            let may = run(&program, call.number, &[]) == 0x7fff_0000;
            let expected = std::ptr::eq(profile, &UNPACKER)
                || (std::ptr::eq(profile, &SERVER) && call.name == "SYS_mkdirat");
            assert_eq!(may, expected, "{}", call.name);
        }
    }
}

#[test]
fn what_unpacks_images_makes_pipes_and_speaks_to_nobody() {
    let program = UNPACKER.allows(&[]).unwrap();
    const ALLOW: u32 = 0x7fff_0000;
    for (kind, expected) in [
        (libc::S_IFIFO, true),
        (libc::S_IFCHR, false),
        (libc::S_IFBLK, false),
        (libc::S_IFSOCK, false),
        (libc::S_IFREG, false),
        (0, false),
    ] {
        let mode = u64::from(kind | 0o644);
        assert_eq!(run(&program, libc::SYS_mknodat, &[0, 0, mode, 0]) == ALLOW, expected, "{kind:o}");
    }
    for call in calls![
        SYS_socket,
        SYS_socketpair,
        SYS_connect,
        SYS_sendmsg,
        SYS_recvmsg,
        SYS_bind,
        SYS_ioctl,
        SYS_tgkill,
        SYS_tkill,
        SYS_pidfd_open,
        SYS_pidfd_send_signal,
        SYS_prlimit64,
        SYS_getxattr,
        SYS_renameat2
    ] {
        assert_ne!(run(&program, call.number, &[]), ALLOW, "{}", call.name);
    }
}

#[test]
fn egress_proxies_have_no_files_and_no_sockets_of_their_own() {
    let program = EGRESS.allows(&[]).unwrap();
    const ALLOW: u32 = 0x7fff_0000;
    for call in calls![SYS_openat, SYS_openat2, SYS_bind, SYS_listen, SYS_statx, SYS_getdents64, SYS_unlinkat]
    {
        assert_ne!(run(&program, call.number, &[]), ALLOW, "{}", call.name);
    }
    let tcp = [libc::AF_INET as u64, libc::SOCK_STREAM as u64, 0];
    assert_ne!(run(&program, libc::SYS_socket, &tcp), ALLOW);
}

#[test]
fn names_threads_files_and_connections_work_within_the_filter_of_the_server() {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, ToSocketAddrs};

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    // The filter applies to one thread, and to those that it starts.
    let tried = std::thread::spawn(move || {
        rustix::thread::set_no_new_privs(true).unwrap();
        load_for_server(RefusedCalls::Silent).unwrap();

        let found: Vec<_> = ("localhost", 80).to_socket_addrs().unwrap().collect();
        assert!(!found.is_empty() && found.iter().all(|address| address.ip().is_loopback()), "{found:?}");
        // Name servers are asked, whatever they answer.
        let error = ("name.invalid", 80).to_socket_addrs().unwrap_err().to_string();
        assert!(error.contains("lookup") && !error.contains("not implemented"), "{error}");

        let listener = TcpListener::bind("127.0.0.1:0");
        assert!(listener.is_err(), "it serves on the listener that it is given");
        let mut file = std::fs::File::create(path.join("unfinished")).unwrap();
        file.write_all(b"text").unwrap();
        file.sync_all().unwrap();
        std::fs::rename(path.join("unfinished"), path.join("file")).unwrap();
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1);
        std::fs::remove_file(path.join("file")).unwrap();

        assert_eq!(std::thread::spawn(|| 6 * 7).join().unwrap(), 42);
        let error = std::process::Command::new("/bin/true").spawn().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOSYS));
        assert!(rustix::fs::symlinkat("/etc/shadow", rustix::fs::CWD, path.join("link")).is_err());
    });
    tried.join().unwrap();

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serving = std::thread::spawn(move || {
        rustix::thread::set_no_new_privs(true).unwrap();
        load_for_server(RefusedCalls::Silent).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let mut word = [0; 5];
        stream.read_exact(&mut word).unwrap();
        stream.write_all(&word).unwrap();
    });
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"hello").unwrap();
    let mut word = [0; 5];
    stream.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"hello");
    serving.join().unwrap();
}
