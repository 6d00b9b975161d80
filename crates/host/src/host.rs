//! The host side, as the server calls it.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::net::TcpStream as StdTcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use sandcove_isolate::{
    Backend, Blueprint, DiskSpace, Few, Files, Known, PoolState, PublicKey, Result, SandboxSpec, SweepReport,
    WarmState,
};
use sandcove_wire::id::SandboxId;
use sandcove_wire::secret::Secret;
use tokio::net::{TcpSocket, UnixStream};

use crate::archive::OpenFiles;
use crate::failure::Failure;
use crate::link::Link;
use crate::menu::Menu;
use crate::message::{Answer, Order, Request, Sizes};
use crate::reply::{Held, Reply};
use crate::sandbox::Handle;
use crate::volume::VolumeFiles;

/// The host side. Clones lead to the same. Layers are given as records of templates name them: as paths below the directory of layers.
#[derive(Clone)]
pub struct Host {
    pub(crate) link: Link,
}

/// A sandbox for the pool that is ready, and not in the pool yet. Dropping it ends the sandbox.
pub struct Prepared {
    held: Held,
}

impl Host {
    /// A host side in this process.
    pub fn here(backend: Backend) -> Self {
        Self { link: Link::Here(Arc::new(Menu::new(backend))) }
    }

    /// A host side in the process at the other end of `stream`, which runs [`crate::serve`]. Needs a tokio runtime.
    pub fn there(stream: UnixStream) -> Self {
        Self { link: Link::there(stream) }
    }

    /// Starts a sandbox and waits for its agent to become ready; on an error everything is cleaned up. Cancelling the
    /// call does not cancel the start.
    pub async fn create(&self, spec: SandboxSpec) -> Result<Handle> {
        let reply = self.ask(Request::Create(Box::new(spec))).await?;
        Ok(Handle::of(self.link.clone(), reply)?)
    }

    /// Creates an empty log for a sandbox: a file in memory, which the server process may not create.
    pub async fn create_log(&self) -> Result<File> {
        Ok(self.ask(Request::CreateLog).await?.fd()?.into())
    }

    /// Boots a sandbox that writes to `log`, of [`Host::create_log`]; otherwise like [`Host::create`].
    pub async fn create_logged(&self, spec: SandboxSpec, log: File) -> Result<Handle> {
        let reply = self.link.ask(Request::Create(Box::new(spec)), Some(log.into())).await?;
        Ok(Handle::of(self.link.clone(), reply)?)
    }

    /// Keeps pooled sandboxes of `blueprint` from now on, and a warm interpreter for them if they have one. Call this after
    /// [`Host::sweep`].
    pub fn keep_ready(&self, blueprint: Blueprint) {
        self.link.order(Order::KeepReady(blueprint));
    }

    /// Creates a sandbox for the pool, which writes to `log` as in [`Host::create_logged`], and waits until it is ready; on an error
    /// everything is cleaned up. Cancelling the call does not cancel the start.
    pub async fn prepare(&self, blueprint: Blueprint, log: File) -> Result<Prepared> {
        let reply = self.link.ask(Request::Prepare(Box::new(blueprint)), Some(log.into())).await?;
        Ok(Prepared { held: reply.held()? })
    }

    /// Keeps at most `few` pooled sandboxes and memory of `blueprint` from now on, `first` among them; otherwise like
    /// [`Host::keep_ready`].
    pub fn keep_few_ready(&self, blueprint: Blueprint, few: Few, first: Option<Prepared>) {
        let number = first.as_ref().map(|first| first.held.number());
        self.link.order(Order::KeepFewReady { blueprint, few, first: number });
        // Not before: it would be released.
        drop(first);
    }

    /// The states of the warm interpreters of several stacks of layers, with the maximum of their memory, MiB; `None` where none is
    /// kept.
    pub async fn warm_states(&self, stacks: Vec<Vec<PathBuf>>) -> Result<Vec<Option<(WarmState, u64)>>> {
        match self.ask(Request::WarmStates(stacks)).await?.answer {
            Answer::WarmStates(states) => Ok(states),
            _ => Err(Failure::unexpected().into()),
        }
    }

    /// The pooled sandboxes of each blueprint that is kept ready.
    pub async fn pool_states(&self) -> Result<Vec<PoolState>> {
        match self.ask(Request::PoolStates).await?.answer {
            Answer::PoolStates(states) => Ok(states),
            _ => Err(Failure::unexpected().into()),
        }
    }

    /// Whether a pooled sandbox of `blueprint`, and its warm interpreter, are ready.
    pub async fn is_ready(&self, blueprint: &Blueprint) -> Result<bool> {
        Ok(self.ask(Request::IsReady(Box::new(blueprint.clone()))).await?.flag()?)
    }

