//! What a sandbox is made from, and what is known about a running one.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use sandcove_wire::boot::{Boot, Settings};
use sandcove_wire::id::SandboxId;
use serde::{Deserialize, Serialize};

/// Everything needed to start a sandbox.
#[derive(Debug, Clone)]
pub struct SandboxSpec {
    /// Its id; every host resource is named after it.
    pub id: SandboxId,
    /// What it is made from.
    pub blueprint: Blueprint,
    /// What it finds on top of the layers.
    pub files: Files,
    /// Volumes it sees.
    pub mounts: Vec<Mount>,
    /// What it may reach.
    pub network: NetworkPolicy,
    /// What its agent is told when it becomes this sandbox.
    pub settings: Settings,
}

/// What sandboxes have in common that may be made ahead, before anybody asks for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blueprint {
    /// Read-only template layers, topmost first.
    pub layers: Vec<PathBuf>,
    /// Resource limits.
    pub limits: Limits,
    /// What the agent is told at boot.
    pub boot: Boot,
}

/// Where the files that a sandbox finds on top of its layers come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Files {
    /// There are none.
    Empty,
    /// From a snapshot, of which it gets a copy of its own.
    Snapshot(String),
    /// It wrote them itself, before it was shut down. They stay when it cannot be started.
    Own,
}

/// What a server knows, and a sweep must not remove.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// Sandboxes with processes, running or frozen.
    pub live: HashSet<SandboxId>,
    /// Sandboxes of which only files are kept.
    pub stored: HashSet<SandboxId>,
    /// Snapshots, by name.
    pub snapshots: HashSet<String>,
}

/// What a sweep removed from the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Names of the leftovers that were removed: sandboxes, snapshots, slots, interfaces.
    pub removed: Vec<String>,
    /// Names of the leftovers that could not be removed. The next sweep tries them again.
    pub failed: Vec<String>,
}

impl Blueprint {
    /// Whether sandboxes get a fork of a warm interpreter.
    pub fn wants_warm(&self) -> bool {
        self.boot.services.iter().any(|service| service.zygote)
    }
}

/// A volume and where a sandbox sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Name of the volume, as it was created with.
    pub volume: String,
    /// Absolute path inside; made when it is not there.
    pub path: String,
}

/// Resource limits of one sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory, MiB.
    pub memory_mib: u64,
    /// Whole CPUs.
    pub cpus: u32,
    /// Processes and threads.
    pub pids: u32,
    /// Space on the pool for everything the sandbox writes, MiB.
    pub disk_mib: u64,
}

/// What a sandbox may reach (contract: control-plane, section 6.3). Private, link-local and host addresses are never
/// reachable, whatever the policy says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkPolicy {
    /// No traffic out at all but what `allow_out` names.
    pub deny_all: bool,
    /// Networks (CIDR or address) that may be reached although denied.
    pub allow_out: Vec<String>,
    /// Networks (CIDR or address) that may not be reached.
    pub deny_out: Vec<String>,
    /// Hosts that may be reached over TLS or plain HTTP although denied, in small letters: `name`, `*.name` for all below
    /// it, `*` for every one.
    #[serde(default)]
    pub allow_names: Vec<String>,
    /// With such names: the name servers it asks, which it may reach whatever is denied. The server's own when `None`.
    #[serde(default)]
    pub dns: Option<Vec<Ipv4Addr>>,
}

/// What a restarted server needs to find a running sandbox again; written to `run/<id>/jail.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The sandbox.
    pub id: SandboxId,
    /// Its slot.
    pub slot: u32,
    /// Host pid of its PID 1.
    pub pid: u32,
    /// Start time of that pid in clock ticks since boot, so that a reused pid is not mistaken for it.
    pub start_ticks: u64,
    /// Its limits.
    pub limits: Limits,
    /// Its network policy.
    pub network: NetworkPolicy,
}

/// Why a sandbox ended by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExitReason {
    /// PID 1 is gone; its wait status is not known to a server that did not start it.
    Gone,
}

/// A reading of a sandbox's resources.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// CPU time since start, microseconds.
    pub cpu_us: u64,
    /// Memory charged, bytes.
    pub memory_bytes: u64,
    /// Of that, page cache, bytes.
    pub cache_bytes: u64,
    /// Disk written to the pool and still held, bytes.
    pub disk_bytes: u64,
}
