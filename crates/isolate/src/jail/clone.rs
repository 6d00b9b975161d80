//! Cloning the first process of a jail: its user namespace, its other namespaces, and its id maps.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use super::counters;
use super::handover::{BuildRequest, Failure, ID_COUNT, JailKind};
use super::{anchor, capabilities};
use crate::packet::{pair, receive, receive_bytes, send};
use crate::precedence;
use crate::sys::{self, CloneFlags, Forked};

/// Report of the intermediate process to the builder: the host pid of the first process.
type Report = Result<u32, Failure>;

/// The namespaces in which those of a new jail are made.
pub(crate) struct Parent {
    /// The user namespace.
    pub(crate) users: OwnedFd,
    /// The PID namespace.
    pub(crate) processes: OwnedFd,
}

/// Clones the future first process, which waits on `theirs`, and returns its host pid. With a parent, an intermediate process
/// enters the parent's namespaces first: a process cannot come back from a user namespace.
pub(super) fn clone_first(
    request: &BuildRequest,
    parent: Option<Parent>,
    ours: OwnedFd,
    theirs: OwnedFd,
) -> Result<(u32, OwnedFd), Failure> {
    let (parent, lifeline) = match (request.kind, parent) {
        (JailKind::Warm { .. }, _) => {
            let (parent, lifeline) = anchor::start(request)?;
            (parent, Some(lifeline))
        }
        (JailKind::Sandbox, Some(parent)) => (parent, None),
        (JailKind::Sandbox, None) => {
            let may_raise = counters::may_raise().map_err(Failure::at("read rights"))?;
            give_up_protection()?;
            let cloned = clone(request, may_raise, request.id_base, ours, theirs)?;
            sys::set_effective_ids(0).map_err(Failure::at("take back the identity"))?;
            return Ok(cloned);
        }
    };
    let may_raise = counters::may_raise().map_err(Failure::at("read rights"))?;
    let (report, their_report) = pair().map_err(Failure::at("socketpair"))?;
    // Only children get into the PID namespace, so the builder itself stays where it is.
    enter(&parent.processes, LinkNameSpaceType::ProcessID)?;
    let intermediate = match sys::fork().map_err(Failure::at("fork"))? {
        Forked::Child => {
            drop((report, lifeline));
            // The ids of a sandbox have the same numbers in a warm process's namespace; the warm process is its root.
            let identity = match request.kind {
                JailKind::Sandbox => request.id_base,
                JailKind::Warm { .. } => 0,
            };
            let outcome: Report = give_up_protection()
                .and_then(|()| enter(&parent.users, LinkNameSpaceType::User))
                .and_then(|()| clone(request, may_raise, identity, ours, theirs))
                .map(|(pid, _)| pid);
            let _ = send(&their_report, &outcome, &[]);
            sys::exit_now(0);
        }
        Forked::Parent { child } => child,
    };
    drop((their_report, theirs));
    let outcome = receive::<Report>(&report).map_err(Failure::at("wait for the clone"))?;
    let (pid, _) = outcome
        .ok_or_else(|| Failure { step: "clone".into(), reason: "the intermediate process died".into() })?;
    if lifeline.is_some() {
        // The anchor gets the first process as its child only when the process between has ended.
        poll(&mut [PollFd::new(&intermediate, PollFlags::IN)], None)
            .map_err(Failure::at("wait for the intermediate process"))?;
    }
    drop(lifeline);
    Ok((pid?, ours))
}

/// Gives up the server's protection from being killed when memory runs out, which a jail must not have. An anchor keeps it: other
/// processes depend on it.
fn give_up_protection() -> Result<(), Failure> {
    precedence::give_up_oom_protection().map_err(Failure::at("give up the server's protection"))
}

fn enter(namespace: &OwnedFd, kind: LinkNameSpaceType) -> Result<(), Failure> {
    move_into_link_name_space(namespace.as_fd(), Some(kind))
        .map_err(Failure::at("enter the parent's namespaces"))
}

