//! The known set of isolation backends, dispatched by `match`: exhaustive, static, no trait objects.

use std::path::PathBuf;
use std::time::Duration;

use sandcove_wire::id::SandboxId;
use tokio::net::TcpStream;

use crate::fake::{self, Fake};
use crate::namespaces::{self, Namespaces};
use crate::{Blueprint, ExitReason, Known, NetworkPolicy, Record, Result, SandboxSpec, SweepReport, Usage};

/// A way to run sandboxes. Clones share the same host resources.
#[derive(Clone)]
pub enum Backend {
    /// Linux namespaces, cgroups, overlayfs: the real one.
    Namespaces(Namespaces),
    /// In memory, scripted: for tests of what sits above, without root.
    Fake(Fake),
}

impl Backend {
    /// An in-memory backend; see [`Fake`] for how to script it.
    pub fn fake() -> Self {
        Self::Fake(Fake::default())
    }

    /// Prepares the host for the real backend: pool mounted, firewall in place, spawner running.
    pub async fn start(config: namespaces::Config) -> Result<Self> {
        Namespaces::start(config).await.map(Self::Namespaces)
    }

    /// Starts a sandbox. Its agent is ready when this returns; on an error nothing is left behind.
    pub async fn create(&self, spec: SandboxSpec) -> Result<Handle> {
        match self {
            Self::Namespaces(backend) => backend.create(spec).await.map(Handle::Namespaces),
            Self::Fake(backend) => backend.create(spec).await.map(Handle::Fake),
        }
    }

    /// Keeps sandboxes of `blueprint` made ahead from now on, and an interpreter warm for them if they have one. Call this
    /// after [`Backend::sweep`].
    pub fn keep_ready(&self, blueprint: Blueprint) {
        match self {
            Self::Namespaces(backend) => backend.keep_ready(blueprint),
            Self::Fake(_) => {}
        }
    }

    /// Whether a sandbox of `blueprint` that is made now is made quickly.
    pub fn is_ready(&self, blueprint: &Blueprint) -> bool {
        match self {
            Self::Namespaces(backend) => backend.is_ready(blueprint),
            Self::Fake(_) => true,
        }
    }

    /// Makes no more sandboxes of these layers ahead, and ends the interpreter that was warm for them. Sandboxes of them that run go
    /// on, and new ones can be made.
    pub fn stop_keeping(&self, layers: &[PathBuf]) {
        match self {
            Self::Namespaces(backend) => backend.stop_keeping(layers),
            Self::Fake(_) => {}
        }
    }

    /// Finds a sandbox that an earlier server started; `None` when it is dead for certain: its PID 1 has ended and its control
    /// group is empty.
    ///
    /// # Errors
    /// When that cannot be told; the sandbox may be alive.
    pub async fn adopt(&self, id: &SandboxId) -> Result<Option<Handle>> {
        match self {
            Self::Namespaces(backend) => Ok(backend.adopt(id).await?.map(Handle::Namespaces)),
            Self::Fake(backend) => Ok(backend.adopt(id).await?.map(Handle::Fake)),
        }
    }

    /// Whether there are sandboxes, snapshots or volumes of an earlier server.
    pub fn holds_anything(&self) -> bool {
        match self {
            Self::Namespaces(backend) => backend.holds_anything(),
            Self::Fake(backend) => backend.holds_anything(),
        }
    }

    /// Removes everything on this host that is not in `known`: also the processes of sandboxes that are only stored.
    pub async fn sweep(&self, known: &Known) -> SweepReport {
        match self {
            Self::Namespaces(backend) => backend.sweep(known).await,
            Self::Fake(backend) => backend.sweep(known),
        }
    }

    /// Whether the files of a sandbox are there, so that it can be started from [`crate::Files::Own`].
    pub fn has_files(&self, id: &SandboxId) -> bool {
        match self {
            Self::Namespaces(backend) => backend.has_files(id),
            Self::Fake(backend) => backend.has_files(id),
        }
    }

    /// Deletes the files of a sandbox without processes. Idempotent.
    pub async fn discard(&self, id: &SandboxId) -> Result<()> {
        match self {
            Self::Namespaces(backend) => backend.discard(id).await,
            Self::Fake(backend) => backend.discard(id).await,
        }
    }

    /// Deletes a snapshot. Sandboxes made from it keep their files. Idempotent.
    pub async fn delete_snapshot(&self, name: &str) -> Result<()> {
        match self {
            Self::Namespaces(backend) => backend.delete_snapshot(name).await,
            Self::Fake(backend) => backend.delete_snapshot(name).await,
        }
    }

    /// Makes an empty volume of `size_mib`. `name` is a plain file name.
    pub async fn create_volume(&self, name: &str, size_mib: u64) -> Result<()> {
        match self {
            Self::Namespaces(backend) => backend.create_volume(name, size_mib).await,
            Self::Fake(backend) => backend.create_volume(name),
        }
    }

