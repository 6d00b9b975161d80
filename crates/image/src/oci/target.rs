//! Both halves of an import: one speaks to the registry, the other, the *target*, unpacks layers and publishes the tree. They may be in
//! different processes.

use std::fs::File;
use std::future::Future;
use std::io;
use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::fs::{XattrFlags, getxattr, setxattr};
use tokio::task::spawn_blocking;

use super::blob::Blob;
use super::digest::Digest;
use super::layer::{LayerError, Limits, Unpacker};
use super::process::{Killer, UnpackProcess};
use crate::store::{Importing, Turn};
use crate::{LayerId, LayerStore, Lease};

/// Attribute of the root of a layer that holds the size of its files. Processes in a sandbox cannot see it.
const SIZE: &str = "trusted.sandcove.size";

/// SHA-256 of the configuration of an image, which its layer is named by, or of an uncompressed layer.
pub type Sha256Digest = [u8; 32];

/// Reason why a target cannot do its part.
#[derive(Debug)]
pub enum TargetError {
    /// The layer is the reason, or the limits of the import.
    Layer(LayerError),
    /// The host is the reason.
    Host(io::Error),
}

type Result<T> = std::result::Result<T, TargetError>;

/// The result of waiting for a turn to import an image.
#[derive(Debug)]
pub enum ImportStart<I, L> {
    /// The image has been imported before.
    Exists {
        /// Size of its files, bytes; 0 if it is not known.
        size_bytes: u64,
        /// Keeps the layer.
        lease: L,
    },
    /// The image is missing, and this is the only import of it.
    Import(I),
}

/// Where images go. Clones are the same.
pub trait Target: Clone + Send + Sync + 'static {
    /// Keeps a layer.
    type Lease: Send;
    /// An import that has begun. Dropping it cancels it.
    type Import: TargetImport<Lease = Self::Lease>;

    /// Waits until the image with this configuration exists or no other import of it is in flight.
    fn begin(
        &self,
        config: Sha256Digest,
        limits: Limits,
    ) -> impl Future<Output = Result<ImportStart<Self::Import, Self::Lease>>> + Send;

    /// Creates an empty file without a name on the disk of the layers.
    fn scratch(&self) -> impl Future<Output = Result<File>> + Send;
}

/// An import that has begun.
pub trait TargetImport: Send + Sync {
    /// Keeps the layer.
    type Lease: Send;

    /// Unpacks a layer above those that have been unpacked. The digest of the uncompressed layer has to be `expected`.
    fn unpack(&self, layer: Blob, expected: Sha256Digest) -> impl Future<Output = Result<()>> + Send;

    /// Publishes the tree; returns the size of its files, bytes.
    fn publish(self) -> impl Future<Output = Result<(u64, Self::Lease)>> + Send;
}

/// An import into a [`LayerStore`]. Dropping it cancels the work on other threads, and deletes the files.
#[derive(Debug)]
pub struct StoreImport {
    job: ImportJob,
    cancel: Cancel,
}

/// The work of a [`StoreImport`], for threads that may block.
#[derive(Debug, Clone)]
pub struct ImportJob(Arc<Job>);

#[derive(Debug)]
struct Job {
    /// There until it is published or dropped.
    parts: Mutex<Option<Parts>>,
    id: LayerId,
}

#[derive(Debug)]
struct Parts {
    unpacker: Unpacking,
    importing: Importing,
}

/// Where layers are unpacked.
#[derive(Debug)]
enum Unpacking {
    /// In this process.
    Here(Box<Unpacker>),
    /// In a process of its own.
    There(UnpackProcess),
}

/// Cancels the work on other threads when it is dropped.
#[derive(Debug)]
enum Cancel {
    Here(Arc<AtomicBool>),
    There(Arc<Killer>),
}

impl Drop for Cancel {
    fn drop(&mut self) {
        match self {
            Self::Here(is_cancelled) => is_cancelled.store(true, Ordering::Relaxed),
            Self::There(killer) => killer.kill(),
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let Ok(Some(parts)) = self.parts.get_mut().map(Option::take) else { return };
        if let Unpacking::There(_) = parts.unpacker {
            // It takes a moment until a process has ended, and the drop may be on a thread that serves requests. If no thread can be
            // started, the parts are dropped here.
            let _ = std::thread::Builder::new().name("end-import".to_owned()).spawn(move || drop(parts));
        }
    }
}

impl Target for LayerStore {
    type Lease = Lease;
    type Import = StoreImport;

    /// Unpacks in this process.
    async fn begin(&self, config: Sha256Digest, limits: Limits) -> Result<ImportStart<StoreImport, Lease>> {
        self.begin_with(config, move |tree| {
            let is_cancelled = Arc::<AtomicBool>::default();
            let unpacker = Unpacker::new(tree, limits, is_cancelled.clone()).map_err(TargetError::Layer)?;
            Ok((Unpacking::Here(Box::new(unpacker)), Cancel::Here(is_cancelled)))
        })
        .await
    }

