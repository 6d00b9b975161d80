//! Errors of the host side of a sandbox.

use std::path::PathBuf;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure, named for what was being done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// All slots (id range and network pair) are taken.
    #[error("all {0} sandbox slots are in use")]
    NoSlot(u32),
    /// All instance numbers of the host are in use.
    #[error(
        "all {0} instance numbers of this host are used by other data directories whose servers or sandboxes run; /run/sandcove lists them: stop one with `sandcove down --all`"
    )]
    NoInstance(u32),
    /// A file operation failed.
    #[error("failed to {action} `{path}`")]
    Path {
        /// Action that failed, such as `create`.
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the kernel.
        source: std::io::Error,
    },
    /// A kernel request failed.
    #[error("failed to {action}")]
    Kernel {
        /// Action that failed.
        action: String,
        /// Error of the kernel.
        source: std::io::Error,
    },
    /// The jail builder or the future PID 1 reported a failed step.
    #[error("sandbox could not be started: step `{step}`: {reason}")]
    Jail {
        /// Name of the step.
        step: String,
        /// Text of the error.
        reason: String,
    },
    /// The agent was not ready in time, as may happen on a busy host.
    #[error(
        "the agent of the sandbox was not ready within {waited_ms} ms, the host may be too busy: try again later; the end of its log: {log}"
    )]
    AgentSlow {
        /// Time waited, milliseconds.
        waited_ms: u64,
        /// End of the agent's log.
        log: String,
    },
    /// The agent ended before it was ready.
    #[error(
        "the agent of the sandbox ended after {waited_ms} ms, before it was ready: the end of its log says why, `sandcove doctor` what this host lacks: {log}"
    )]
    AgentEnded {
        /// Time until then, milliseconds.
        waited_ms: u64,
        /// End of the agent's log.
        log: String,
    },
    /// The spawner did not become ready.
    #[error("the spawner failed to start: {0}")]
    Spawner(String),
    /// A sandbox could neither be proven alive nor dead.
    #[error("failed to determine whether sandbox {id} is alive: {reason}")]
    Unproven {
        /// Id of the sandbox.
        id: String,
        /// Findings that contradict each other.
        reason: String,
    },
    /// The pool is missing, or is not the one that was used before.
    #[error(
        "`{path}` is not the storage pool this data directory has used: is its file system mounted? To start with an empty pool, \
         remove `{mark}`"
    )]
    OtherPool {
        /// Path where the pool is expected.
        path: PathBuf,
        /// File that holds the name of the pool.
        mark: PathBuf,
    },
    /// The pool has simple quotas, and the kernel is too old for them.
    #[error(
        "failed to mount `{path}`: it has simple quotas, which need Linux 6.7 or newer, and this is Linux {release}. Boot a newer \
         kernel, or write a backup there (`sandcove backup`) and restore it to another data directory here (`sandcove restore`)"
    )]
    SimpleQuotas {
        /// Path of the pool's image.
        path: PathBuf,
        /// Release of the kernel.
        release: String,
    },
    /// A process that a start depends on has ended: the spawner, a builder, or the sandbox itself. The start can be tried again.
    #[error("the spawner, or a process of the sandbox, has ended")]
    ProcessGone,
    /// A tool the host needs is missing or failed.
    #[error("`{tool}` failed: {reason}")]
    Tool {
        /// Name of the program.
        tool: &'static str,
        /// Message of the program.
        reason: String,
    },
    /// The pool is full.
    #[error("the storage pool is full")]
    PoolFull,
    /// The pool is too full for a snapshot.
    #[error("the storage pool is {percent} % full, and no snapshots are taken then")]
    PoolNearlyFull {
        /// Used share of the pool, percent.
        percent: u64,
    },
    /// The memory of a sandbox cannot be stored or taken from disk.
    #[error("the memory of the sandbox cannot be stored: {reason}")]
    NotStored {
        /// Name of what is in the way.
        reason: String,
    },
    /// The memory of a sandbox, with files that are deleted and still open, is larger than what may be stored of it.
    #[error("its memory and deleted files take more than {} MiB", max_bytes >> 20)]
    MemoryTooLarge {
        /// Maximum size, bytes.
        max_bytes: u64,
    },
    /// The pool is on a file system without snapshots.
    #[error("the storage pool is not on btrfs, which snapshots need: `sandcove doctor` says why")]
    NoSnapshots,
}

impl Error {
    /// The failure of a tool that has ended, with what it wrote. A tool that a signal ended may have written nothing: its status says so.
    pub(crate) fn tool(tool: &'static str, output: &std::process::Output) -> Self {
        let written = String::from_utf8_lossy(&output.stderr);
        let reason = match written.trim() {
            "" => output.status.to_string(),
            written => written.to_owned(),
        };
        Self::Tool { tool, reason }
    }

    /// Whether the disk of the pool or of the data directory is full.
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
            | Self::SimpleQuotas { .. }
            | Self::ProcessGone
            | Self::Tool { .. }
            | Self::PoolNearlyFull { .. }
            | Self::NotStored { .. }
            | Self::MemoryTooLarge { .. }
            | Self::NoSnapshots => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_tool_that_fails_without_a_word_is_named_with_its_status() {
        let failure = |script: &str| {
            Error::tool("nft", &Command::new("sh").args(["-c", script]).output().unwrap()).to_string()
        };
        assert_eq!(failure("kill -9 $$"), "`nft` failed: signal: 9 (SIGKILL)");
        assert_eq!(failure("exit 3"), "`nft` failed: exit status: 3");
        assert_eq!(failure("echo no such table >&2; exit 1"), "`nft` failed: no such table");
    }
}
