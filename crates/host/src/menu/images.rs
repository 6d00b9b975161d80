//! Requests for imports of images.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use sandcove_image::LayerStore;
use sandcove_image::oci::{Blob, ImportJob, ImportStart, Limits, Sha256Digest, Target, TargetError};
use sandcove_isolate::Error;

use super::objects::Object;
use super::{Menu, Result, Served, blocking, done};
use crate::failure::Failure;
use crate::message::{Answer, Number};

/// Maximum number of entries of an image, whatever the server says: this side remembers some bytes of each.
const MAX_ENTRIES: u64 = 4_000_000;

impl Menu {
    pub(super) async fn begin_image(&self, config: Sha256Digest, limits: Limits) -> Result {
        let limits = Limits { entries: limits.entries.min(MAX_ENTRIES), ..limits };
        let store = self.layer_store().await?;
        let begun = match self.backend.unpackers() {
            Some(unpackers) => store.begin_apart(config, limits, move |tree| unpackers.start(tree)).await?,
            None => store.begin(config, limits).await?,
        };
        Ok(match begun {
            ImportStart::Exists { size_bytes, lease } => {
                self.hold(Answer::ImageExists(size_bytes), Object::Lease { _lease: lease })?
            }
            ImportStart::Import(import) => {
                self.require_room()?;
                self.hold(Answer::Done, Object::Import(import))?
            }
        })
    }

    pub(super) async fn image_scratch(&self) -> Result {
        self.require_room()?;
        let file = self.layer_store().await?.scratch().await?;
        Ok(Served::with_fd(Answer::Done, file))
    }

    /// Fails as a full disk when there is no room for another image.
    fn require_room(&self) -> Result<()> {
        match self.backend.require_room() {
            Err(Error::PoolNearlyFull { .. }) => Err(std::io::Error::from(ErrorKind::StorageFull).into()),
            checked => Ok(checked?),
        }
    }

    async fn layer_store(&self) -> Result<LayerStore> {
        let directory = self.backend.layer_dir();
        blocking(move || LayerStore::open(&directory).map_err(std::io::Error::other)).await
    }

    pub(super) async fn unpack_layer(
        &self,
        import: Number,
        offset: u64,
        size: u64,
        digest: Sha256Digest,
        fd: Option<OwnedFd>,
    ) -> Result {
        let job = self.import(import)?;
        let file = File::from(fd.ok_or_else(|| Failure::refused("there is no layer"))?);
        let unpack = move || {
            // Reading anything else may never end.
            if !file.metadata().map_err(TargetError::Host)?.is_file() {
                return Err(TargetError::Host(std::io::ErrorKind::InvalidInput.into()));
            }
            job.unpack(&Blob { file: Arc::new(file), offset, size }, digest)
        };
        blocking(unpack).await.map(done)
    }

    pub(super) async fn publish_image(&self, import: Number) -> Result {
        let Some(Object::Import(import)) = self.objects.take(import) else { return Err(no_import()) };
        let (size, lease) = blocking(move || import.finish()).await?;
        self.hold(Answer::Bytes(size), Object::Lease { _lease: lease })
    }

    fn import(&self, number: Number) -> Result<ImportJob> {
        self.objects.import(number).ok_or_else(no_import)
    }
}

fn no_import() -> Failure {
    Failure::refused("there is no such import")
}