    /// Deletes a volume; nothing there is fine. Sandboxes that mount it see it empty.
    pub async fn delete_volume(&self, name: &str) -> Result<()> {
        match self {
            Self::Namespaces(backend) => backend.delete_volume(name).await,
            Self::Fake(backend) => backend.delete_volume(name).await,
        }
    }

    /// Where volumes are kept, each in a directory of its name.
    pub fn volume_dir(&self) -> PathBuf {
        match self {
            Self::Namespaces(backend) => backend.volume_dir(),
            Self::Fake(backend) => backend.volume_dir(),
        }
    }

    /// Gives back what no sandbox needs, ahead of the end of this server: spare shells, warm processes, and, when there is no
    /// sandbox left, the firewall and the parent control groups. Nothing can be created any more.
    pub async fn stop(&self) -> SweepReport {
        match self {
            Self::Namespaces(backend) => backend.stop().await,
            Self::Fake(_) => SweepReport::default(),
        }
    }

    /// Takes back what [`Backend::start`] made, when the rest of a start has failed. What an earlier server's sandboxes need
    /// stays, and so does what may belong to one.
    pub async fn abandon(&self) {
        match self {
            Self::Namespaces(backend) => backend.abandon().await,
            Self::Fake(_) => {}
        }
    }

    /// Where template layers are kept; a layer's directory name is below it.
    pub fn layer_dir(&self) -> PathBuf {
        match self {
            Self::Namespaces(backend) => backend.layer_dir(),
            Self::Fake(_) => PathBuf::from("/nonexistent/layers"),
        }
    }
}

/// A running (or frozen) sandbox. Clones are cheap and mean the same sandbox; dropping one changes nothing.
#[derive(Clone)]
pub enum Handle {
    /// Of [`Backend::Namespaces`].
    Namespaces(namespaces::Handle),
    /// Of [`Backend::Fake`].
    Fake(fake::Handle),
}

impl Handle {
    /// Which sandbox this is.
    pub fn id(&self) -> &SandboxId {
        &self.record().id
    }

    /// What is written down about it.
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

    /// The unix socket of the agent's control routes; HTTP/1.1.
    pub fn control_socket(&self) -> PathBuf {
        match self {
            Self::Namespaces(handle) => handle.control_socket(),
            Self::Fake(handle) => handle.control_socket(),
        }
    }

    /// Resolves when the sandbox's PID 1 is gone. Cancellation-safe.
    pub async fn wait(&self) -> ExitReason {
        match self {
            Self::Namespaces(handle) => handle.wait().await,
            Self::Fake(handle) => handle.wait().await,
        }
    }

    /// Reads what the sandbox uses.
    pub async fn usage(&self) -> Result<Usage> {
        match self {
            Self::Namespaces(handle) => handle.usage().await,
            Self::Fake(handle) => handle.usage().await,
        }
    }

    /// Replaces what the sandbox may reach.
    pub async fn set_network(&self, policy: NetworkPolicy) -> Result<()> {
        match self {
            Self::Namespaces(handle) => handle.set_network(policy).await,
            Self::Fake(handle) => handle.set_network(policy).await,
        }
    }

    /// Freezes every process and puts on disk what they wrote; a second call changes nothing. On an error they run.
    pub async fn pause(&self) -> Result<()> {
        match self {
            Self::Namespaces(handle) => handle.pause().await,
            Self::Fake(handle) => handle.pause().await,
        }
    }

    /// Freezes every process and no more: for a sandbox that is found paused, whose files are on disk.
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

    /// Keeps the files as they are at one moment under `name`, for [`crate::Files::Snapshot`]. Processes are frozen for
    /// that moment, whose length is given, and run before and afterwards. The snapshot is on disk when this returns; on an
    /// error there is none.
    pub async fn snapshot(&self, name: &str) -> Result<Duration> {
        match self {
            Self::Namespaces(handle) => handle.snapshot(name).await,
            Self::Fake(handle) => handle.snapshot(name).await,
        }
    }

    /// Has the kernel take back what memory it can; bytes.
    pub async fn reclaim(&self) -> Result<u64> {
        match self {
            Self::Namespaces(handle) => handle.reclaim().await,
            Self::Fake(handle) => handle.reclaim().await,
        }
    }

    /// Kills everything in the sandbox, puts on disk what it wrote, and gives back all else it held. It can be started
    /// again from [`crate::Files::Own`] when this has returned. Idempotent.
    pub async fn shut_down(self) -> Result<()> {
        match self {
            Self::Namespaces(handle) => handle.shut_down().await,
            Self::Fake(handle) => handle.shut_down().await,
        }
    }

    /// Kills everything in the sandbox and gives back all it held; the last of it (interface, disk space) shortly after
    /// this returns. Idempotent.
    pub async fn destroy(self) -> Result<()> {
        match self {
            Self::Namespaces(handle) => handle.destroy().await,
            Self::Fake(handle) => handle.destroy().await,
        }
    }
}
