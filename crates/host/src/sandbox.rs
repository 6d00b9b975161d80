//! A running sandbox, as the server holds it.

use std::io;
use std::net::TcpStream as StdTcpStream;
use std::sync::Arc;

use sandcove_isolate::{
    Connection, ExitReason, Mounted, NetworkPolicy, Record, Result, SnapshotReport, StartPhase, Usage,
};
use sandcove_wire::id::SandboxId;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::failure::Failure;
use crate::link::Link;
use crate::message::{Answer, SandboxRequest};
use crate::reply::{Held, Reply};

/// A running (or frozen) sandbox, as a number that the host side knows it by: each method is a request. Clones are cheap and
/// refer to the same sandbox. Dropping the last one releases the number; the sandbox goes on.
#[derive(Clone)]
pub struct Handle {
    inner: Arc<Inner>,
}

struct Inner {
    link: Link,
    held: Held,
    record: Record,
    phases: Vec<StartPhase>,
    ended: watch::Receiver<bool>,
    waiting: AbortHandle,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.waiting.abort();
    }
}

impl Handle {
    /// The sandbox that a reply is about.
    pub(crate) fn of(link: Link, reply: Reply) -> std::result::Result<Self, Failure> {
        let Reply { answer: Answer::Sandbox(record, phases), held: Some(held), .. } = reply else {
            return Err(Failure::unexpected());
        };
        let (sender, ended) = watch::channel(false);
        let (asked, number) = (link.clone(), held.number());
        let waiting = tokio::spawn(async move {
            // A failure, as of the connection, says nothing about the sandbox.
            if asked.ask_sandbox(number, SandboxRequest::Wait).await.is_ok() {
                sender.send_replace(true);
            }
        });
        let waiting = waiting.abort_handle();
        Ok(Self { inner: Arc::new(Inner { link, held, record, phases, ended, waiting }) })
    }

    /// Parts of the start of the sandbox, if this is what the start returned.
    pub fn phases(&self) -> &[StartPhase] {
        &self.inner.phases
    }

    /// Id of the sandbox.
    pub fn id(&self) -> &SandboxId {
        &self.inner.record.id
    }

    /// Record of the sandbox.
    pub fn record(&self) -> &Record {
        &self.inner.record
    }

    /// Connects to 127.0.0.1, then ::1, inside the sandbox. `ConnectionRefused` when nothing listens.
    pub async fn connect(&self, port: u16) -> io::Result<TcpStream> {
        let fd = self.ask(SandboxRequest::Connect(port)).await?.fd()?;
        TcpStream::from_std(StdTcpStream::from(fd))
    }

    /// Waits for the sandbox's PID 1 to end. Cancellation-safe.
    pub async fn wait(&self) -> ExitReason {
        if self.inner.ended.clone().wait_for(|ended| *ended).await.is_err() {
            // The request failed, which does not prove that the sandbox has ended.
            std::future::pending::<()>().await;
        }
        ExitReason::Gone
    }

    /// Whether the sandbox's PID 1 has ended.
    pub async fn has_ended(&self) -> Result<bool> {
        Ok(self.ask(SandboxRequest::HasEnded).await?.flag()?)
    }

    /// Samples the sandbox's resource usage.
    pub async fn usage(&self) -> Result<Usage> {
        match self.ask(SandboxRequest::Usage).await?.answer {
            Answer::Usage(usage) => Ok(usage),
            _ => Err(Failure::unexpected().into()),
        }
    }

    /// The sandbox's last connections through its egress proxy, the oldest first; none without one.
    pub async fn egress_log(&self) -> Result<Vec<Connection>> {
        match self.ask(SandboxRequest::EgressLog).await?.answer {
            Answer::Connections(connections) => Ok(connections),
            _ => Err(Failure::unexpected().into()),
        }
    }

    /// Replaces the sandbox's network policy.
    pub async fn set_network(&self, policy: NetworkPolicy) -> Result<()> {
        Ok(self.ask(SandboxRequest::SetNetwork(Box::new(policy))).await?.done()?)
    }

    /// Freezes every process and writes its files to disk; a second call changes nothing. On an error the processes run.
    pub async fn pause(&self) -> Result<()> {
        Ok(self.ask(SandboxRequest::Pause).await?.done()?)
    }

    /// Freezes every process without writing files to disk, for a sandbox that was paused before and whose files are on
    /// disk.
    pub async fn freeze(&self) -> Result<()> {
        Ok(self.ask(SandboxRequest::Freeze).await?.done()?)
    }

    /// Thaws every process; a second call changes nothing.
    pub async fn resume(&self) -> Result<()> {
        Ok(self.ask(SandboxRequest::Resume).await?.done()?)
    }

    /// Takes a snapshot `name` of the files, for [`sandcove_isolate::Files::Snapshot`], and with `memory` of the processes too, if they can be
    /// stored. They are frozen meanwhile, and go on. The snapshot is on disk when this returns; on an error there is none. `account`, of
    /// which 48 bits count, is charged for the files of the sandbox from then on.
    pub async fn snapshot(
        &self,
        name: &str,
        account: u64,
        memory: Option<Mounted>,
    ) -> Result<SnapshotReport> {
        let request = SandboxRequest::Snapshot { name: name.to_owned(), account, memory };
        match self.ask(request).await?.answer {
            Answer::SnapshotTaken(report) => Ok(report),
            _ => Err(Failure::unexpected().into()),
        }
    }

    /// Asks the kernel to reclaim memory of the sandbox; returns the reclaimed bytes.
    pub async fn reclaim(&self) -> Result<u64> {
        match self.ask(SandboxRequest::Reclaim).await?.answer {
            Answer::Bytes(bytes) => Ok(bytes),
            _ => Err(Failure::unexpected().into()),
        }
    }

    /// Stores the memory of the frozen sandbox on disk, and returns its size, which is at most `max_bytes`. The processes stay as they are;
    /// after [`Handle::shut_down`] the sandbox can be started from its memory. [`Handle::resume`] deletes what is stored.
    ///
    /// # Errors
    /// [`sandcove_isolate::Error::NotStored`] when this is not possible, and [`sandcove_isolate::Error::MemoryTooLarge`]: nothing is stored
    /// then, and the sandbox is as before.
    pub async fn park(&self, mounted: Mounted, max_bytes: u64) -> Result<u64> {
        match self.ask(SandboxRequest::Park { mounted, max_bytes }).await?.answer {
            Answer::Bytes(bytes) => Ok(bytes),
            _ => Err(Failure::unexpected().into()),
        }
    }

    /// Kills all processes, writes the files to disk, and releases all other resources. Afterwards the sandbox can be
    /// started again from [`sandcove_isolate::Files::Own`]. Idempotent.
    pub async fn shut_down(self) -> Result<()> {
        Ok(self.ask(SandboxRequest::ShutDown).await?.done()?)
    }

    /// Kills all processes and releases all resources, some of them (interface, disk space) shortly after this returns.
    /// Idempotent.
    pub async fn destroy(self) -> Result<()> {
        Ok(self.ask(SandboxRequest::Destroy).await?.done()?)
    }

    async fn ask(&self, request: SandboxRequest) -> std::result::Result<Reply, Failure> {
        self.inner.link.ask_sandbox(self.inner.held.number(), request).await
    }
}
