//! The known set of isolation backends, dispatched by `match`: exhaustive, static, no trait objects.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use sandcove_wire::id::SandboxId;
use sandcove_wire::secret::Secret;

use crate::fake::Fake;
use crate::namespaces::{self, Namespaces};
use crate::secrets::Vault;
use crate::{
    Blueprint, Error, Few, Files, Known, PoolState, PublicKey, Result, SandboxSpec, StartPhase, SweepReport,
    Unpackers, WarmState, net, sys,
};

mod handle;

pub use handle::Handle;

/// An isolation backend, which runs sandboxes. Clones share the same host resources.
#[derive(Clone)]
pub enum Backend {
    /// The real backend: Linux namespaces, cgroups, overlayfs.
    Namespaces(Namespaces),
    /// A scripted backend in memory, for tests of the layers above without root.
    Fake(Fake),
}

/// A sandbox for the pool that is ready, and not in the pool yet. Dropping it releases it.
pub enum Prepared {
    /// One of the real backend.
    Namespaces(namespaces::PreparedSandbox),
    /// One of [`Backend::Fake`].
    Fake,
}

impl Backend {
    /// Creates an in-memory backend; see [`Fake`] for how to script it.
    pub fn fake() -> Self {
        Self::Fake(Fake::default())
    }

    /// Prepares the host for the real backend: mounts the pool, installs the firewall, starts the spawner.
    pub async fn start(config: namespaces::Config) -> Result<Self> {
        Namespaces::start(config).await.map(Self::Namespaces)
    }

    /// Starts a sandbox and waits for its agent to become ready; on an error everything is cleaned up. Cancelling the
    /// call does not cancel the start. With `log`, of [`crate::create_log`], the sandbox boots, and writes there. Returns the parts of the
    /// start besides.
    pub async fn create(&self, spec: SandboxSpec, log: Option<File>) -> Result<(Handle, Vec<StartPhase>)> {
        match self {
            Self::Namespaces(backend) => {
                backend.create(spec, log).await.map(|(handle, phases)| (Handle::Namespaces(handle), phases))
            }
            Self::Fake(backend) => {
                backend.create(spec).await.map(|(handle, phases)| (Handle::Fake(handle), phases))
            }
        }
    }

    /// Keeps pooled sandboxes of `blueprint` from now on, and a warm interpreter for them if they have one. Call this after
    /// [`Backend::sweep`].
    pub fn keep_ready(&self, blueprint: Blueprint) {
        match self {
            Self::Namespaces(backend) => backend.keep_ready(blueprint, None, None),
            Self::Fake(_) => {}
        }
    }

    /// Creates a sandbox for the pool, which writes to `log` as in [`Backend::create`], and waits until it is ready; on an error everything
    /// is cleaned up. Cancelling the call does not cancel the start.
    pub async fn prepare(&self, blueprint: Blueprint, log: Option<File>) -> Result<Prepared> {
        match self {
            Self::Namespaces(backend) => backend.prepare(blueprint, log).await.map(Prepared::Namespaces),
            Self::Fake(backend) => backend.prepare().await.map(|()| Prepared::Fake),
        }
    }

    /// Keeps at most `few` pooled sandboxes and memory of `blueprint` from now on, `first` among them; otherwise like
    /// [`Backend::keep_ready`].
    pub fn keep_few_ready(&self, blueprint: Blueprint, few: Few, first: Option<Prepared>) {
        match self {
            Self::Namespaces(backend) => {
                let first = first.and_then(|first| match first {
                    Prepared::Namespaces(first) => Some(first),
                    Prepared::Fake => None,
                });
                backend.keep_ready(blueprint, Some(few), first);
            }
            Self::Fake(backend) => backend.note_pooled(&blueprint, few.warm_mib),
        }
    }

