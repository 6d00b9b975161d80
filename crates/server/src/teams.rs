//! Teams and what they may do.

use std::time::Duration;

use sandcove_isolate::Limits;
use uuid::Uuid;

/// A team: the owner of sandboxes and templates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Team {
    /// Its id.
    pub id: Uuid,
    /// Namespace of its template names.
    pub slug: String,
    /// Display name.
    pub name: String,
    /// Whether it is the one made at the first start.
    pub is_default: bool,
    /// Whether it may act.
    pub standing: Standing,
    /// Sandboxes it may run at once.
    pub max_sandboxes: u32,
    /// Longest session of its sandboxes.
    pub max_session: Duration,
    /// The most one of its sandboxes gets, whatever its template asks for.
    pub caps: Caps,
    /// Days that its events are kept.
    pub events_ttl_days: u32,
}

/// The most one sandbox gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Whole CPUs.
    pub cpus: u32,
    /// MiB.
    pub memory_mib: u64,
    /// MiB; also the size of one volume.
    pub disk_mib: u64,
}

impl Caps {
    /// What a sandbox gets whose template asks for `limits`.
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
    /// It may.
    Good,
    /// It may look and clean up, for this reason.
    Blocked(String),
    /// It may nothing.
    Banned,
}
