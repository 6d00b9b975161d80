//! Files, directories and links of a file set.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// A file, directory or link in the archive of a file set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Path in the archive; `.` for its root.
    pub path: String,
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// Time of the last change, in seconds since 1970.
    pub modified: u64,
    /// Contents of the entry.
    pub content: Content,
}

/// The contents of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A file of this machine.
    File {
        /// Path on this machine.
        path: PathBuf,
        /// Size in bytes.
        size: u64,
    },
    /// Bytes in memory.
    Bytes(Vec<u8>),
    /// A directory.
    Directory,
    /// A link to this target.
    Link(String),
}

impl Entry {
    /// The entry of a file, directory or link at `real`; `None` for a socket, device or pipe.
    pub(super) fn of(path: String, real: &Path, metadata: &Metadata) -> Result<Option<Self>> {
        let kind = metadata.file_type();
        let content = if kind.is_dir() {
            Content::Directory
        } else if kind.is_symlink() {
            let target = std::fs::read_link(real).map_err(|error| {
                Error::new(format!("failed to read the link `{}`: {error}", real.display()))
            })?;
            Content::Link(target.into_os_string().into_string().map_err(|target| {
                Error::new(format!(
                    "the link `{}` has a target that is not UTF-8: {target:?}",
                    real.display()
                ))
            })?)
        } else if kind.is_file() {
            Content::File { path: real.to_owned(), size: metadata.len() }
        } else {
            return Ok(None);
        };
        let modified = u64::try_from(metadata.mtime()).unwrap_or(0);
        Ok(Some(Self { path, mode: metadata.mode(), modified, content }))
    }

    /// A file of mode 0644 that is written in the Dockerfile.
    pub fn inline(name: String, contents: String) -> Self {
        Self { path: name, mode: 0o100_644, modified: 0, content: Content::Bytes(contents.into_bytes()) }
    }

    /// Size in bytes, as in `st_size`; 0 for a directory.
    pub fn size(&self) -> u64 {
        match &self.content {
            Content::File { size, .. } => *size,
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Directory => 0,
            Content::Link(target) => target.len() as u64,
        }
    }
}
