//! The files of a template, to be written as an archive.

use std::io;
use std::os::fd::OwnedFd;

use sandcove_image::oci::Exported;

use crate::link::Link;
use crate::message::Request;
use crate::reply::Held;

/// The files that sandboxes of a template begin with. They stay as long as this exists, whatever is deleted.
pub struct OpenFiles {
    link: Link,
    held: Held,
}

impl OpenFiles {
    pub(crate) fn new(link: Link, held: Held) -> Self {
        Self { link, held }
    }

    /// Writes the files as an archive of an OCI image to the pipe `out`, and closes it.
    ///
    /// # Errors
    /// When the files cannot be read, or nobody reads from the pipe any more.
    pub async fn export(self, image: Exported, out: OwnedFd) -> io::Result<()> {
        Ok(self.link.ask(Request::Export(self.held.number(), image), Some(out)).await?.done()?)
    }
}
