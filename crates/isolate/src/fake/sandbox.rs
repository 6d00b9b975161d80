//! A sandbox of the backend in memory.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::watch;

use super::{Fake, Operation, STORED_BYTES};
use crate::{
    Error, ExitReason, NetworkPolicy, Record, Result, SandboxSpec, SnapshotMemory, SnapshotReport, Usage,
};

/// A sandbox of the in-memory backend.
#[derive(Clone)]
pub struct FakeSandbox {
    pub(super) backend: Fake,
    pub(super) record: Arc<Record>,
    pub(super) spec: Arc<SandboxSpec>,
    pub(super) state: watch::Sender<State>,
}

/// The state of a sandbox.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct State {
    pub(super) alive: bool,
    pub(super) frozen: bool,
    pub(super) network: NetworkPolicy,
    pub(super) usage: Usage,
}

impl FakeSandbox {
    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    pub(crate) async fn connect(&self, port: u16) -> std::io::Result<TcpStream> {
        let address = self.backend.lock().listeners.get(&port).copied();
        match address {
            Some(address) if self.state.borrow().alive => TcpStream::connect(address).await,
            _ => {
                self.backend.lock().refused.notify_one();
                Err(std::io::ErrorKind::ConnectionRefused.into())
            }
        }
    }

    pub(crate) async fn wait(&self) -> ExitReason {
        // The sender is this handle's own, so the channel cannot close while it is waited on.
        let _ = self.state.subscribe().wait_for(|state| !state.alive).await;
        ExitReason::Gone
    }

    pub(crate) async fn usage(&self) -> Result<Usage> {
        Ok(self.state.borrow().usage)
    }

    pub(crate) async fn set_network(&self, policy: NetworkPolicy) -> Result<()> {
        self.backend.step(Operation::SetNetwork).await?;
        self.state.send_modify(|state| state.network = policy);
        Ok(())
    }

    pub(crate) async fn pause(&self) -> Result<()> {
        self.backend.step(Operation::Pause).await?;
        self.state.send_modify(|state| state.frozen = true);
        Ok(())
    }

    pub(crate) async fn resume(&self) -> Result<()> {
        self.backend.step(Operation::Resume).await?;
        self.backend.lock().parked.remove(&self.record.id);
        self.state.send_modify(|state| state.frozen = false);
        Ok(())
    }

    pub(crate) async fn snapshot(&self, name: &str, memory: bool) -> Result<SnapshotReport> {
        self.backend.step(Operation::Snapshot).await?;
        let mut shared = self.backend.lock();
        let files = shared.files.get(&self.record.id).cloned().unwrap_or_default();
        shared.snapshots.insert(name.to_owned(), files);
        let memory = match (memory, shared.can_park, shared.refusal.clone()) {
            (false, ..) => SnapshotMemory::NotWanted,
            (true, false, _) => SnapshotMemory::Refused { reason: "this host has no CRIU".into() },
            (true, true, Some(reason)) => SnapshotMemory::Refused { reason },
            (true, true, None) => {
                shared.snapshot_memory.insert(name.to_owned());
                SnapshotMemory::Stored { bytes: STORED_BYTES }
            }
        };
        Ok(SnapshotReport { frozen: Duration::ZERO, memory })
    }

    pub(crate) async fn reclaim(&self) -> Result<u64> {
        Ok(0)
    }

    pub(crate) async fn park(&self, max_bytes: u64) -> Result<u64> {
        self.backend.step(Operation::Park).await?;
        if !self.backend.can_park() {
            return Err(Error::NotStored { reason: "this host has no CRIU".into() });
        }
        if let Some(reason) = self.backend.lock().refusal.clone() {
            return Err(Error::NotStored { reason });
        }
        if STORED_BYTES > max_bytes {
            return Err(Error::MemoryTooLarge { max_bytes });
        }
        self.backend.lock().parked.insert(self.record.id.clone());
        Ok(self.backend.stored_memory(&self.record.id).unwrap_or_default())
    }

    pub(crate) async fn shut_down(self) -> Result<()> {
        self.backend.step(Operation::ShutDown).await?;
        self.state.send_modify(|state| state.alive = false);
        self.backend.lock().sandboxes.remove(&self.record.id);
        Ok(())
    }

    pub(crate) async fn destroy(self) -> Result<()> {
        self.backend.step(Operation::Destroy).await?;
        self.state.send_modify(|state| state.alive = false);
        let mut shared = self.backend.lock();
        shared.sandboxes.remove(&self.record.id);
        shared.files.remove(&self.record.id);
        shared.parked.remove(&self.record.id);
        Ok(())
    }
}