    /// Stops keeping pooled sandboxes of these layers and ends their warm interpreter. Running sandboxes of these
    /// layers keep running, and new ones can be created.
    pub fn stop_keeping(&self, layers: &[PathBuf]) {
        self.link.order(Order::StopKeeping(layers.to_vec()));
    }

    /// Adopts a sandbox that an earlier server started; `None` when the sandbox is proven dead: its PID 1 has ended and its
    /// control group is empty.
    ///
    /// # Errors
    /// When this cannot be determined; the sandbox may be alive.
    pub async fn adopt(&self, id: &SandboxId) -> Result<Option<Handle>> {
        let reply = self.ask(Request::Adopt(id.clone())).await?;
        match reply.answer {
            Answer::Nothing => Ok(None),
            _ => Ok(Some(Handle::of(self.link.clone(), reply)?)),
        }
    }

    /// Whether sandboxes, snapshots or volumes of an earlier server exist.
    pub async fn holds_anything(&self) -> Result<bool> {
        Ok(self.ask(Request::HoldsAnything).await?.flag()?)
    }

    /// Removes everything on this host that is not in `known`, including processes of sandboxes of which only files are
    /// kept.
    pub async fn sweep(&self, known: Known) -> Result<SweepReport> {
        swept(self.ask(Request::Sweep(Box::new(known))).await?)
    }

    /// Whether the files of a sandbox exist, so that it can be started from [`Files::Own`].
    pub async fn has_files(&self, id: &SandboxId) -> Result<bool> {
        Ok(self.ask(Request::HasFiles(id.clone())).await?.flag()?)
    }

    /// Whether the memory of sandboxes can be stored on disk ([`Handle::park`]).
    pub async fn can_park(&self) -> Result<bool> {
        Ok(self.ask(Request::CanPark).await?.flag()?)
    }

    /// Size of the memory that is stored of a sandbox, bytes; `None` when none is.
    pub async fn stored_memory(&self, id: &SandboxId) -> Result<Option<u64>> {
        match self.ask(Request::StoredMemory(id.clone())).await?.answer {
            Answer::StoredBytes(bytes) => Ok(bytes),
            _ => Err(Failure::unexpected().into()),
        }
    }

    /// Deletes the files and the memory of a sandbox without processes. Idempotent.
    pub async fn discard(&self, id: &SandboxId) -> Result<()> {
        Ok(self.ask(Request::Discard(id.clone())).await?.done()?)
    }

    /// Disk space that the snapshots of `account` hold, together with the sandboxes they were taken of, bytes; `None` when
    /// the pool does not count this.
    pub async fn charged_bytes(&self, account: u64) -> Option<u64> {
        match self.ask(Request::Charged(account)).await {
            Ok(Reply { answer: Answer::Charged(bytes), .. }) => bytes,
            _ => None,
        }
    }

    /// Deletes a snapshot. Sandboxes made from it keep their files. Idempotent.
    pub async fn delete_snapshot(&self, name: &str) -> Result<()> {
        Ok(self.ask(Request::DeleteSnapshot(name.to_owned())).await?.done()?)
    }

    /// Whether a snapshot exists.
    pub async fn has_snapshot(&self, name: &str) -> Result<bool> {
        Ok(self.ask(Request::HasSnapshot(name.to_owned())).await?.flag()?)
    }

    /// Makes the files of a snapshot a template layer, which is on disk when this returns; its files are in the directory
    /// `upper` below the layer's. A layer that exists is left as it is. Its name begins with
    /// [`sandcove_image::LayerStore::WRITTEN_PREFIX`].
    ///
    /// # Errors
    /// When there is no such snapshot, or the storage is full or does not support snapshots.
    pub async fn publish_layer(&self, snapshot: &str, layer: &str) -> Result<()> {
        let request = Request::PublishLayer { snapshot: snapshot.to_owned(), layer: layer.to_owned() };
        Ok(self.ask(request).await?.done()?)
    }

    /// Deletes the layer of this name, which a sandbox has written or which is an image. Sandboxes that run on a written layer keep
    /// its files. A leased image stays. Idempotent.
    pub async fn remove_layer(&self, layer: &str) -> Result<()> {
        Ok(self.ask(Request::RemoveLayer(layer.to_owned())).await?.done()?)
    }

    /// Removes layers of images and of the server's own templates that are not in `used`; returns their names.
    pub async fn collect_layers(&self, used: HashSet<String>) -> Result<Vec<String>> {
        Ok(self.ask(Request::CollectLayers(used)).await?.names()?)
    }

    /// Whether a layer exists.
    pub async fn has_layer(&self, layer: &str) -> Result<bool> {
        Ok(self.ask(Request::HasLayer(layer.into())).await?.flag()?)
    }

    /// Names of all layers.
    pub async fn layer_names(&self) -> Result<Vec<String>> {
        Ok(self.ask(Request::LayerNames).await?.names()?)
    }

