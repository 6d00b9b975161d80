//! What the kernel counts for users and not for control groups: queued signals, message queues, inotify.
//!
//! A thing is counted for the user inside, then for the owner of that user namespace in the one above, and so on up to the
//! host. Each sandbox's namespace has an owner of its own, so sandboxes that are born directly below the host share nothing.
//! Those of a warm process meet in the count of its owner on the host: there must be room for all of them there, and each
//! needs a limit one level below, in the warm process's namespace.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use super::handover::JailKind;

/// The most a sandbox may have, and where a user namespace keeps that for each user in it.
const INOTIFY: [(&str, u32); 2] = [
    ("/proc/sys/user/max_inotify_instances", INOTIFY_INSTANCES),
    ("/proc/sys/user/max_inotify_watches", INOTIFY_WATCHES),
];
/// Inotify instances of a sandbox; eight times what the kernel gives a desktop's user.
pub(crate) const INOTIFY_INSTANCES: u32 = 1024;
/// Inotify watches of a sandbox.
pub(crate) const INOTIFY_WATCHES: u32 = 131_072;

/// Resource limits that a new user namespace makes its own limits for all of its users together.
const COUNTED: [Resource; 4] = [Resource::Nproc, Resource::Sigpending, Resource::Msgqueue, Resource::Memlock];
/// What a sandbox gets of some of them, and its part of what there is where that cannot be lifted for all.
const SHARES: [(Resource, u64, u64); 2] =
    [(Resource::Sigpending, 16_384, 64), (Resource::Msgqueue, 819_200, 4)];

/// The limits of this process from before a birth.
pub(super) struct Lifted(Vec<(Resource, Rlimit)>);

/// Whether this process may lift limits. To be asked before it enters another user namespace.
pub(super) fn may_lift() -> io::Result<bool> {
    Ok(capabilities(None)?.effective.contains(CapabilitySet::SYS_RESOURCE))
}

/// Sets the limits that the user namespace about to be made takes over: none for a warm process, below which each sandbox
/// has its own.
pub(super) fn before_birth(kind: JailKind, may_lift: bool) -> io::Result<Lifted> {
    let mut lifted = Vec::new();
    match kind {
        JailKind::Sandbox => {
            for (resource, most, part) in SHARES {
                let now = getrlimit(resource);
                let share = now
                    .maximum
                    .map_or(most, |all| if may_lift { most.min(all) } else { most.min(all / part) });
                setrlimit(resource, Rlimit { current: Some(share), maximum: Some(share) })?;
            }
        }
        JailKind::Warm { .. } if may_lift => {
            for resource in COUNTED {
                lifted.push((resource, getrlimit(resource)));
                setrlimit(resource, Rlimit { current: None, maximum: None })?;
            }
        }
        JailKind::Warm { .. } => {}
    }
    Ok(Lifted(lifted))
}

impl Lifted {
    /// Gives this process its limits back; the namespace keeps those it was born with.
    pub(super) fn put_back(self) -> io::Result<()> {
        self.0.into_iter().try_for_each(|(resource, limit)| setrlimit(resource, limit).map_err(Into::into))
    }
}

/// Limits what each user of the calling process's user namespace may have; in that of a warm process, each sandbox is one.
pub(super) fn limit_inotify() -> io::Result<()> {
    for (path, most) in INOTIFY {
        match std::fs::write(path, most.to_string()) {
            // A kernel without inotify.
            Err(error) if error.kind() == io::ErrorJailKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}
