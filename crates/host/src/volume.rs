//! The files of a volume, as the server reaches them.

use std::fs::File;

use sandcove_image::files::{Attributes, Entry, FileError, Removal};

use crate::failure::Failure;
use crate::link::Link;
use crate::message::{Answer, Request, VolumeRequest};
use crate::reply::{Held, Reply};

type Result<T> = std::result::Result<T, FileError>;

/// The files of a volume. The kernel resolves every path with the volume as its root.
#[derive(Clone)]
pub struct VolumeFiles {
    link: Link,
    name: String,
}

/// A file of a volume that is being written. Dropping an unfinished upload deletes it.
pub struct VolumeUpload {
    link: Link,
    held: Held,
}

impl VolumeFiles {
    pub(crate) fn new(link: Link, name: String) -> Self {
        Self { link, name }
    }

    /// Describes the entry at `path`; a symbolic link there is not followed.
    ///
    /// # Errors
    /// As in every method, when the volume or the path does not exist, or the kernel refuses.
    pub async fn stat(&self, path: &str) -> Result<Entry> {
        entry(self.ask(VolumeRequest::Stat(path.to_owned())).await?)
    }

    /// Opens the regular file at `path` for reading; returns it with its size in bytes.
    pub async fn read(&self, path: &str) -> Result<(File, u64)> {
        match self.ask(VolumeRequest::Read(path.to_owned())).await? {
            Reply { answer: Answer::Bytes(size), fd: Some(fd), .. } => Ok((fd.into(), size)),
            _ => Err(Failure::unexpected().into()),
        }
    }

    /// Lists the entries below the directory `path`, down to `depth` levels; 1 lists its own entries only.
    pub async fn list(&self, path: &str, depth: u32) -> Result<Vec<Entry>> {
        match self.ask(VolumeRequest::List(path.to_owned(), depth)).await?.answer {
            Answer::Entries(entries) => Ok(entries),
            _ => Err(Failure::unexpected().into()),
        }
    }

    /// Creates a directory. With `parents`, also creates those above it and accepts one that exists.
    pub async fn make_directory(&self, path: &str, attributes: Attributes, parents: bool) -> Result<Entry> {
        entry(self.ask(VolumeRequest::MakeDirectory(path.to_owned(), attributes, parents)).await?)
    }

    /// Changes owner and permissions of the entry at `path`.
    pub async fn set_attributes(&self, path: &str, attributes: Attributes) -> Result<Entry> {
        entry(self.ask(VolumeRequest::SetAttributes(path.to_owned(), attributes)).await?)
    }

    /// Removes the entry at `path` with everything below it. `unused` is a name that no file has.
    pub async fn remove(&self, path: &str, unused: &str) -> Result<Removal> {
        match self.ask(VolumeRequest::Remove(path.to_owned(), unused.to_owned())).await?.answer {
            Answer::Removal(removal) => Ok(removal),
            _ => Err(Failure::unexpected().into()),
        }
    }

    /// Begins an upload to `path`, whose parent directory must exist, and returns it with the file to write to. `unused` is a name
    /// that no file has.
    pub async fn begin_upload(
        &self,
        path: &str,
        attributes: Attributes,
        unused: &str,
    ) -> Result<(VolumeUpload, File)> {
        let request = VolumeRequest::BeginUpload(path.to_owned(), attributes, unused.to_owned());
        match self.ask(request).await? {
            Reply { held: Some(held), fd: Some(fd), .. } => {
                Ok((VolumeUpload { link: self.link.clone(), held }, fd.into()))
            }
            _ => Err(Failure::unexpected().into()),
        }
    }

    /// Deletes the leftovers of interrupted uploads and removals; returns the names of trees that could not be deleted.
    pub async fn clean(&self) -> Result<Vec<String>> {
        Ok(self.ask(VolumeRequest::Clean).await?.names()?)
    }

    /// Deletes the removed tree `name`. A tree or volume that is missing is no error.
    pub async fn take_apart(&self, name: &str) -> Result<()> {
        Ok(self.ask(VolumeRequest::TakeApart(name.to_owned())).await?.done()?)
    }

    async fn ask(&self, request: VolumeRequest) -> Result<Reply> {
        Ok(self.link.ask(Request::Volume(self.name.clone(), request), None).await?)
    }
}

impl VolumeUpload {
    /// Moves the file into place; replaces a file that is there.
    ///
    /// # Errors
    /// When the kernel refuses; the file is deleted then.
    pub async fn finish(self) -> Result<Entry> {
        entry(self.link.ask(Request::FinishUpload(self.held.number()), None).await?)
    }
}

fn entry(reply: Reply) -> Result<Entry> {
    match reply.answer {
        Answer::Entry(entry) => Ok(entry),
        _ => Err(Failure::unexpected().into()),
    }
}
