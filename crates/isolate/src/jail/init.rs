//! The first process of a jail, from its first instruction in new namespaces to the execution of its program: the PID 1 of a
//! sandbox, or a warm process.

use std::ffi::CString;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::process::{Resource, Rlimit, setrlimit, setsid, umask};
use rustix::system::sethostname;
use rustix::thread::UnshareFlags;
use sandcove_wire::boot::{BOOT_FD, CONTROL_FD, ZYGOTE_FD};

use super::counters::{self, RaisedLimits};
use super::handover::{Failure, JailKind, Launch};
use super::{capabilities, mounts, seccomp};
use crate::packet::{receive, send};
use crate::sys;

/// Name of the network interface.
const INTERFACE: &str = "eth0";
/// Netmask of a network: it holds two addresses, the sandbox's and the gateway's.
const NETMASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 252);
/// Address of the sandbox's metadata service (contract: envd, section 6), on the loopback interface.
const METADATA_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// Executes the program, or reports the failed step to `builder` and exits. Never returns.
pub(super) fn run(builder: &OwnedFd, limits: RaisedLimits) -> ! {
    // Above the numbers of the agent's descriptors, so that every failure can be reported.
    if let Ok(builder) = rustix::io::fcntl_dupfd_cloexec(builder, 64)
        && let Err(failure) = start(&builder, limits)
    {
        let _ = send(&builder, &failure, &[]);
    }
    sys::exit_now(1)
}

fn start(builder: &OwnedFd, limits: RaisedLimits) -> Result<(), Failure> {
    // None: the builder has ended, so the start was given up.
    let Some((launch, fds)) = receive::<Launch>(builder).map_err(Failure::at("receive launch"))? else {
        return Ok(());
    };
    let mut fds = fds.into_iter();
    let (Some(log), Some(root)) = (fds.next(), fds.next_back()) else {
        return Err(Failure { step: "receive launch".into(), reason: "missing descriptors".into() });
    };

    limits.restore().map_err(Failure::at("restore limits"))?;
    sys::become_root().map_err(Failure::at("become root"))?;
    counters::limit_inotify().map_err(Failure::at("limit inotify"))?;
    setsid().map_err(Failure::at("setsid"))?;
    sys::set_reaps_children(true).map_err(Failure::at("reset SIGCHLD"))?;
    // From here on /proc/self/cgroup reads `/`: the server has put this process into its control group before the launch.
    sys::unshare(UnshareFlags::NEWCGROUP).map_err(Failure::at("unshare cgroup"))?;
    sethostname(launch.hostname.as_bytes()).map_err(Failure::at("set host name"))?;
    network(launch.address)?;

    let processes = match launch.kind {
        JailKind::Sandbox => None,
        JailKind::Warm { .. } => fds.next_back(),
    };
    let mut volumes: Vec<OwnedFd> = launch.volumes.iter().filter_map(|_| fds.next_back()).collect();
    volumes.reverse();
    mounts::enter(&root, processes.as_ref(), &launch)?;
    mounts::attach(&volumes, &launch)?;
    drop((root, processes, volumes));
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
    let env = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"]
        .map(CString::new)
        .into_iter()
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
    let error = sys::exec(program, &command, &env);
    Err(Failure { step: format!("exec {}", launch.command[0]), reason: error.to_string() })
}

fn network(address: Option<(Ipv4Addr, Ipv4Addr)>) -> Result<(), Failure> {
    let socket =
        socket(AddressFamily::INET, SocketType::DGRAM, None).map_err(Failure::at("open a socket"))?;
    let socket = socket.as_fd();
    sys::interface_up(socket, "lo").map_err(Failure::at("turn lo on"))?;
    sys::set_address(socket, "lo:0", METADATA_ADDRESS, Ipv4Addr::BROADCAST)
        .map_err(Failure::at("set the metadata address"))?;
    let Some((own, gateway)) = address else { return Ok(()) };
    sys::set_address(socket, INTERFACE, own, NETMASK).map_err(Failure::at("set address"))?;
    sys::interface_up(socket, INTERFACE).map_err(Failure::at("turn eth0 on"))?;
    sys::add_default_route(socket, gateway).map_err(Failure::at("set route"))
}

fn limit_core_files() -> Result<(), Failure> {
    // No core files: they would fill the sandbox's disk with what is mostly library code.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })
        .map_err(Failure::at("limit core files"))
}
