//! Imports of images: the host side is their target.

use std::fs::File;

use sandcove_image::oci::{Blob, ImportStart, Limits, Sha256Digest, Target, TargetError, TargetImport};

use crate::failure::Failure;
use crate::host::Host;
use crate::link::Link;
use crate::message::{Answer, Request};
use crate::reply::{Held, Reply};

type Result<T> = std::result::Result<T, TargetError>;

/// An import of an image. Dropping it cancels it.
pub struct ImageImport {
    link: Link,
    held: Held,
}

/// Keeps the layer of an image until a template names it.
pub struct ImageLease {
    _held: Held,
}

impl Target for Host {
    type Lease = ImageLease;
    type Import = ImageImport;

    async fn begin(
        &self,
        config: Sha256Digest,
        limits: Limits,
    ) -> Result<ImportStart<ImageImport, ImageLease>> {
        let Reply { answer, held, .. } = self.link.ask(Request::BeginImage(config, limits), None).await?;
        match (answer, held) {
            (Answer::ImageExists(size_bytes), Some(held)) => {
                Ok(ImportStart::Exists { size_bytes, lease: ImageLease { _held: held } })
            }
            (Answer::Done, Some(held)) => {
                Ok(ImportStart::Import(ImageImport { link: self.link.clone(), held }))
            }
            _ => Err(Failure::unexpected().into()),
        }
    }

    async fn scratch(&self) -> Result<File> {
        Ok(self.link.ask(Request::ImageScratch, None).await?.fd()?.into())
    }
}

impl TargetImport for ImageImport {
    type Lease = ImageLease;

    async fn unpack(&self, layer: Blob, expected: Sha256Digest) -> Result<()> {
        let Blob { file, offset, size } = layer;
        let file = file.try_clone().map_err(TargetError::Host)?;
        let request = Request::UnpackLayer { import: self.held.number(), offset, size, digest: expected };
        Ok(self.link.ask(request, Some(file.into())).await?.done()?)
    }

    async fn publish(self) -> Result<(u64, ImageLease)> {
        match self.link.ask(Request::PublishImage(self.held.number()), None).await? {
            Reply { answer: Answer::Bytes(size), held: Some(held), .. } => {
                Ok((size, ImageLease { _held: held }))
            }
            _ => Err(Failure::unexpected().into()),
        }
    }
}