/// Takes the identity `id`, which owns the namespaces made next: the kernel charges their creator for the use of them. Those of
/// each jail are made, and owned, by the first id of its own range, so that no sandbox uses up the limits of the host's root.
///
/// The process keeps its rights, and its real and saved user: nobody in a warm process's namespaces may signal or trace it.
pub(super) fn take_identity(id: u32) -> Result<(), Failure> {
    capabilities::keep_rights().map_err(Failure::at("keep rights"))?;
    sys::set_effective_ids(id).map_err(Failure::at("take the sandbox's identity"))?;
    // The change of identity makes children lose their own files in /proc.
    set_dumpable_behavior(DumpableBehavior::Dumpable).map_err(Failure::at("stay visible"))
}

/// Clones the first process and writes its id maps. The calling process has the jail's identity afterwards, and its network
/// namespace.
fn clone(
    request: &BuildRequest,
    may_raise: bool,
    identity: u32,
    ours: OwnedFd,
    theirs: OwnedFd,
) -> Result<(u32, OwnedFd), Failure> {
    let flags = match request.kind {
        JailKind::Sandbox => {
            // Lowered for good: nothing else is cloned by this process.
            counters::before_clone(request.kind, may_raise)
                .map_err(Failure::at("set the namespace's limits"))?;
            CloneFlags::SANDBOX
        }
        JailKind::Warm { .. } => CloneFlags::WARM,
    };
    take_identity(identity)?;
    // Before the user namespace is made, so that the one above owns it: nobody inside has rights over the network, not even a
    // process that enters with all rights over the sandbox.
    sys::unshare(UnshareFlags::NEWNET).map_err(Failure::at("unshare the network"))?;
    let child = match sys::clone_child(flags).map_err(Failure::at("clone"))? {
        Forked::Child => {
            drop(ours);
            super::init::run(&theirs);
        }
        Forked::Parent { child } => child,
    };
    let pid = child_pid(&child)?;
    if matches!(request.kind, JailKind::Sandbox) {
        write_id_maps(pid, request)?;
    }
    Ok((pid, ours))
}

/// Reads the host pid of a process. The number that `clone3` returns is that of the caller's PID namespace.
pub(super) fn child_pid(child: &OwnedFd) -> Result<u32, Failure> {
    let failed = Failure::at("read the pid of the clone");
    let info = match std::fs::read_to_string(format!("/proc/self/fdinfo/{}", child.as_raw_fd())) {
        Ok(info) => info,
        Err(error) => return Err(failed(error)),
    };
    let pid = info.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok());
    // A process that has ended has the number -1.
    pid.ok_or_else(|| failed(std::io::Error::other("it has ended")))
}

/// Maps the ids of a new user namespace.
pub(super) fn write_id_maps(pid: u32, request: &BuildRequest) -> Result<(), Failure> {
    let mut map = format!("0 {} {ID_COUNT}\n", request.id_base);
    if let JailKind::Warm { sandboxes_from, sandboxes_count } = request.kind {
        map.push_str(&format!("{sandboxes_from} {sandboxes_from} {sandboxes_count}\n"));
    }
    for file in ["uid_map", "gid_map"] {
        std::fs::write(format!("/proc/{pid}/{file}"), &map).map_err(Failure::at(file))?;
    }
    Ok(())
}

/// Starts a process in a user namespace with the ids of `request`, which mounts are mapped by. It ends with the returned descriptor.
pub(crate) fn hold_user_namespace(request: &BuildRequest) -> Result<(u32, OwnedFd), Failure> {
    let (lifeline, theirs) = pair().map_err(Failure::at("socketpair"))?;
    match sys::clone_child(CloneFlags::USER).map_err(Failure::at("clone"))? {
        Forked::Child => {
            drop(lifeline);
            let _ = receive_bytes(&theirs);
            sys::exit_now(0);
        }
        Forked::Parent { child } => {
            let pid = child_pid(&child)?;
            write_id_maps(pid, request)?;
            Ok((pid, lifeline))
        }
    }
}
