//! Limits of resources that the kernel counts per user and not per control group: queued signals, message queues, inotify.
//!
//! The kernel charges the user inside, then the owner of that user namespace in the namespace above, and so on up to
//! the host. Each sandbox's namespace has an owner of its own, so sandboxes directly below the host share no count.
//! Sandboxes of a warm process share the count of its owner on the host: that count must have room for all of them, and
//! each sandbox needs a limit one level below, in the warm process's namespace.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use super::handover::JailKind;

/// Maxima of a sandbox, and the files in which a user namespace keeps them for each of its users.
const INOTIFY: [(&str, u32); 2] = [
    ("/proc/sys/user/max_inotify_instances", INOTIFY_INSTANCES),
    ("/proc/sys/user/max_inotify_watches", INOTIFY_WATCHES),
];
/// Maximum number of inotify instances of a sandbox; eight times the kernel's default for a user.
pub(crate) const INOTIFY_INSTANCES: u32 = 1024;
/// Maximum number of inotify watches of a sandbox.
pub(crate) const INOTIFY_WATCHES: u32 = 131_072;

/// Resource limits that a new user namespace takes over as limits for all of its users together.
const COUNTED: [Resource; 4] = [Resource::Nproc, Resource::Sigpending, Resource::Msgqueue, Resource::Memlock];
/// Limits of a sandbox, and its share of the host's limit (one in so many) where that cannot be raised.
const SHARES: [(Resource, u64, u64); 2] =
    [(Resource::Sigpending, 16_384, 64), (Resource::Msgqueue, 819_200, 4)];

/// Limits of this process that were raised for a clone.
pub(super) struct RaisedLimits(Vec<(Resource, Rlimit)>);

/// Whether this process may raise limits. Call this before it enters another user namespace.
pub(super) fn may_raise() -> io::Result<bool> {
    Ok(capabilities(None)?.effective.contains(CapabilitySet::SYS_RESOURCE))
}

/// Sets the limits that the next user namespace takes over. That of a warm process gets none, because each sandbox below it
/// has its own.
pub(super) fn before_clone(kind: JailKind, may_raise: bool) -> io::Result<RaisedLimits> {
    let mut raised = Vec::new();
    match kind {
        JailKind::Sandbox => {
            for (resource, maximum, part) in SHARES {
                let now = getrlimit(resource);
                let share = now.maximum.map_or(maximum, |all| {
                    if may_raise { maximum.min(all) } else { maximum.min(all / part) }
                });
                setrlimit(resource, Rlimit { current: Some(share), maximum: Some(share) })?;
            }
        }
        JailKind::Warm { .. } if may_raise => {
            for resource in COUNTED {
                raised.push((resource, getrlimit(resource)));
                setrlimit(resource, Rlimit { current: None, maximum: None })?;
            }
        }
        JailKind::Warm { .. } => {}
    }
    Ok(RaisedLimits(raised))
}

impl RaisedLimits {
    /// Restores the limits of this process; the namespace keeps those it was created with.
    pub(super) fn restore(self) -> io::Result<()> {
        self.0.into_iter().try_for_each(|(resource, limit)| setrlimit(resource, limit).map_err(Into::into))
    }
}

/// Limits the inotify use of each user of the calling process's user namespace. In that of a warm process, each sandbox
/// is one user.
pub(super) fn limit_inotify() -> io::Result<()> {
    for (path, maximum) in INOTIFY {
        match std::fs::write(path, maximum.to_string()) {
            // The kernel has no inotify.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}
