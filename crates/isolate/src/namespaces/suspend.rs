//! Suspending a sandbox: pausing, taking a snapshot, and shutting it down with its files kept.

use std::time::{Duration, Instant};

use super::host::{Keep, blocking};
use super::process;
use super::running::RunningSandbox;
use crate::checkpoint::NewGeneration;
use crate::{Error, Mounted, Result, SnapshotMemory, SnapshotReport, crash};

/// Duration of a write-back after which little is left to write while the processes are frozen.
const SHORT_WRITE_BACK: Duration = Duration::from_millis(10);
/// Maximum number of write-backs before a freeze: processes may write faster than the disk, and are frozen for the rest
/// then.
const MAX_WRITE_BACKS: u32 = 4;

impl RunningSandbox {
    pub(crate) async fn pause(&self) -> Result<()> {
        self.freeze().await?;
        crash::point("pause.frozen");
        let (host, id) = (self.host().clone(), self.record().id.clone());
        // The files must survive a crash of the host, which takes the memory along.
        let synced = blocking(move || host.pool.sync(&id)).await;
        self.thawed_on_error(synced).await
    }

    pub(crate) async fn freeze(&self) -> Result<()> {
        let frozen = self.set_frozen(true).await;
        self.thawed_on_error(frozen).await
    }

    pub(crate) async fn resume(&self) -> Result<()> {
        if process::is_killed(self.record().pid) {
            return Err(Error::ProcessGone);
        }
        let this = self.clone();
        // Before the first process runs: memory of the past must not meet files of the present.
        blocking(move || this.discard_generation()).await?;
        self.pause_has_ended();
        self.set_frozen(false).await
    }

    /// Takes a snapshot. With `memory`, what the processes have mounted, it has their memory too, if that can be stored: CRIU runs in the same
    /// freeze in which files are copied, and the memory is written to disk after it.
    pub(crate) async fn snapshot(
        &self,
        name: &str,
        account: u64,
        memory: Option<Mounted>,
    ) -> Result<SnapshotReport> {
        let snapshots = &self.host().parking.snapshots;
        let common = match &memory {
            Some(mounted) => self.comparison(&mounted.layers, true).await?,
            None => None,
        };
        // Last, so that little is written meanwhile.
        self.write_back().await?;
        let began = Instant::now();
        self.freeze().await?;
        crash::point("snapshot.frozen");
        let dumped = match memory {
            Some(mounted) => {
                let max_bytes = self.record().limits.max_stored_bytes();
                let dumped = self.dump(snapshots, name, common, max_bytes, true).await;
                Some((dumped, mounted))
            }
            None => None,
        };
        crash::point("snapshot.dumped");
        let taken = {
            let (host, record, name) = (self.host().clone(), self.record().clone(), name.to_owned());
            // Frozen processes are in no system call, so overlayfs is not in the middle of an operation.
            let disk_mib = record.limits.disk_mib;
            blocking(move || host.pool.take_snapshot(&record.id, &name, disk_mib, account)).await
        };
        crash::point("snapshot.taken");
        let thawed = self.set_frozen(false).await;
        let frozen = began.elapsed();
        if let (Ok(()), Err(_)) = (&taken, &thawed) {
            let (host, name) = (self.host().clone(), name.to_owned());
            // Leftovers are removed by a sweep.
            let _ = blocking(move || host.pool.delete_snapshot(&name)).await;
        }
        if let Err(error) = taken.and(thawed) {
            let _ = snapshots.discard(name);
            return Err(error);
        }
        let memory = match dumped {
            None => SnapshotMemory::NotWanted,
            Some((dumped, mounted)) => match self.publish(name, dumped, mounted).await {
                Ok(bytes) => SnapshotMemory::Stored { bytes },
                Err(error) => {
                    let _ = snapshots.discard(name);
                    SnapshotMemory::Refused { reason: reason(&error) }
                }
            },
        };
        crash::point("snapshot.published");
        Ok(SnapshotReport { frozen, memory })
    }

    async fn publish(&self, name: &str, dumped: Result<NewGeneration>, mounted: Mounted) -> Result<u64> {
        let begun = dumped?;
        let max_bytes = self.record().limits.max_stored_bytes();
        let (host, manifest) = (self.host().clone(), self.manifest(name.to_owned(), mounted)?);
        let publish = move || host.parking.snapshots.publish(&begun, manifest, max_bytes, "snapshot.written");
        blocking(publish).await
    }

    /// Writes dirty data to disk while the processes run, repeatedly until little is left: then the copy of the files, which
    /// flushes first, takes milliseconds.
    async fn write_back(&self) -> Result<()> {
        for _ in 0..MAX_WRITE_BACKS {
            let (host, id, began) = (self.host().clone(), self.record().id.clone(), Instant::now());
            blocking(move || host.pool.sync(&id)).await?;
            if began.elapsed() < SHORT_WRITE_BACK {
                break;
            }
        }
        Ok(())
    }

    pub(crate) async fn reclaim(&self) -> Result<u64> {
        let (host, slot) = (self.host().clone(), self.record().slot);
        blocking(move || host.cgroups.reclaim(slot)).await
    }

    pub(crate) async fn shut_down(self) -> Result<()> {
        let mut ended = self.ended().lock().await;
        if *ended {
            return Ok(());
        }
        self.end_processes().await?;
        crash::point("shutdown.killed");
        let (host, id) = (self.host().clone(), self.record().id.clone());
        let synced = blocking(move || host.pool.sync(&id)).await;
        self.host().release(&[&self.record().id], self.record().slot, Keep::Files).await?;
        *ended = true;
        synced
    }

    async fn set_frozen(&self, frozen: bool) -> Result<()> {
        let (host, slot) = (self.host().clone(), self.record().slot);
        blocking(move || {
            host.burners.remove(&host.cgroups, slot);
            host.cgroups.freeze(slot, frozen)?;
            if !frozen {
                host.burners.add(&host.cgroups, slot);
            }
            Ok(())
        })
        .await
    }

    /// Thaws the processes when `result` is an error: a freeze is whole or undone.
    async fn thawed_on_error(&self, result: Result<()>) -> Result<()> {
        if result.is_err() {
            let _ = self.set_frozen(false).await;
        }
        result
    }
}

/// The text that says why memory was not stored.
fn reason(error: &Error) -> String {
    match error {
        Error::NotStored { reason } => reason.clone(),
        error => match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}
