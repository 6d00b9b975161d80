//! Descriptions of sandboxes: the specification of a new one, the record and the usage of a running one.

use std::collections::{BTreeMap, HashSet};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use sandcove_egress::{HostRule, Identity, SealedSecret, Upstream};
use sandcove_wire::boot::{Boot, ENV_WARM_SOURCES, Service, Settings, WARM_SOURCES};
use sandcove_wire::id::SandboxId;
use serde::{Deserialize, Serialize};

/// Specification of a sandbox to start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// Id of the sandbox; every host resource is named after it.
    pub id: SandboxId,
    /// Template, limits and boot message.
    pub blueprint: Blueprint,
    /// Files on top of the layers.
    pub files: Files,
    /// Whether the processes are restored from the memory that was stored with the files: when the sandbox was parked ([`Files::Own`]), or
    /// with the snapshot ([`Files::Snapshot`]).
    #[serde(default)]
    pub memory: bool,
    /// Volumes to mount.
    pub mounts: Vec<Mount>,
    /// Network policy.
    pub network: NetworkPolicy,
    /// Settings that the agent gets with the id.
    pub settings: Settings,
}

/// The part of a specification that pooled sandboxes share: it does not depend on the client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blueprint {
    /// Read-only template layers, topmost first.
    pub layers: Vec<PathBuf>,
    /// Resource limits.
    pub limits: Limits,
    /// Message that the agent gets at boot.
    pub boot: Boot,
    /// Name of a snapshot with memory that sandboxes without files of their own continue from, if it can be restored; otherwise they boot.
    #[serde(default)]
    pub started: Option<String>,
}

/// Origin of the files on top of a sandbox's layers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Files {
    /// No files.
    Empty,
    /// A copy of the snapshot with this name.
    Snapshot(String),
    /// The files that the sandbox had when it was shut down. They are kept when a start fails.
    Own,
}

/// Mounts of processes, which a restore of their memory has to find again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mounted {
    /// Layers of the template, topmost first.
    pub layers: Vec<PathBuf>,
    /// Volumes, with their paths inside.
    pub volumes: Vec<Mount>,
}

/// Report of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotReport {
    /// Time for which the processes were frozen.
    pub frozen: Duration,
    /// Outcome for their memory.
    pub memory: SnapshotMemory,
}

/// The memory of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SnapshotMemory {
    /// Only the files were to be kept.
    NotWanted,
    /// The memory is on disk.
    Stored {
        /// Size, bytes.
        bytes: u64,
    },
    /// The memory cannot be stored, and only the files are kept.
    Refused {
        /// Name of what is in the way.
        reason: String,
    },
}

/// A part of a start that has ended, for traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartPhase {
    /// The part of the start.
    pub kind: StartPhaseKind,
    /// Begin of the part, by the clock of the host.
    pub began: SystemTime,
    /// Time that the part took.
    pub took: Duration,
}

/// Parts of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartPhaseKind {
    /// Creating a sandbox, if the pool has none.
    Prepare,
    /// Assigning id, token and variables.
    Assign {
        /// Whether the sandbox is one of the pool.
        pooled: bool,
    },
}

impl StartPhase {
    /// Does `work` and notes its duration in `phases`.
    pub(crate) async fn timed<T>(
        phases: &mut Vec<Self>,
        kind: StartPhaseKind,
        work: impl Future<Output = T>,
    ) -> T {
        let (began, since) = (SystemTime::now(), Instant::now());
        let done = work.await;
        phases.push(Self { kind, began, took: since.elapsed() });
        done
    }
}

/// Sandboxes and snapshots that a server knows and a sweep must not remove.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Known {
    /// Sandboxes with processes, running or frozen.
    pub live: HashSet<SandboxId>,
    /// Sandboxes of which only files are kept.
    pub stored: HashSet<SandboxId>,
    /// Sandboxes whose memory is kept on disk; they are among the stored ones.
    #[serde(default)]
    pub parked: HashSet<SandboxId>,
    /// Snapshots, by name.
    pub snapshots: HashSet<String>,
}

/// Report of a sweep: the leftovers on the host that were removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepReport {
    /// Names of the leftovers that were removed: sandboxes, snapshots, slots, interfaces.
    pub removed: Vec<String>,
    /// Names of the leftovers that could not be removed. The next sweep tries them again.
    pub failed: Vec<String>,
}

impl Blueprint {
    /// Whether sandboxes get a fork of a warm process, as those with a code interpreter do.
    pub fn wants_warm(&self) -> bool {
        self.warm_service().is_some()
    }

    /// The service that takes the socket to that fork: the code interpreter.
    pub(crate) fn warm_service(&self) -> Option<&Service> {
        self.boot.services.iter().find(|service| service.zygote)
    }

    /// Directories that the warm interpreter loads code from, without a leading slash.
    pub(crate) fn warm_sources(&self) -> Vec<&str> {
        match self.warm_service().and_then(|service| service.env.get(ENV_WARM_SOURCES)) {
            Some(sources) => sources.split(':').filter(|source| !source.is_empty()).collect(),
            None => WARM_SOURCES.to_vec(),
        }
    }
}

/// A volume and its mount point in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Name that the volume was created with.
    pub volume: String,
    /// Absolute path inside; created when it is missing.
    pub path: String,
}

