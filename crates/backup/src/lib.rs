//! Backups: archives of data directories, written and read as a stream. The crate knows files and nothing of servers; the caller chooses
//! what a backup has.
//!
//! ```text
//!  writer     trees, files and duplicates as members of a tar archive      reader     members as files below one directory
//!     |  attributes    owner, permissions, times, extended attributes    |
//!     '--------------- member    names, and the records of a member -----'
//!                      manifest  what a backup is of
//! ```
//!
//! An archive is tar with records of pax, compressed with Zstandard. Its first member is the manifest, its last one the SHA-256 of everything
//! before. Two things are not in every tar: a file whose content is that of an earlier one refers to that one (`SANDCOVE.copy`), because
//! snapshots share most of their data, and names in keys are percent-encoded, because sandboxes choose them.
//!
//! An archive is hostile until its digest has been compared, and so are the files of sandboxes. The reader resolves no path of an archive:
//! each member is created in a directory that the reader itself has created or opened, and no link is followed.
#![forbid(unsafe_code)]

mod attributes;
mod error;
mod manifest;
mod member;
mod reader;
mod sparse;
mod writer;

#[cfg(test)]
mod tests;

pub use error::{Error, Result};
pub use manifest::{Counts, FORMAT, Manifest, Subvolume};
pub use reader::{Reader, Restored};
pub use writer::{Reading, Writer, Written};