    /// The state of the warm interpreter of these layers, and the maximum of its memory, MiB; `None` when none is kept.
    pub fn warm_state(&self, layers: &[PathBuf]) -> Option<(WarmState, u64)> {
        match self {
            Self::Namespaces(backend) => backend.warm_state(layers),
            Self::Fake(backend) => backend.warm_state(layers),
        }
    }

    /// The pooled sandboxes of each blueprint.
    pub fn pool_states(&self) -> Vec<PoolState> {
        match self {
            Self::Namespaces(backend) => backend.pool_states(),
            Self::Fake(backend) => backend.pool_states(),
        }
    }

    /// Whether a pooled sandbox of `blueprint`, and its warm interpreter, are ready.
    pub fn is_ready(&self, blueprint: &Blueprint) -> bool {
        match self {
            Self::Namespaces(backend) => backend.is_ready(blueprint),
            Self::Fake(_) => true,
        }
    }

    /// Stops keeping pooled sandboxes of these layers and ends their warm interpreter. Running sandboxes of these
    /// layers keep running, and new ones can be created.
    pub fn stop_keeping(&self, layers: &[PathBuf]) {
        match self {
            Self::Namespaces(backend) => backend.stop_keeping(layers),
            Self::Fake(backend) => backend.forget_pooled(layers),
        }
    }

    /// Adopts a sandbox that an earlier server started; `None` when the sandbox is proven dead: its PID 1 has ended and its
    /// control group is empty.
    ///
    /// # Errors
    /// When this cannot be determined; the sandbox may be alive.
    pub async fn adopt(&self, id: &SandboxId) -> Result<Option<Handle>> {
        match self {
            Self::Namespaces(backend) => Ok(backend.adopt(id).await?.map(Handle::Namespaces)),
            Self::Fake(backend) => Ok(backend.adopt(id).await?.map(Handle::Fake)),
        }
    }

    /// Whether sandboxes, snapshots or volumes of an earlier server exist.
    pub fn holds_anything(&self) -> bool {
        match self {
            Self::Namespaces(backend) => backend.holds_anything(),
            Self::Fake(backend) => backend.holds_anything(),
        }
    }

    /// Removes everything on this host that is not in `known`, including processes of sandboxes of which only files are
    /// kept.
    pub async fn sweep(&self, known: &Known) -> SweepReport {
        match self {
            Self::Namespaces(backend) => backend.sweep(known).await,
            Self::Fake(backend) => backend.sweep(known),
        }
    }

    /// Whether the files of a sandbox exist, so that it can be started from [`crate::Files::Own`].
    pub fn has_files(&self, id: &SandboxId) -> bool {
        match self {
            Self::Namespaces(backend) => backend.has_files(id),
            Self::Fake(backend) => backend.has_files(id),
        }
    }

    /// Whether the memory of sandboxes can be stored on disk.
    pub fn can_park(&self) -> bool {
        match self {
            Self::Namespaces(backend) => backend.can_park(),
            Self::Fake(backend) => backend.can_park(),
        }
    }

    /// Size of the memory that is stored of a sandbox, bytes; `None` when none is.
    pub fn stored_memory(&self, id: &SandboxId) -> Option<u64> {
        match self {
            Self::Namespaces(backend) => backend.stored_memory(id),
            Self::Fake(backend) => backend.stored_memory(id),
        }
    }

    /// Deletes the files and the memory of a sandbox without processes. Idempotent.
    pub async fn discard(&self, id: &SandboxId) -> Result<()> {
        match self {
            Self::Namespaces(backend) => backend.discard(id).await,
            Self::Fake(backend) => backend.discard(id).await,
        }
    }

    /// Disk space that the snapshots of `account` hold, together with the sandboxes they were taken of, bytes; `None` when
    /// the pool does not count this.
    pub async fn charged_bytes(&self, account: u64) -> Option<u64> {
        match self {
            Self::Namespaces(backend) => backend.charged_bytes(account).await,
            Self::Fake(backend) => Some(backend.charged_bytes(account)),
        }
    }