/// Resource limits of one sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Maximum memory, MiB.
    pub memory_mib: u64,
    /// Number of CPUs.
    pub cpus: u32,
    /// Maximum number of processes and threads.
    pub pids: u32,
    /// Maximum space on the pool for everything the sandbox writes, MiB.
    pub disk_mib: u64,
}

impl Limits {
    /// How many times the memory of a sandbox its processes may have together: each is stored with what it shares with others.
    const SHARED: u64 = 4;

    /// Maximum size of the memory of a sandbox on disk, bytes: processes may share memory, and have open what they have deleted.
    pub fn max_stored_bytes(&self) -> u64 {
        match self.memory_mib {
            0 => u64::MAX,
            memory_mib => {
                Self::SHARED.saturating_mul(memory_mib).saturating_add(self.disk_mib).saturating_mul(1 << 20)
            }
        }
    }
}

/// Network policy of a sandbox (contract: control-plane, section 6.3). Private, link-local and host addresses are
/// unreachable under any policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkPolicy {
    /// Whether all outgoing traffic is denied except what is allowed below.
    pub deny_all: bool,
    /// Networks (CIDR or address) that are allowed although denied otherwise.
    pub allow_out: Vec<String>,
    /// Networks (CIDR or address) that are denied.
    pub deny_out: Vec<String>,
    /// Host names that are allowed over TLS and plain HTTP although denied otherwise, in lowercase: `name`, `*.name` for its
    /// subdomains, `*` for all.
    #[serde(default)]
    pub allow_names: Vec<String>,
    /// Name servers for a policy with host names; they are always reachable. `None` stands for the server's own.
    #[serde(default)]
    pub dns: Option<Vec<Ipv4Addr>>,
    /// Hosts whose requests get headers, if the sandbox may reach them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostRule>,
    /// Secrets that these headers name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, SealedSecret>,
    /// Identity of the sandbox, whose tokens these headers name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Box<Identity>>,
    /// Proxy of the user's that all TCP goes through, as far as it is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Box<Upstream>>,
    /// Limits on the traffic of the sandbox.
    #[serde(default, skip_serializing_if = "Rates::is_unlimited")]
    pub rates: Rates,
}

/// Limits on the traffic of one sandbox with everything outside of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rates {
    /// Bytes per second in each direction.
    pub bytes: Option<u64>,
    /// New connections per second.
    pub connections: Option<u32>,
}

impl NetworkPolicy {
    /// Whether all outgoing traffic is denied, and there is nothing else to it.
    pub fn is_closed(&self) -> bool {
        *self == Self { deny_all: true, ..Self::default() }
    }
}

impl Rates {
    /// Whether there is no limit.
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }
}

/// Record of a running sandbox, by which a restarted server adopts it; written to `run/<id>/jail.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Id of the sandbox.
    pub id: SandboxId,
    /// Slot of the sandbox.
    pub slot: u32,
    /// Host pid of PID 1.
    pub pid: u32,
    /// Start time of that pid in clock ticks since boot, so that a reused pid is not mistaken for it.
    pub start_ticks: u64,
    /// Resource limits.
    pub limits: Limits,
    /// Network policy.
    pub network: NetworkPolicy,
    /// Whether the policy is that of the link's group, and the firewall has no rules of its own for the sandbox.
    #[serde(default)]
    pub closed_link: bool,
    /// Version of the guest programs that its processes have; empty in records of servers that did not note it.
    #[serde(default)]
    pub programs: String,
}

impl Record {
    /// Whether the firewall has rules of its own for the sandbox.
    pub(crate) fn has_rules(&self) -> bool {
        !self.closed_link && self.network != NetworkPolicy::default()
    }
}

/// Reason why a sandbox ended by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExitReason {
    /// PID 1 has ended. Its wait status is unknown to a server that did not start it.
    Gone,
}

/// A sample of a sandbox's resource usage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time since start, microseconds.
    pub cpu_us: u64,
    /// Memory charged to the sandbox, bytes.
    pub memory_bytes: u64,
    /// Page cache among the charged memory, without files in memory (`/dev/shm`), bytes.
    pub cache_bytes: u64,
    /// Disk space used on the pool, bytes.
    pub disk_bytes: u64,
}

/// The pooled sandboxes of one template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolState {
    /// Id of the template.
    pub template: String,
    /// Number of sandboxes that are ready.
    pub ready: usize,
    /// Number of sandboxes to keep, if there is memory for them.
    pub wanted: usize,
    /// Memory that they take, bytes.
    pub memory_bytes: u64,
    /// Age of the oldest.
    pub oldest: Option<Duration>,
    /// Starts that found one since the server started.
    pub hits: u64,
    /// Starts that found none.
    pub misses: u64,
}

/// Numbers for what is kept ready for sandboxes of a team's template: pooled sandboxes without demand, and a maximum of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Few {
    /// Number of pooled sandboxes; more if there is demand.
    pub sandboxes: usize,
    /// Memory of the warm interpreter, MiB; 0 for none.
    pub warm_mib: u64,
}

/// State of a warm process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WarmState {
    /// The process imports modules.
    Starting,
    /// The process can be forked.
    Ready {
        /// Memory that the process uses, MiB. Its sandboxes share it.
        memory_mib: u64,
        /// Time that it took to become ready, milliseconds: a sandbox without it has to wait so long for its first result.
        start_ms: u64,
    },
    /// The process could not be started, and is not tried again.
    Failed {
        /// Reason of the last failure.
        reason: String,
    },
}
