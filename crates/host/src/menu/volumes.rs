//! Requests for the files of a volume.

use std::io;
use std::path::Path;

use sandcove_image::files::{FileError, FileTree, Upload};

use super::objects::Object;
use super::{Menu, Result, Served, blocking, checks};
use crate::failure::Failure;
use crate::message::{Answer, Number, VolumeRequest};

/// The outcome of a request for the files of a volume.
enum Outcome {
    Served(Served),
    /// An upload has begun.
    Upload(Served, Upload),
}

impl Menu {
    pub(super) async fn in_volume(&self, name: String, request: VolumeRequest) -> Result {
        let directory = self.backend.volume_dir().join(checks::plain(&name)?);
        match blocking(move || execute(&directory, request)).await? {
            Outcome::Served(served) => Ok(served),
            Outcome::Upload(Served { answer, fd, .. }, upload) => {
                Ok(Served { fd, ..self.hold(answer, Object::Upload(upload))? })
            }
        }
    }

    pub(super) async fn finish_upload(&self, number: Number) -> Result {
        let Some(Object::Upload(upload)) = self.objects.take(number) else {
            return Err(Failure::refused("there is no such upload"));
        };
        let entry = blocking(move || upload.finish()).await?;
        Ok(Answer::Entry(entry).into())
    }
}

fn execute(directory: &Path, request: VolumeRequest) -> Result<Outcome> {
    let tree = match (FileTree::open(directory), &request) {
        (Ok(tree), _) => tree,
        // The volume has been deleted meanwhile.
        (Err(error), VolumeRequest::TakeApart(_)) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Outcome::Served(Answer::Done.into()));
        }
        (Err(source), _) => return Err(FileError::Io { action: "open the volume", source }.into()),
    };
    let answer = match request {
        VolumeRequest::Stat(path) => Answer::Entry(tree.stat(&path)?),
        VolumeRequest::Read(path) => {
            let (file, size) = tree.read(&path)?;
            return Ok(Outcome::Served(Served::with_fd(Answer::Bytes(size), file)));
        }
        VolumeRequest::List(path, depth) => Answer::Entries(tree.list(&path, depth)?),
        VolumeRequest::MakeDirectory(path, attributes, parents) => {
            Answer::Entry(tree.make_directory(&path, attributes, parents)?)
        }
        VolumeRequest::SetAttributes(path, attributes) => {
            Answer::Entry(tree.set_attributes(&path, attributes)?)
        }
        VolumeRequest::Remove(path, unused) => Answer::Removal(tree.remove(&path, checks::plain(&unused)?)?),
        VolumeRequest::BeginUpload(path, attributes, unused) => {
            let upload = tree.begin(&path, attributes, checks::plain(&unused)?.to_owned())?;
            let served = Served::with_fd(Answer::Done, upload.file()?);
            return Ok(Outcome::Upload(served, upload));
        }
        VolumeRequest::Clean => Answer::Names(tree.clean()?),
        VolumeRequest::TakeApart(name) => {
            tree.take_apart(checks::plain(&name)?)?;
            Answer::Done
        }
    };
    Ok(Outcome::Served(answer.into()))
}
