//! Compressed layers in files.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// A part of a file, such as a compressed layer.
#[derive(Debug, Clone)]
pub struct Blob {
    /// The file.
    pub file: Arc<File>,
    /// Position in it.
    pub offset: u64,
    /// Length, bytes.
    pub size: u64,
}

impl Blob {
    /// The whole of a file.
    ///
    /// # Errors
    /// When the file cannot be inspected.
    pub fn whole(file: File) -> io::Result<Self> {
        let size = file.metadata()?.len();
        Ok(Self { file: Arc::new(file), offset: 0, size })
    }

    /// Reads from the beginning, whatever the position of the file is.
    pub(super) fn reader(&self) -> impl Read + Send + use<> {
        Section { file: self.file.clone(), offset: self.offset, left: self.size }
    }
}

/// A part of a file.
struct Section {
    file: Arc<File>,
    offset: u64,
    left: u64,
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.file.read_at(&mut buffer[..count], self.offset)?;
        if read == 0 && count > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.offset += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}
