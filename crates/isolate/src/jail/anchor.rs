//! The anchor: the first process of a warm process's user and PID namespaces. It does nothing but exist.
//!
//! The PID namespaces of sandboxes that get forks of a warm process are made in that of the warm process, because the kernel
//! lets a process enter only PID namespaces below its own. The kernel ends every process of a PID namespace with the first
//! one. So the first one is not the warm process, which runs code of the template and may die at any time, but this process
//! of ours. It ends after the warm process and the last of its sandboxes.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{DumpableBehavior, WaitOptions, set_dumpable_behavior, wait};

use super::clone::{Parent, child_pid, take_identity, write_id_maps};
use super::counters;
use super::handover::{BuildRequest, Failure};
use crate::packet::pair;
use crate::sys::{self, CloneFlags, Forked};

/// Starts an anchor for the warm process of `request`, and returns its namespaces and a lifeline: while the lifeline is open, the
/// anchor waits for its first child.
pub(super) fn start(request: &BuildRequest) -> Result<(Parent, OwnedFd), Failure> {
    let (lifeline, theirs) = pair().map_err(Failure::at("socketpair"))?;
    let may_raise = counters::may_raise().map_err(Failure::at("read rights"))?;
    let raised =
        counters::before_clone(request.kind, may_raise).map_err(Failure::at("set the namespace's limits"))?;
    take_identity(request.id_base)?;
    let child = match sys::clone_child(CloneFlags::ANCHOR).map_err(Failure::at("clone the anchor"))? {
        Forked::Child => {
            hold(theirs);
            sys::exit_now(0);
        }
        Forked::Parent { child } => child,
    };
    sys::set_effective_ids(0).map_err(Failure::at("take back the identity"))?;
    raised.restore().map_err(Failure::at("restore limits"))?;
    let pid = child_pid(&child)?;
    write_id_maps(pid, request)?;
    let namespace = |name: &str| {
        open(format!("/proc/{pid}/ns/{name}"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(Failure::at("open the anchor's namespaces"))
    };
    Ok((Parent { users: namespace("user")?, processes: namespace("pid")? }, lifeline))
}

/// Waits until the lifeline is closed, and then until no child is left. Children are not collected one by one: the kernel
/// reaps them, as for the spawner.
fn hold(lifeline: OwnedFd) {
    // Nothing of the server's stays open here, and nobody in the namespaces may look into this process.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    if sys::place_fds(vec![lifeline]).and_then(|()| sys::close_from(1)).is_err() {
        return;
    }
    while matches!(rustix::io::read(rustix::stdio::stdin(), &mut [0]), Ok(1..) | Err(rustix::io::Errno::INTR))
    {
    }
    while !matches!(wait(WaitOptions::empty()), Err(rustix::io::Errno::CHILD)) {}
}
