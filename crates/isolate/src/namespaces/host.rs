//! The host resources that all sandboxes of a server share, and the release of what one sandbox holds of them.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sandcove_wire::id::SandboxId;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::burners::Burners;
use super::park::Parking;
use super::programs::Programs;
use super::sandbox_pool::SandboxPool;
use super::slots::Slots;
use super::unassigned::UnassignedSandbox;
use super::warm::WarmProcesses;
use crate::cgroup::Cgroups;
use crate::instance::Instance;
use crate::net::{Addresses, Dialer, Firewall, Links};
use crate::pool::Pool;
use crate::secrets::Vault;
use crate::spawner::Spawner;
use crate::{Error, Files, NetworkPolicy, Result, Unpackers};

/// Configuration of the backend.
#[derive(Debug, Clone)]
pub struct Config {
    /// Directory of everything durable.
    pub data_dir: PathBuf,
    /// Directory with `sandcove-agent` and the other guest programs.
    pub libexec: PathBuf,
    /// Path of the `sandcove` program, which is started again as spawner.
    pub program: PathBuf,
    /// IPv4 network of 65,536 addresses that sandboxes get theirs from, e.g. `10.213.0.0/16`.
    pub network: String,
    /// Name servers; the host's own when `None`.
    pub dns: Option<Vec<IpAddr>>,
    /// Maximum number of sandboxes.
    pub max_sandboxes: u32,
    /// Size of a new pool image, GiB; most of the free space when `None`.
    pub pool_size_gib: Option<u64>,
    /// Number of pooled sandboxes for each template without demand; with 0, there are none.
    pub pooled_sandboxes: usize,
    /// Memory of all pooled sandboxes up to which there are more of the templates in demand, percent of what all sandboxes
    /// may use.
    pub pool_memory_percent: u32,
    /// Whether the kernel logs the system calls that sandboxes are refused.
    pub log_refused_calls: bool,
    /// Whether the processes that are started here write their log as JSON.
    pub log_json: bool,
    /// User and group of the process of the egress proxies; `None` for this process's own.
    pub egress_account: Option<u32>,
    /// Directory of the CRIU that stores memory on disk; memory is not stored when `None`.
    pub criu: Option<PathBuf>,
}

/// Resources that all sandboxes of this server share.
pub(crate) struct Host {
    pub(super) config: Config,
    pub(super) addresses: Addresses,
    pub(super) pool: Pool,
    pub(super) cgroups: Cgroups,
    pub(super) firewall: Firewall,
    pub(super) vault: Vault,
    pub(super) links: Links,
    pub(super) dialer: Dialer,
    pub(super) spawner: Spawner,
    pub(super) unpackers: Unpackers,
    pub(super) slots: Slots,
    pub(super) burners: Burners,
    pub(super) warm_processes: WarmProcesses,
    pub(super) sandbox_pool: SandboxPool,
    /// CRIU, and the place of memory on disk.
    pub(super) parking: Parking,
    pub(super) programs: Programs,
    pub(super) pool_started: AtomicBool,
    /// Instance number: tells the servers of one host apart.
    pub(super) number: u32,
    /// Tasks that fill the sandbox pool, keep warm processes, and release resources.
    pub(super) tasks: TaskTracker,
    /// Cancelled when these tasks are to end.
    pub(super) stopping: CancellationToken,
    pub(super) _instance: Instance,
}

/// Parts of a sandbox that a release keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    Nothing,
    /// The files it wrote.
    Files,
}

impl Files {
    /// Parts of the sandbox that a failed start keeps.
    pub(super) fn kept_on_failure(&self) -> Keep {
        match self {
            Self::Own => Keep::Files,
            Self::Empty | Self::Snapshot(_) => Keep::Nothing,
        }
    }
}

impl Host {
    /// Directory of the sandbox's record.
    pub(super) fn run_dir(&self, id: &SandboxId) -> PathBuf {
        self.config.data_dir.join("run").join(id.as_str())
    }

    /// Ends all processes in `slot` and releases the resources held in it under any of the names `ids`, except what
    /// `keep` names. The slot is free again when all of that is cleaned up but its network pair, which is deleted when the slot is next
    /// taken if the kernel has not done so by then.
    pub(super) async fn release(self: &Arc<Self>, ids: &[&SandboxId], slot: u32, keep: Keep) -> Result<()> {
        let ids: Vec<SandboxId> = ids.iter().map(|id| (*id).clone()).collect();
        // The kernel deletes a network pair with its namespace, and those of many sandboxes in one go; one of them at a time takes tens of
        // milliseconds, for which others wait. Rules must be there as long as their pair is.
        let link = async {
            if self.firewall.has_rules(slot) {
                self.links.delete(&self.addresses.link(slot)).await?;
                self.firewall.set(slot, &NetworkPolicy::default()).await?;
            }
            Ok(())
        };
        let files = {
            let (host, ids) = (self.clone(), ids.clone());
            blocking(move || {
                host.cgroups.remove(slot)?;
                match keep {
                    Keep::Nothing => ids.iter().try_for_each(|id| {
                        host.parking.generations.discard(id.as_str())?;
                        host.pool.delete(id)
                    }),
                    Keep::Files => Ok(()),
                }
            })
        };
        let (link, files): (Result<()>, _) = tokio::join!(link, files);
        link?;
        files?;
        // Last: a sweep looks for leftovers of every sandbox that has this directory.
        for run_dir in ids.iter().map(|id| self.run_dir(id)) {
            match std::fs::remove_dir_all(&run_dir) {
                Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::Path { action: "delete", path: run_dir, source });
                }
                _ => {}
            }
        }
        // Before a stop, everything is released again; no sandbox gets a slot then.
        if !self.slots.release(slot) && !self.stopping.is_cancelled() {
            tracing::error!(slot, "a slot was released twice");
        }
        Ok(())
    }

    /// Ends an unassigned sandbox and releases its resources.
    pub(super) async fn discard(self: &Arc<Self>, sandbox: UnassignedSandbox) {
        let (name, slot) = (sandbox.name.clone(), sandbox.slot);
        drop(sandbox);
        if let Err(error) = self.release(&[&name], slot, Keep::Nothing).await {
            // The slot stays taken until a sweep after a restart.
            tracing::warn!(
                slot,
                error = &error as &dyn std::error::Error,
                "failed to release a pooled sandbox"
            );
        }
    }
}

/// Runs blocking work on a thread for it.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::Kernel {
            action: "run a blocking task".into(),
            source: std::io::Error::other(error.to_string()),
        }),
    }
}
