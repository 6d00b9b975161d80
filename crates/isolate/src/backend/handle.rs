//! A running sandbox of a backend.

use sandcove_wire::id::SandboxId;
use tokio::net::TcpStream;

use crate::fake::FakeSandbox;
use crate::namespaces::RunningSandbox;
use crate::{Connection, ExitReason, Mounted, NetworkPolicy, Record, Result, SnapshotReport, Usage};

/// A running (or frozen) sandbox. Clones are cheap and refer to the same sandbox; dropping one changes nothing.
#[derive(Clone)]
pub enum Handle {
    /// A sandbox of [`Backend::Namespaces`].
    Namespaces(RunningSandbox),
    /// A sandbox of [`Backend::Fake`].
    Fake(FakeSandbox),
}

impl Handle {
    /// Id of the sandbox.
    pub fn id(&self) -> &SandboxId {
        &self.record().id
    }

    /// Record of the sandbox.
    pub fn record(&self) -> &Record {
        match self {
            Self::Namespaces(handle) => handle.record(),
            Self::Fake(handle) => handle.record(),
        }
    }

    /// Connects to 127.0.0.1, then ::1, inside the sandbox. `ConnectionRefused` when nothing listens.
    pub async fn connect(&self, port: u16) -> std::io::Result<TcpStream> {
        match self {
            Self::Namespaces(handle) => handle.connect(port).await,
            Self::Fake(handle) => handle.connect(port).await,
        }
    }

    /// Waits for the sandbox's PID 1 to end. Cancellation-safe.
    pub async fn wait(&self) -> ExitReason {
        match self {
            Self::Namespaces(handle) => handle.wait().await,
            Self::Fake(handle) => handle.wait().await,
        }
    }

    /// Samples the sandbox's resource usage.
    pub async fn usage(&self) -> Result<Usage> {
        match self {
            Self::Namespaces(handle) => handle.usage().await,
            Self::Fake(handle) => handle.usage().await,
        }
    }

    /// The sandbox's last connections through its egress proxy, the oldest first; none without one.
    pub async fn egress_log(&self) -> Result<Vec<Connection>> {
        match self {
            Self::Namespaces(handle) => handle.egress_log().await,
            Self::Fake(_) => Ok(Vec::new()),
        }
    }

    /// Replaces the sandbox's network policy.
    pub async fn set_network(&self, policy: NetworkPolicy) -> Result<()> {
        match self {
            Self::Namespaces(handle) => handle.set_network(policy).await,
            Self::Fake(handle) => handle.set_network(policy).await,
        }
    }

    /// Freezes every process and writes its files to disk; a second call changes nothing. On an error the processes run.
    pub async fn pause(&self) -> Result<()> {
        match self {
            Self::Namespaces(handle) => handle.pause().await,
            Self::Fake(handle) => handle.pause().await,
        }
    }

    /// Freezes every process without writing files to disk, for a sandbox that was paused before and whose files are on
    /// disk.
    pub async fn freeze(&self) -> Result<()> {
        match self {
            Self::Namespaces(handle) => handle.freeze().await,
            Self::Fake(handle) => handle.pause().await,
        }
    }

    /// Thaws every process; a second call changes nothing.
    pub async fn resume(&self) -> Result<()> {
        match self {
            Self::Namespaces(handle) => handle.resume().await,
            Self::Fake(handle) => handle.resume().await,
        }
    }

    /// Takes a snapshot `name` of the files, for [`crate::Files::Snapshot`], and with `memory` of the processes too, if they can be stored.
    /// They are frozen meanwhile, and go on. The snapshot is on disk when this returns; on an error there is none. `account`, of which 48
    /// bits count, is charged for the files of the sandbox from then on.
    pub async fn snapshot(
        &self,
        name: &str,
        account: u64,
        memory: Option<Mounted>,
    ) -> Result<SnapshotReport> {
        match self {
            Self::Namespaces(handle) => handle.snapshot(name, account, memory).await,
            Self::Fake(handle) => handle.snapshot(name, memory.is_some()).await,
        }
    }

    /// Asks the kernel to reclaim memory of the sandbox; returns the reclaimed bytes.
    pub async fn reclaim(&self) -> Result<u64> {
        match self {
            Self::Namespaces(handle) => handle.reclaim().await,
            Self::Fake(handle) => handle.reclaim().await,
        }
    }

    /// Stores the memory of a frozen sandbox on disk, and returns its size, which is at most `max_bytes`. The processes stay as they are;
    /// after [`Handle::shut_down`] the sandbox can be started from its memory. Resuming it instead deletes what is stored.
    ///
    /// # Errors
    /// [`crate::Error::NotStored`] when this is not possible, and [`crate::Error::MemoryTooLarge`]: nothing is stored then, and the sandbox is
    /// as before.
    pub async fn park(&self, mounted: Mounted, max_bytes: u64) -> Result<u64> {
        match self {
            Self::Namespaces(handle) => handle.park(mounted, max_bytes).await,
            Self::Fake(handle) => handle.park(max_bytes).await,
        }
    }

    /// Kills all processes, writes the files to disk, and releases all other resources. Afterwards the sandbox can be
    /// started again from [`crate::Files::Own`]. Idempotent.
    pub async fn shut_down(self) -> Result<()> {
        match self {
            Self::Namespaces(handle) => handle.shut_down().await,
            Self::Fake(handle) => handle.shut_down().await,
        }
    }

    /// Kills all processes and releases all resources, some of them (interface, disk space) shortly after this returns.
    /// Idempotent.
    pub async fn destroy(self) -> Result<()> {
        match self {
            Self::Namespaces(handle) => handle.destroy().await,
            Self::Fake(handle) => handle.destroy().await,
        }
    }
}
