//! Cloning the first process of a jail: its user namespace, its other namespaces, and its id maps.

use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::counters;
use super::handover::{BuildRequest, Failure, ID_COUNT, JailKind};
use crate::packet::{pair, receive, send};
use crate::sys::{self, CloneFlags, Forked};

/// Report of the intermediate process to the builder: the host pid of the first process.
type Report = Result<u32, Failure>;

/// Clones the future first process, which waits on `theirs`, and returns its host pid. With `parent`, the new user
/// namespace is made inside that one, by an intermediate process: a process cannot come back from a user namespace.
pub(super) fn clone_first(
    request: &BuildRequest,
    parent: Option<OwnedFd>,
    ours: OwnedFd,
    theirs: OwnedFd,
) -> Result<(u32, OwnedFd), Failure> {
    let may_raise = counters::may_raise().map_err(Failure::at("read rights"))?;
    let Some(parent) = parent else {
        return clone(request, may_raise, ours, theirs);
    };
    let (report, their_report) = pair().map_err(Failure::at("socketpair"))?;
    match sys::fork().map_err(Failure::at("fork"))? {
        Forked::Child => {
            drop(report);
            let outcome =
                enter(&parent).and_then(|()| clone(request, may_raise, ours, theirs)).map(|(pid, _)| pid);
            let _ = send(&their_report, &outcome, &[]);
            sys::exit_now(0);
        }
        Forked::Parent { .. } => {}
    }
    drop((their_report, theirs));
    let outcome = receive::<Report>(&report).map_err(Failure::at("wait for the clone"))?;
    let (pid, _) = outcome
        .ok_or_else(|| Failure { step: "clone".into(), reason: "the intermediate process died".into() })?;
    Ok((pid?, ours))
}

/// Enters the user namespace of a warm process.
fn enter(parent: &OwnedFd) -> Result<(), Failure> {
    move_into_link_name_space(parent.as_fd(), Some(LinkNameSpaceType::User))
        .map_err(Failure::at("enter the parent user namespace"))?;
    // As root of this user namespace the process owns the namespaces it creates. The change of identity would make it lose
    // its children's /proc files, so it is made dumpable again.
    sys::become_root().map_err(Failure::at("become the parent's root"))?;
    set_dumpable_behavior(DumpableBehavior::Dumpable).map_err(Failure::at("stay visible"))
}

/// Clones the first process and writes its id maps.
fn clone(
    request: &BuildRequest,
    may_raise: bool,
    ours: OwnedFd,
    theirs: OwnedFd,
) -> Result<(u32, OwnedFd), Failure> {
    let flags = match request.kind {
        JailKind::Sandbox => CloneFlags::SANDBOX,
        JailKind::Warm { .. } => CloneFlags::WARM,
    };
    let raised =
        counters::before_clone(request.kind, may_raise).map_err(Failure::at("set the namespace's limits"))?;
    // The kernel charges the creator of a user namespace for its use. Each one is created, and owned, by the first id
    // of its own range, so that no sandbox uses up the limits of the host's root.
    super::capabilities::keep_rights().map_err(Failure::at("keep rights"))?;
    sys::set_effective_user(request.id_base).map_err(Failure::at("take the sandbox's identity"))?;
    set_dumpable_behavior(DumpableBehavior::Dumpable).map_err(Failure::at("stay visible"))?;
    let pid = match sys::clone_child(flags).map_err(Failure::at("clone"))? {
        Forked::Child => {
            drop(ours);
            super::init::run(&theirs, raised);
        }
        Forked::Parent { pid } => pid,
    };
    sys::set_effective_user(0).map_err(Failure::at("take back the identity"))?;
    let mut map = format!("0 {} {ID_COUNT}\n", request.id_base);
    if let JailKind::Warm { sandboxes_from, sandboxes_count } = request.kind {
        map.push_str(&format!("{sandboxes_from} {sandboxes_from} {sandboxes_count}\n"));
    }
    for file in ["uid_map", "gid_map"] {
        std::fs::write(format!("/proc/{pid}/{file}"), &map).map_err(Failure::at(file))?;
    }
    Ok((pid, ours))
}
