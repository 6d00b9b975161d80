//! What a warm process may ask of the kernel beyond a sandbox; a fork loses it when it has entered its sandbox.

use super::profile::{Condition, Rule, call};

/// Namespaces that a warm process enters, as one call takes them: the PID namespace before it forks, then the network and the
/// user namespace, then what a pidfd stands for.
const ENTERED: &[u32] = &[
    libc::CLONE_NEWPID as u32,
    libc::CLONE_NEWNET as u32,
    libc::CLONE_NEWUSER as u32,
    (libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | libc::CLONE_NEWCGROUP) as u32,
];

/// The call that a warm process needs to enter a sandbox.
pub(super) const ENTERING: &[Rule] = &[Rule {
    reason: "a fork enters the namespaces of its sandbox",
    call: call!(SYS_setns),
    when: &[Condition::OneOf(1, ENTERED)],
}];
