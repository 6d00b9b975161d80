//! The birth of a jail's first process: in which user namespace, with which namespaces of its own, and its id maps.

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
pub(super) fn give(
    request: &BuildRequest,
    parent: Option<OwnedFd>,
    ours: OwnedFd,
    theirs: OwnedFd,
) -> Result<(u32, OwnedFd), Failure> {
    let may_lift = counters::may_lift().map_err(Failure::at("read rights"))?;
    let Some(parent) = parent else {
        return clone(request, may_lift, ours, theirs);
    };
    let (report, their_report) = pair().map_err(Failure::at("socketpair"))?;
    match sys::fork().map_err(Failure::at("fork"))? {
        Forked::Child => {
            drop(report);
            let outcome =
                enter(&parent).and_then(|()| clone(request, may_lift, ours, theirs)).map(|(pid, _)| pid);
            let _ = send(&their_report, &outcome, &[]);
            sys::exit_now(0);
        }
        Forked::Parent { .. } => {}
    }
    drop((their_report, theirs));
    let outcome = receive::<Report>(&report).map_err(Failure::at("wait for birth"))?;
    let (pid, _) = outcome
        .ok_or_else(|| Failure { step: "birth".into(), reason: "the intermediate process died".into() })?;
    Ok((pid?, ours))
}

fn enter(parent: &OwnedFd) -> Result<(), Failure> {
    move_into_link_name_space(parent.as_fd(), Some(LinkNameSpaceType::User))
        .map_err(Failure::at("enter the parent user namespace"))?;
    // Its root, so that it owns the namespaces it makes; and still the owner of its children's /proc files, which a
    // change of identity would otherwise take away.
    sys::become_root().map_err(Failure::at("become the parent's root"))?;
    set_dumpable_behavior(DumpableBehavior::Dumpable).map_err(Failure::at("stay visible"))
}

fn clone(
    request: &BuildRequest,
    may_lift: bool,
    ours: OwnedFd,
    theirs: OwnedFd,
) -> Result<(u32, OwnedFd), Failure> {
    let flags = match request.kind {
        JailKind::Sandbox => CloneFlags::SANDBOX,
        JailKind::Warm { .. } => CloneFlags::WARM,
    };
    let lifted =
        counters::before_birth(request.kind, may_lift).map_err(Failure::at("set the namespace's limits"))?;
    // Who makes a user namespace is charged for what is used in it. So that no sandbox uses up what belongs to the host's
    // root, each is made, and owned, by the first id of its own range.
    super::capabilities::keep_rights().map_err(Failure::at("keep rights"))?;
    sys::set_effective_user(request.id_base).map_err(Failure::at("take the sandbox's identity"))?;
    set_dumpable_behavior(DumpableBehavior::Dumpable).map_err(Failure::at("stay visible"))?;
    let pid = match sys::clone_child(flags).map_err(Failure::at("clone"))? {
        Forked::Child => {
            drop(ours);
            super::init::run(&theirs, lifted);
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
