//! Capabilities of root inside a jail, and the file identity of the process that mounts the overlay.

use std::io;

use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, remove_capability_from_bounding_set,
    set_capabilities, set_capabilities_secure_bits,
};

use super::handover::JailKind;

/// Capabilities of root inside, with the reason for each; they apply within the sandbox's own namespaces. All others
/// are left out: no mounts, namespaces or devices (`SYS_ADMIN`), no packet filters or routes (`NET_ADMIN`), no modules,
/// raw I/O, clock, reboot, kernel log, BPF, performance counters or higher limits.
const KEPT: [(CapabilitySet, &str); 16] = [
    (CapabilitySet::CHOWN, "package managers and sudo change owners"),
    (CapabilitySet::DAC_OVERRIDE, "root reads and writes any file of the sandbox"),
    (CapabilitySet::DAC_READ_SEARCH, "root lists any directory of the sandbox"),
    (CapabilitySet::FOWNER, "root changes modes of any file of the sandbox"),
    (CapabilitySet::FSETID, "set-id bits survive a write by root"),
    (CapabilitySet::KILL, "root signals any process of the sandbox"),
    (CapabilitySet::SETGID, "sudo and su change group"),
    (CapabilitySet::SETUID, "sudo and su change user"),
    (CapabilitySet::SETPCAP, "services drop rights of their own"),
    // Without these two, programs whose files carry them do not start. Over the network, which belongs to the namespace above,
    // they give no rights.
    (CapabilitySet::NET_BIND_SERVICE, "carried by the files of servers"),
    (CapabilitySet::NET_RAW, "carried by the file of ping"),
    (CapabilitySet::SYS_CHROOT, "chroot, used by package scripts"),
    (CapabilitySet::SYS_PTRACE, "debuggers; limited to processes of the sandbox"),
    (CapabilitySet::SYS_NICE, "carried by the files of databases; gives affinity of processes inside only"),
    (CapabilitySet::AUDIT_WRITE, "sudo and su write audit records"),
    (CapabilitySet::SETFCAP, "packages set file capabilities, valid inside only"),
];

fn kept() -> CapabilitySet {
    KEPT.iter().fold(CapabilitySet::empty(), |all, (one, _)| all | *one)
}

fn kept_by(kind: JailKind) -> CapabilitySet {
    match kind {
        JailKind::Sandbox => kept(),
        // To enter the namespaces of its sandboxes, and nothing else. Above all not to change its identity or to trace: the ids
        // of its sandboxes, and their first processes before they are locked, are within reach of those rights.
        JailKind::Warm { .. } => CapabilitySet::SYS_ADMIN,
    }
}

/// Bit mask of the capabilities kept inside.
pub(crate) fn kept_mask() -> u64 {
    kept().bits()
}

/// Removes all other capabilities from the bounding set. The process itself keeps them until the program is executed,
/// so that it can finish its set-up.
pub(super) fn limit_bounding_set(kind: JailKind) -> io::Result<()> {
    limit_to(kept_by(kind))
}

/// Removes every capability from the bounding set.
pub(crate) fn drop_bounding_set() -> io::Result<()> {
    limit_to(CapabilitySet::empty())
}

fn limit_to(kept: CapabilitySet) -> io::Result<()> {
    for index in 0..64 {
        let Some(one) = CapabilitySet::from_bits(1 << index) else { continue };
        if kept.contains(one) {
            continue;
        }
        match remove_capability_from_bounding_set(one) {
            // EINVAL: this kernel has no capability with this number.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Drops the same capabilities in the calling process.
pub(super) fn drop_rights(kind: JailKind) -> io::Result<()> {
    let kept = kept_by(kind);
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(Into::into)
}

/// Keeps the capabilities of this process over changes of identity. A new user namespace starts without this setting.
pub(super) fn keep_rights() -> io::Result<()> {
    set_capabilities_secure_bits(CapabilitiesSecureBits::NO_SETUID_FIXUP).map_err(Into::into)
}

/// Lets new files of this process belong to `id` on the host, without dropping capabilities.
pub(super) fn own_files_as(id: u32) -> io::Result<()> {
    keep_rights()?;
    crate::sys::set_file_identity(Uid::from_raw(id), Gid::from_raw(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_reaches_beyond_the_sandbox_is_kept() {
        for one in [
            CapabilitySet::SYS_ADMIN,
            CapabilitySet::NET_ADMIN,
            CapabilitySet::SYS_MODULE,
            CapabilitySet::SYS_RAWIO,
            CapabilitySet::SYS_BOOT,
            CapabilitySet::SYS_TIME,
            CapabilitySet::SYS_RESOURCE,
            CapabilitySet::BPF,
            CapabilitySet::PERFMON,
            CapabilitySet::MKNOD,
        ] {
            assert!(!kept().intersects(one), "{one:?}");
        }
    }
}