    async fn scratch(&self) -> Result<File> {
        let store = self.clone();
        blocking(move || store.unnamed_file().map_err(TargetError::Host)).await
    }
}

impl LayerStore {
    /// Like [`Target::begin`], but unpacks in the process that `start` starts for a tree: its standard input and output are pipes, and it
    /// runs [`super::unpack_as_asked`].
    pub async fn begin_apart(
        &self,
        config: Sha256Digest,
        limits: Limits,
        start: impl FnOnce(&Path) -> io::Result<Child> + Send + 'static,
    ) -> Result<ImportStart<StoreImport, Lease>> {
        self.begin_with(config, move |tree| {
            let process = start(tree).and_then(|child| UnpackProcess::new(child, limits));
            let process = process.map_err(TargetError::Host)?;
            let cancel = Cancel::There(process.killer());
            Ok((Unpacking::There(process), cancel))
        })
        .await
    }

    async fn begin_with(
        &self,
        config: Sha256Digest,
        start: impl FnOnce(&Path) -> Result<(Unpacking, Cancel)> + Send + 'static,
    ) -> Result<ImportStart<StoreImport, Lease>> {
        let id = LayerId::of_image(&config);
        let importing = match self.turn(&id).await.map_err(host)? {
            Turn::Exists(lease) => {
                return Ok(ImportStart::Exists { size_bytes: stored_size(&self.path(&id)), lease });
            }
            Turn::Import(importing) => importing,
        };
        blocking(move || {
            let (unpacker, cancel) = start(&importing.tree)?;
            let parts = Mutex::new(Some(Parts { unpacker, importing }));
            Ok(ImportStart::Import(StoreImport { job: ImportJob(Arc::new(Job { parts, id })), cancel }))
        })
        .await
    }
}

impl StoreImport {
    /// The work, for threads that may block.
    pub fn job(&self) -> ImportJob {
        self.job.clone()
    }

    /// Completes and publishes the tree; returns the size of its files, bytes. Blocks.
    ///
    /// # Errors
    /// When the tree cannot be written, or other work is in progress.
    pub fn finish(self) -> Result<(u64, Lease)> {
        let Self { job: ImportJob(job), cancel } = self;
        let mut job = Arc::into_inner(job).ok_or_else(cancelled)?;
        let parts = job.parts.get_mut().map_err(|_| cancelled())?.take();
        let Parts { unpacker, importing } = parts.ok_or_else(cancelled)?;
        let size = match unpacker {
            Unpacking::Here(mut unpacker) => {
                unpacker.finish().map_err(TargetError::Layer)?;
                unpacker.bytes()
            }
            Unpacking::There(process) => process.finish()?,
        };
        // Where the attribute is not supported, the size is unknown when the image is imported again.
        let _ = setxattr(&importing.tree, SIZE, size.to_string().as_bytes(), XattrFlags::empty());
        let lease = importing.publish(&job.id).map_err(host)?;
        drop(cancel);
        Ok((size, lease))
    }
}

impl ImportJob {
    /// Unpacks a layer above those that have been unpacked. Blocks.
    ///
    /// # Errors
    /// When the layer is not usable, or its uncompressed digest is not `expected`.
    pub fn unpack(&self, layer: &Blob, expected: Sha256Digest) -> Result<()> {
        let mut parts = self.0.parts.lock().map_err(|_| cancelled())?;
        match &mut parts.as_mut().ok_or_else(cancelled)?.unpacker {
            Unpacking::Here(unpacker) => {
                let digest = Digest::from_bytes(expected);
                unpacker.unpack(layer.reader(), Some(&digest)).map_err(TargetError::Layer)
            }
            Unpacking::There(process) => process.unpack(layer, expected),
        }
    }
}

impl TargetImport for StoreImport {
    type Lease = Lease;

    async fn unpack(&self, layer: Blob, expected: Sha256Digest) -> Result<()> {
        let job = self.job();
        blocking(move || job.unpack(&layer, expected)).await
    }

    async fn publish(self) -> Result<(u64, Lease)> {
        blocking(move || self.finish()).await
    }
}

fn stored_size(layer: &Path) -> u64 {
    let mut buffer = [0; 32];
    let length = getxattr(layer, SIZE, &mut buffer).unwrap_or(0);
    std::str::from_utf8(&buffer[..length]).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn host(error: crate::Error) -> TargetError {
    TargetError::Host(io::Error::other(error))
}

fn cancelled() -> TargetError {
    TargetError::Layer(LayerError::Cancelled)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    spawn_blocking(work).await.unwrap_or_else(|_| Err(cancelled()))
}
