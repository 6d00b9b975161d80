//! Teams and their limits.

use std::time::Duration;

use sandcove_isolate::{Limits, Rates};
use uuid::Uuid;

/// Bytes of a megabit.
const BYTES_PER_MEGABIT: u64 = 125_000;

/// A team: the owner of sandboxes and templates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Team {
    /// The id.
    pub id: Uuid,
    /// Namespace of the team's template names.
    pub slug: String,
    /// Display name.
    pub name: String,
    /// Whether the server made this team at its first start.
    pub is_default: bool,
    /// Whether the team may act.
    pub standing: Standing,
    /// Sandboxes that the team may run at once.
    pub max_sandboxes: u32,
    /// Maximum length of a session of the team's sandboxes.
    pub max_session: Duration,
    /// Maximum resources of one sandbox, whatever its template asks for.
    pub caps: Caps,
    /// Days for which the team's events are kept.
    pub events_ttl_days: u32,
    /// Maximum of everything that the team keeps beside its running sandboxes.
    pub quota: Quota,
}

impl Team {
    /// The number of the account that the team's snapshots are charged to: the upper 48 bits of the id, which are random.
    pub fn account(&self) -> u64 {
        Self::account_of(self.id)
    }

    /// The account of the team with this id.
    pub fn account_of(id: Uuid) -> u64 {
        u64::try_from(id.as_u128() >> 80).unwrap_or_default()
    }

    /// Maximum disk of the team's snapshots and templates, bytes.
    pub fn max_kept_bytes(&self) -> u64 {
        self.quota.snapshots_mib.saturating_mul(1 << 20)
    }
}

/// Maximum resources of one sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Whole CPUs.
    pub cpus: u32,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// Disk, MiB; also the size of one volume.
    pub disk_mib: u64,
    /// Traffic with everything outside.
    pub rates: Rates,
}

impl Caps {
    /// Maximum of traffic in each direction, megabits per second; 0 if there is none.
    pub fn bandwidth_mbps(&self) -> u32 {
        u32::try_from(self.rates.bytes.unwrap_or_default() / BYTES_PER_MEGABIT).unwrap_or(u32::MAX)
    }

    /// The resources of a sandbox whose template asks for `limits`.
    pub fn applied(&self, limits: Limits) -> Limits {
        Limits {
            cpus: limits.cpus.min(self.cpus),
            memory_mib: limits.memory_mib.min(self.memory_mib),
            disk_mib: limits.disk_mib.min(self.disk_mib),
            ..limits
        }
    }
}

/// The limits on traffic of megabits and new connections per second; 0 is no limit.
pub fn rates(bandwidth_mbps: u32, connections: u32) -> Rates {
    let bytes = (bandwidth_mbps > 0).then_some(u64::from(bandwidth_mbps) * BYTES_PER_MEGABIT);
    Rates { bytes, connections: (connections > 0).then_some(connections) }
}

impl Default for Caps {
    fn default() -> Self {
        Self { cpus: 32, memory_mib: 256 << 10, disk_mib: 1 << 20, rates: Rates::default() }
    }
}

/// Maximum of everything that a team keeps beside its running sandboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Paused sandboxes.
    pub paused: u32,
    /// Paused sandboxes that keep their memory.
    pub in_memory: u32,
    /// Memory of paused sandboxes together, MiB.
    pub memory_mib: u64,
    /// Memory of paused sandboxes on disk together, MiB.
    pub parked_mib: u64,
    /// Snapshots; each tag counts.
    pub snapshots: u32,
    /// Disk of snapshots, and of the sandboxes they were taken of, together, MiB.
    pub snapshots_mib: u64,
    /// Volumes, mounted or not.
    pub volumes: u32,
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            paused: 1000,
            in_memory: 1000,
            memory_mib: 256 << 10,
            parked_mib: 1 << 20,
            snapshots: 1000,
            snapshots_mib: 1 << 20,
            volumes: 1000,
        }
    }
}

/// Whether a team may act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// The team may act.
    Good,
    /// The team may only read and clean up, for this reason.
    Blocked(String),
    /// Every request of the team is refused.
    Banned,
}
