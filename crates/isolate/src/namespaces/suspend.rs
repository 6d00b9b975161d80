//! Stopping a sandbox so that it can go on: frozen, copied, or shut down with its files kept.

use std::time::{Duration, Instant};

use super::handle::{Handle, Leaving, blocking};
use crate::{Result, crash};

/// Writing back as short as this leaves next to nothing for the moment in which processes stand still.
const LITTLE_LEFT: Duration = Duration::from_millis(10);
/// Processes may write faster than the disk takes it: then they do stand still for the rest.
const MOST_PASSES: u32 = 4;

impl Handle {
    pub(crate) async fn pause(&self) -> Result<()> {
        self.freeze().await?;
        crash::point("pause.frozen");
        let (host, id) = (self.host().clone(), self.record().id.clone());
        // The files have to be there even if the host goes down, and the memory with it.
        let synced = blocking(move || host.pool.sync(&id)).await;
        self.thawed_on_error(synced).await
    }

    pub(crate) async fn freeze(&self) -> Result<()> {
        let frozen = self.set_frozen(true).await;
        self.thawed_on_error(frozen).await
    }

    pub(crate) async fn resume(&self) -> Result<()> {
        self.set_frozen(false).await
    }

    /// Gives how long the processes stood still.
    pub(crate) async fn snapshot(&self, name: &str) -> Result<Duration> {
        self.write_back().await?;
        let began = Instant::now();
        self.freeze().await?;
        crash::point("snapshot.frozen");
        let taken = {
            let (host, record, name) = (self.host().clone(), self.record().clone(), name.to_owned());
            // Frozen processes are in no system call, so that overlayfs is in the middle of nothing.
            blocking(move || host.pool.take_snapshot(&record.id, &name, record.limits.disk_mib)).await
        };
        crash::point("snapshot.taken");
        let thawed = self.set_frozen(false).await;
        let frozen = began.elapsed();
        if let (Ok(()), Err(_)) = (&taken, &thawed) {
            let (host, name) = (self.host().clone(), name.to_owned());
            // What is left of it is swept.
            let _ = blocking(move || host.pool.delete_snapshot(&name)).await;
        }
        taken.and(thawed).map(|()| frozen)
    }

    /// Puts on disk what the processes wrote while they go on, and what they wrote meanwhile, until little is left: a copy
    /// of the files that has to write nothing first is a matter of milliseconds.
    async fn write_back(&self) -> Result<()> {
        for _ in 0..MOST_PASSES {
            let (host, id, began) = (self.host().clone(), self.record().id.clone(), Instant::now());
            blocking(move || host.pool.sync(&id)).await?;
            if began.elapsed() < LITTLE_LEFT {
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
        self.host().release(&[&self.record().id], self.record().slot, Leaving::Files).await?;
        *ended = true;
        synced
    }

    async fn set_frozen(&self, frozen: bool) -> Result<()> {
        let (host, slot) = (self.host().clone(), self.record().slot);
        blocking(move || host.cgroups.freeze(slot, frozen)).await
    }

    /// Half a freeze is none.
    async fn thawed_on_error(&self, result: Result<()>) -> Result<()> {
        if result.is_err() {
            let _ = self.set_frozen(false).await;
        }
        result
    }
}
