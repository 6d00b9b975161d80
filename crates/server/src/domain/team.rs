//! Teams and their limits.

use std::time::Duration;

use sandcove_isolate::Limits;
use uuid::Uuid;

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
}

impl Caps {
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

impl Default for Caps {
    fn default() -> Self {
        Self { cpus: 32, memory_mib: 256 << 10, disk_mib: 1 << 20 }
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