    /// Deletes a snapshot, with its memory. Sandboxes made from it keep theirs. Idempotent.
    pub async fn delete_snapshot(&self, name: &str) -> Result<()> {
        match self {
            Self::Namespaces(backend) => backend.delete_snapshot(name).await,
            Self::Fake(backend) => backend.delete_snapshot(name).await,
        }
    }

    /// Whether a snapshot exists.
    pub fn has_snapshot(&self, name: &str) -> bool {
        match self {
            Self::Namespaces(backend) => backend.has_snapshot(name),
            Self::Fake(backend) => backend.snapshots().iter().any(|snapshot| snapshot == name),
        }
    }

    /// Makes the files of a snapshot a template layer, which is on disk when this returns; its files are in the directory
    /// `upper` below the layer's. A layer that exists is left as it is.
    ///
    /// # Errors
    /// When there is no such snapshot, or the storage is full or does not support snapshots.
    pub async fn publish_layer(&self, snapshot: &str, layer: &str) -> Result<()> {
        match self {
            Self::Namespaces(backend) => backend.publish_layer(snapshot, layer).await,
            Self::Fake(backend) => backend.publish_layer(snapshot, layer).await,
        }
    }

    /// Deletes a layer that [`Backend::publish_layer`] made. Sandboxes that run on it keep its files. Idempotent.
    pub async fn remove_layer(&self, layer: &str) -> Result<()> {
        match self {
            Self::Namespaces(backend) => backend.remove_layer(layer).await,
            Self::Fake(backend) => backend.remove_layer(layer),
        }
    }

    /// Whether a layer exists. `layer` is a path below [`Backend::layer_dir`], as records of templates name layers.
    pub fn has_layer(&self, layer: &str) -> bool {
        match self {
            Self::Namespaces(backend) => backend.layer_dir().join(layer).is_dir(),
            Self::Fake(backend) => backend.has_layer(layer),
        }
    }

    /// Names of all layers.
    pub fn layer_names(&self) -> Vec<String> {
        match self {
            Self::Namespaces(backend) => {
                let entries = std::fs::read_dir(backend.layer_dir()).into_iter().flatten();
                entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
            }
            Self::Fake(backend) => backend.layer_names(),
        }
    }

    /// Directory of the snapshots.
    pub fn snapshot_dir(&self) -> PathBuf {
        match self {
            Self::Namespaces(backend) => backend.snapshot_dir(),
            Self::Fake(_) => PathBuf::from("/nonexistent/snapshots"),
        }
    }

    /// Opens the files that sandboxes with these layers, topmost first, and `files` begin with, for reading. The ids of the files are
    /// those inside. Layers are paths below [`Backend::layer_dir`].
    ///
    /// # Errors
    /// When a layer is missing or the kernel cannot merge them.
    pub async fn open_files(&self, layers: &[String], files: &Files) -> Result<OwnedFd> {
        match self {
            Self::Namespaces(backend) => backend.open_files(layers, files).await,
            Self::Fake(backend) => backend.open_files().await,
        }
    }

    /// Creates an empty volume of `size_mib`. `name` is a plain file name.
    pub async fn create_volume(&self, name: &str, size_mib: u64) -> Result<()> {
        match self {
            Self::Namespaces(backend) => backend.create_volume(name, size_mib).await,
            Self::Fake(backend) => backend.create_volume(name),
        }
    }

    /// Deletes a volume; a missing one is no error. Sandboxes that mount it see it empty.
    pub async fn delete_volume(&self, name: &str) -> Result<()> {
        match self {
            Self::Namespaces(backend) => backend.delete_volume(name).await,
            Self::Fake(backend) => backend.delete_volume(name).await,
        }
    }

    /// Directory of all volumes, each in a directory of its name.
    pub fn volume_dir(&self) -> PathBuf {
        match self {
            Self::Namespaces(backend) => backend.volume_dir(),
            Self::Fake(backend) => backend.volume_dir(),
        }
    }