    /// Sizes of snapshots and layers that are to be deleted: what nothing else has.
    pub async fn measure(&self, snapshots: Vec<String>, layers: HashSet<String>) -> Result<Sizes> {
        match self.ask(Request::Measure { snapshots, layers }).await?.answer {
            Answer::Sizes(sizes) => Ok(sizes),
            _ => Err(Failure::unexpected().into()),
        }
    }

    /// Inspects the disk of the pool.
    ///
    /// # Errors
    /// When there is no pool.
    pub async fn pool_space(&self) -> Result<DiskSpace> {
        match self.ask(Request::PoolSpace).await?.answer {
            Answer::Space(space) => Ok(space),
            _ => Err(Failure::unexpected().into()),
        }
    }

    /// Opens the files that sandboxes with these layers, topmost first, and `files` begin with.
    ///
    /// # Errors
    /// When a layer is missing or the kernel cannot merge them.
    pub async fn open_files(&self, layers: &[String], files: &Files) -> Result<OpenFiles> {
        let layers = layers.iter().map(PathBuf::from).collect();
        let reply = self.ask(Request::OpenFiles { layers, files: files.clone() }).await?;
        Ok(OpenFiles::new(self.link.clone(), reply.held()?))
    }

    /// Creates an empty volume of `size_mib`. `name` is a plain file name.
    pub async fn create_volume(&self, name: &str, size_mib: u64) -> Result<()> {
        let request = Request::CreateVolume { name: name.to_owned(), size_mib };
        Ok(self.ask(request).await?.done()?)
    }

    /// Deletes a volume; a missing one is no error. Sandboxes that mount it see it empty.
    pub async fn delete_volume(&self, name: &str) -> Result<()> {
        Ok(self.ask(Request::DeleteVolume(name.to_owned())).await?.done()?)
    }

    /// Names of all volumes.
    pub async fn volume_names(&self) -> Result<Vec<String>> {
        Ok(self.ask(Request::VolumeNames).await?.names()?)
    }

    /// The files of a volume.
    pub fn volume(&self, name: &str) -> VolumeFiles {
        VolumeFiles::new(self.link.clone(), name.to_owned())
    }

    /// Creates a TCP socket on behalf of a user; the firewall refuses it every address that sandboxes must not reach. `v6` chooses
    /// the family.
    pub async fn guarded_socket(&self, v6: bool) -> io::Result<TcpSocket> {
        let fd = self.link.ask(Request::GuardedSocket(v6), None).await?.fd()?;
        Ok(TcpSocket::from_std_stream(StdTcpStream::from(fd)))
    }

    /// Seals the value of a secret, which only the egress proxies can open, in the same `context`.
    pub async fn seal(&self, context: &str, value: &Secret) -> Result<String> {
        match self.ask(Request::Seal(context.to_owned(), value.clone())).await?.answer {
            Answer::Sealed(sealed) => Ok(sealed),
            _ => Err(Failure::unexpected().into()),
        }
    }

    /// Seals a value anew; `None` if it is sealed with the current key.
    pub async fn renew_sealed(&self, context: &str, sealed: &str) -> Result<Option<String>> {
        match self.ask(Request::RenewSealed(context.to_owned(), sealed.to_owned())).await?.answer {
            Answer::Sealed(sealed) => Ok(Some(sealed)),
            Answer::Nothing => Ok(None),
            _ => Err(Failure::unexpected().into()),
        }
    }

    /// Drops the keys that no value is sealed with any more, all values being sealed with the current key.
    pub async fn settle_keys(&self) -> Result<()> {
        match self.ask(Request::SettleKeys).await?.answer {
            Answer::Done => Ok(()),
            _ => Err(Failure::unexpected().into()),
        }
    }

    /// The public keys that tokens of sandboxes are checked with, the current one first.
    pub async fn identity_keys(&self) -> Result<Vec<PublicKey>> {
        match self.ask(Request::IdentityKeys).await?.answer {
            Answer::PublicKeys(keys) => Ok(keys),
            _ => Err(Failure::unexpected().into()),
        }
    }

    /// Whether `host`, a name or an IPv4 address, is one that sandboxes may reach.
    pub async fn is_reachable(&self, host: &str) -> Result<bool> {
        Ok(self.ask(Request::IsReachable(host.to_owned())).await?.flag()?)
    }

    /// Releases what no sandbox needs, before this server ends: pooled sandboxes, warm processes, and, when no sandbox
    /// is left, the firewall and the parent control groups. No sandbox can be created afterwards.
    pub async fn stop(&self) -> Result<SweepReport> {
        swept(self.ask(Request::Stop).await?)
    }

    async fn ask(&self, request: Request) -> std::result::Result<Reply, Failure> {
        self.link.ask(request, None).await
    }
}

fn swept(reply: Reply) -> Result<SweepReport> {
    match reply.answer {
        Answer::Swept(report) => Ok(report),
        _ => Err(Failure::unexpected().into()),
    }
}
