//! What can go wrong on the host side of a sandbox.

use std::path::PathBuf;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure, named for what was being done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Every slot (id range and network pair) is taken.
    #[error("all {0} sandbox slots are in use")]
    NoSlot(u32),
    /// Too many servers share this host.
    #[error("all {0} server slots of this host are taken by other data directories: see /run/sandcove")]
    NoInstance(u32),
    /// A file operation failed.
    #[error("failed to {action} `{path}`")]
    Path {
        /// What was tried, e.g. `create`.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A kernel request failed.
    #[error("failed to {action}")]
    Kernel {
        /// What was tried.
        action: String,
        /// Why.
        source: std::io::Error,
    },
    /// The jail builder or the future PID 1 reported a failed step.
    #[error("sandbox could not be started: step `{step}`: {reason}")]
    Jail {
        /// The step's name.
        step: String,
        /// The errno text.
        reason: String,
    },
    /// The agent was not ready in time, which on a busy host is nobody's fault; the tail of its log.
    #[error(
        "the agent of the sandbox was not ready within {waited_ms} ms, the host may be too busy: try again later; the end of its log: {log}"
    )]
    AgentSlow {
        /// How long it was waited for, in milliseconds.
        waited_ms: u64,
        /// The last lines of its log.
        log: String,
    },
    /// The agent ended before it was ready; the tail of its log.
    #[error(
        "the agent of the sandbox ended after {waited_ms} ms, before it was ready: the end of its log says why, `sandcove doctor` what this host lacks: {log}"
    )]
    AgentEnded {
        /// How long it was waited for until then, in milliseconds.
        waited_ms: u64,
        /// The last lines of its log.
        log: String,
    },
    /// The spawner did not get ready.
    #[error("the spawner cannot work: {0}")]
    Spawner(String),
    /// What is there of a sandbox does not say whether it is alive.
    #[error("cannot tell whether sandbox {id} is alive: {reason}")]
    Unproven {
        /// The sandbox.
        id: String,
        /// What speaks for each.
        reason: String,
    },
    /// The pool is another one than before, or is not there.
    #[error(
        "`{path}` is not the storage pool this data directory has used: is its file system mounted? To begin with an empty pool, \
         remove `{mark}`"
    )]
    OtherPool {
        /// Where the pool is expected.
        path: PathBuf,
        /// The file that names it.
        mark: PathBuf,
    },
    /// The spawner process is gone.
    #[error("the spawner is not running")]
    SpawnerGone,
    /// A tool the host needs is missing or failed.
    #[error("`{tool}` failed: {reason}")]
    Tool {
        /// Program name.
        tool: &'static str,
        /// What it said.
        reason: String,
    },
    /// The pool has no room left.
    #[error("the storage pool is full")]
    PoolFull,
    /// The pool cannot copy files in one step.
    #[error("the storage pool is not on btrfs, which snapshots need: `sandcove doctor` says why")]
    NoSnapshots,
}

impl Error {
    /// Whether a disk had no room: the pool's, or that of the data directory.
    pub fn is_full(&self) -> bool {
        match self {
            Self::PoolFull => true,
            Self::Path { source, .. } | Self::Kernel { source, .. } => {
                matches!(source.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
            }
            Self::NoSlot(_)
            | Self::NoInstance(_)
            | Self::Jail { .. }
            | Self::AgentSlow { .. }
            | Self::AgentEnded { .. }
            | Self::Spawner(_)
            | Self::Unproven { .. }
            | Self::OtherPool { .. }
            | Self::SpawnerGone
            | Self::Tool { .. }
            | Self::NoSnapshots => false,
        }
    }
}
