//! The first process of a jail, from its first instruction in new namespaces to the execution of its program: the PID 1 of a
//! sandbox, or a warm process.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Resource, Rlimit, chdir, setrlimit, setsid, umask};
use rustix::system::sethostname;
use rustix::thread::UnshareFlags;
use sandcove_wire::boot::{BOOT_FD, CONTROL_FD, ZYGOTE_FD};

use super::handover::{Failure, Launch};
use super::mounts::Trees;
use super::{capabilities, counters, mounts, seccomp};
use crate::packet::{receive, send};
use crate::sys;

/// Executes the program, or reports the failed step to `builder` and exits. Never returns.
pub(super) fn run(builder: &OwnedFd) -> ! {
    // Above the numbers of the agent's descriptors, so that every failure can be reported.
    if let Ok(builder) = rustix::io::fcntl_dupfd_cloexec(builder, 64)
        && let Err(failure) = start(&builder)
    {
        let _ = send(&builder, &failure, &[]);
    }
    sys::exit_now(1)
}

fn start(builder: &OwnedFd) -> Result<(), Failure> {
    // None: the builder has ended, so the start was given up.
    let Some((launch, fds)) = receive::<Launch>(builder).map_err(Failure::at("receive launch"))? else {
        return Ok(());
    };
    let mut fds = fds.into_iter();
    let (Some(log), Some(trees)) = (fds.next(), Trees::take(&mut fds, &launch)) else {
        return Err(Failure { step: "receive launch".into(), reason: "missing descriptors".into() });
    };

    sys::become_root().map_err(Failure::at("become root"))?;
    counters::limit_inotify().map_err(Failure::at("limit inotify"))?;
    setsid().map_err(Failure::at("setsid"))?;
    sys::reset_signals();
    // From here on /proc/self/cgroup reads `/`: the server has put this process into its control group before the launch.
    sys::unshare(UnshareFlags::NEWCGROUP).map_err(Failure::at("unshare cgroup"))?;
    sethostname(launch.hostname.as_bytes()).map_err(Failure::at("set host name"))?;
    mounts::enter(trees, &launch)?;
    umask(Mode::from_raw_mode(0o022));
    limit_core_files()?;

    let command: Vec<CString> = launch
        .command
        .iter()
        .map(|part| CString::new(part.as_str()))
        .collect::<Result<_, _>>()
        .map_err(Failure::at("read the command"))?;
    let program =
        command.first().ok_or_else(|| Failure { step: "read the command".into(), reason: "empty".into() })?;
    let usual =
        [("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"), ("LANG", "C.UTF-8")];
    let usual = usual.into_iter().filter(|(name, _)| !launch.env.contains_key(*name));
    let own = launch.env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let env = usual
        .chain(own)
        .map(|(name, value)| CString::new(format!("{name}={value}")))
        .collect::<Result<Vec<_>, _>>()
        .map_err(Failure::at("write the environment"))?;
    let null = open("/dev/null", OFlags::RDWR, Mode::empty()).map_err(Failure::at("open /dev/null"))?;
    let log_too = rustix::io::dup(&log).map_err(Failure::at("duplicate the log"))?;
    const { assert!(CONTROL_FD == 3 && BOOT_FD == 4 && ZYGOTE_FD == 5) };
    let placed: Vec<OwnedFd> = [null, log, log_too].into_iter().chain(fds).collect();
    let count = placed.len() as u32;
    sys::place_fds(placed).map_err(Failure::at("place descriptors"))?;

    capabilities::limit_bounding_set(launch.kind).map_err(Failure::at("limit rights"))?;
    seccomp::load(launch.kind)?;
    capabilities::drop_rights(launch.kind).map_err(Failure::at("drop rights"))?;
    sys::close_on_exec_from(count).map_err(Failure::at("mark descriptors"))?;
    // Last, with the rights that the program will have: the directory is one of the template.
    if let Some(directory) = &launch.directory {
        chdir(directory.as_str()).map_err(Failure::at("change the directory"))?;
    }
    let error = sys::exec(program, &command, &env);
    Err(Failure { step: format!("exec {}", launch.command[0]), reason: error.to_string() })
}

fn limit_core_files() -> Result<(), Failure> {
    // With the limit 1, and with no other, the kernel starts no helper for a dump: a `core_pattern` that begins with `|`
    // runs a program of the host, as its root, on the sandbox's memory, whatever the limit, 0 included
    // (`fs/coredump.c`; the kernel gives its helpers this limit, so that they are not dumped). It leaves no file
    // either: one is begun only if the limit allows a page. The filter keeps programs from changing this limit.
    setrlimit(Resource::Core, Rlimit { current: Some(1), maximum: Some(1) })
        .map_err(Failure::at("limit core files"))
}