    /// Starts processes that unpack images; `None` where images are unpacked by this process, as without root.
    pub fn unpackers(&self) -> Option<Unpackers> {
        match self {
            Self::Namespaces(backend) => Some(backend.unpackers()),
            Self::Fake(_) => None,
        }
    }

    /// Seals the value of a secret, which can be opened in the same `context` only, by the egress proxies.
    ///
    /// # Errors
    /// When the file of keys cannot be read or written.
    pub fn seal(&self, context: &str, value: &Secret) -> Result<String> {
        self.vault().seal(context, value)
    }

    /// Seals a value anew; `None` if it is sealed with the current key.
    ///
    /// # Errors
    /// When the value cannot be opened: it belongs to another context, or its key is gone.
    pub fn renew_sealed(&self, context: &str, sealed: &str) -> Result<Option<String>> {
        self.vault().renew(context, sealed)
    }

    /// Drops the keys that no value is sealed with any more, all values being sealed with the current key.
    ///
    /// # Errors
    /// When the file of keys cannot be read or written.
    pub fn settle_keys(&self) -> Result<()> {
        self.vault().settle()
    }

    /// The public keys that tokens of sandboxes are checked with, the current one first.
    ///
    /// # Errors
    /// When the file of keys cannot be read or written.
    pub fn identity_keys(&self) -> Result<Vec<PublicKey>> {
        let failed = |source| Error::Kernel { action: "read the signing keys".into(), source };
        self.vault().signing()?.public().map_err(failed)
    }

    /// Whether `host`, a name or an IPv4 address, is one that sandboxes may reach.
    ///
    /// # Errors
    /// When the process that asks name servers cannot be started.
    pub async fn is_reachable(&self, host: &str) -> Result<bool> {
        match self {
            Self::Namespaces(backend) => backend.is_reachable(host).await,
            Self::Fake(_) => {
                let address = host.parse().map(std::net::IpAddr::V4);
                Ok(address.map_or(!host.ends_with(".invalid"), net::is_public))
            }
        }
    }

    fn vault(&self) -> &Vault {
        match self {
            Self::Namespaces(backend) => backend.vault(),
            Self::Fake(backend) => backend.vault(),
        }
    }

    /// Creates a non-blocking TCP socket on behalf of a user: the firewall refuses it every address that sandboxes must not
    /// reach. `v6` chooses the family.
    pub fn guarded_socket(&self, v6: bool) -> std::io::Result<OwnedFd> {
        let socket = sys::tcp_socket(v6)?;
        match self {
            Self::Namespaces(_) => net::guard(&socket)?,
            Self::Fake(_) => {}
        }
        Ok(socket)
    }

    /// Releases what no sandbox needs, before this server ends: pooled sandboxes, warm processes, and, when no sandbox
    /// is left, the firewall and the parent control groups. No sandbox can be created afterwards.
    pub async fn stop(&self) -> SweepReport {
        match self {
            Self::Namespaces(backend) => backend.stop().await,
            Self::Fake(_) => SweepReport::default(),
        }
    }

    /// Undoes [`Backend::start`] when the rest of the server's start has failed. Resources that an earlier server's
    /// sandboxes need, or may need, stay.
    pub async fn abandon(&self) {
        match self {
            Self::Namespaces(backend) => backend.abandon().await,
            Self::Fake(_) => {}
        }
    }

    /// Checks that the pool has room for another layer.
    ///
    /// # Errors
    /// If it has not: [`Error::PoolNearlyFull`].
    pub fn require_room(&self) -> Result<()> {
        match self {
            Self::Namespaces(backend) => backend.require_room(),
            Self::Fake(_) => Ok(()),
        }
    }

    /// Directory of all template layers, each in a directory of its id.
    pub fn layer_dir(&self) -> PathBuf {
        match self {
            Self::Namespaces(backend) => backend.layer_dir(),
            Self::Fake(backend) => backend.layer_dir(),
        }
    }
}
