//! File sets: the hash that names one (contract: templates, section 6.1, as the Python SDK computes it), and its archive.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};
use tar::{EntryType, Header};

use crate::context::{Content, Entry, Selection};
use crate::error::{Error, Result};

/// Size of a block of a tar archive, in bytes.
const BLOCK: usize = 512;

/// Files that are uploaded for one step, and the arguments of the step.
#[derive(Debug)]
pub struct FileSet {
    /// First argument of the step.
    pub source: String,
    /// Second argument of the step.
    pub destination: String,
    /// The files to upload.
    pub content: Upload,
}

/// The contents of a file set.
#[derive(Debug)]
pub enum Upload {
    /// Entries, which become an archive.
    Entries(Vec<Entry>),
    /// An archive as it is, plain or compressed with gzip.
    Archive(Archive),
}

/// A tar archive of this machine.
#[derive(Debug)]
pub struct Archive {
    file: File,
    name: PathBuf,
}

impl FileSet {
    /// The files of a selection, for a destination.
    pub fn new(selection: Selection, destination: &str) -> Self {
        let needs_slash = selection.into_directory && !destination.ends_with('/');
        let destination = format!("{destination}{}", if needs_slash { "/" } else { "" });
        Self { source: selection.source, destination, content: Upload::Entries(selection.entries) }
    }

    /// The contents of an archive, for a destination, which is a directory.
    pub fn unpacked(archive: Archive, destination: &str) -> Self {
        let destination = format!("{}/", destination.trim_end_matches('/'));
        Self { source: ".".to_owned(), destination, content: Upload::Archive(archive) }
    }

    /// The hash that names the file set: 64 hexadecimal digits.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn hash(&self) -> Result<String> {
        let mut hash = Sha256::new();
        hash.update(format!("COPY {} {}", self.source, self.destination));
        match &self.content {
            Upload::Entries(entries) => {
                for entry in entries {
                    add(&mut hash, entry)?;
                }
            }
            Upload::Archive(archive) => {
                hash.update("archive");
                let mut file = archive.reopened()?;
                io::copy(&mut file, &mut hash).map_err(|error| failed("read", &archive.name, &error))?;
            }
        }
        Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Writes the archive to a temporary file, at whose beginning the result is.
    ///
    /// # Errors
    /// If a file cannot be read or the archive cannot be written.
    pub fn archive(&self) -> Result<File> {
        let entries = match &self.content {
            Upload::Archive(archive) => return archive.reopened(),
            Upload::Entries(entries) => entries,
        };
        let temporary = |error: io::Error| Error::new(format!("failed to write a temporary file: {error}"));
        let file = tempfile::tempfile().map_err(temporary)?;
        // The server is near: time is worth more than size.
        let mut builder = tar::Builder::new(GzEncoder::new(file, Compression::fast()));
        for entry in entries {
            append(&mut builder, entry)?;
        }
        let mut file = builder.into_inner().and_then(GzEncoder::finish).map_err(temporary)?;
        file.seek(SeekFrom::Start(0)).map_err(temporary)?;
        Ok(file)
    }
}

fn failed(what: &str, path: &Path, error: &io::Error) -> Error {
    Error::new(format!("failed to {what} `{}`: {error}", path.display()))
}

fn add(hash: &mut Sha256, entry: &Entry) -> Result<()> {
    hash.update(&entry.path);
    hash.update(entry.mode.to_string());
    if entry.content != Content::Directory {
        hash.update(entry.size().to_string());
    }
    match &entry.content {
        Content::File { path, .. } => {
            let mut file = File::open(path).map_err(|error| failed("read", path, &error))?;
            io::copy(&mut file, hash).map_err(|error| failed("read", path, &error))?;
        }
        Content::Bytes(bytes) => hash.update(bytes),
        Content::Link(target) => hash.update(target),
        Content::Directory => {}
    }
    Ok(())
}

fn append(builder: &mut tar::Builder<impl Write>, entry: &Entry) -> Result<()> {
    let mut header = Header::new_gnu();
    header.set_mode(entry.mode & 0o7777);
    header.set_mtime(entry.modified);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(0);
    let written = match &entry.content {
        // The root of the archive is a directory anyway.
        Content::Directory if entry.path == "." => Ok(()),
        Content::Directory => {
            header.set_entry_type(EntryType::Directory);
            builder.append_data(&mut header, format!("{}/", entry.path), io::empty())
        }
        Content::Link(target) => {
            header.set_entry_type(EntryType::Symlink);
            builder.append_link(&mut header, &entry.path, target)
        }
        Content::Bytes(bytes) => {
            header.set_size(bytes.len() as u64);
            builder.append_data(&mut header, &entry.path, bytes.as_slice())
        }
        Content::File { path, size } => {
            header.set_size(*size);
            let file = File::open(path).map_err(|error| failed("read", path, &error))?;
            let mut exact = Exact { file: BufReader::new(file), left: *size };
            builder.append_data(&mut header, &entry.path, &mut exact)
        }
    };
    written.map_err(|error| Error::new(format!("failed to add `{}` to the archive: {error}", entry.path)))
}

/// Reads exactly as many bytes as the header of the archive says.
struct Exact {
    file: BufReader<File>,
    left: u64,
}

impl Read for Exact {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Ok(0);
        }
        let limit = usize::try_from(self.left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let count = self.file.read(&mut buffer[..limit])?;
        if count == 0 && limit > 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the file became shorter while it was read",
            ));
        }
        self.left -= count as u64;
        Ok(count)
    }
}

impl Archive {
    /// The archive at `path`, if it is one that `ADD` extracts: a tar archive, plain or compressed with gzip, bzip2, xz or zstd.
    ///
    /// # Errors
    /// If the file cannot be read, or the program that decompresses it is missing.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        let unreadable = |error: io::Error| failed("read", path, &error);
        let mut file = File::open(path).map_err(unreadable)?;
        let mut start = Vec::new();
        (&mut file).take(BLOCK as u64).read_to_end(&mut start).map_err(unreadable)?;
        file.seek(SeekFrom::Start(0)).map_err(unreadable)?;
        let name = path.to_owned();
        let program = match start.as_slice() {
            [0x1f, 0x8b, ..] => {
                let mut block = Vec::new();
                let read = GzDecoder::new(BufReader::new(&file)).take(BLOCK as u64).read_to_end(&mut block);
                return Ok((read.is_ok() && is_header(&block)).then_some(Self { file, name }));
            }
            [b'B', b'Z', b'h', ..] => "bzip2",
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => "xz",
            [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd",
            block => return Ok(is_header(block).then_some(Self { file, name })),
        };
        let unpacked = decompressed(program, file, path)?;
        Ok(unpacked.map(|file| Self { file, name }))
    }

    fn reopened(&self) -> Result<File> {
        let unreadable = |error: io::Error| failed("read", &self.name, &error);
        let mut file = self.file.try_clone().map_err(unreadable)?;
        file.seek(SeekFrom::Start(0)).map_err(unreadable)?;
        Ok(file)
    }
}

/// Decompresses a file with a program of this machine; `None` if it holds no tar archive.
fn decompressed(program: &str, file: File, path: &Path) -> Result<Option<File>> {
    let unreadable = |error: io::Error| failed("decompress", path, &error);
    let mut child = Command::new(program)
        .arg("-dc")
        .stdin(file)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| {
            Error::new(format!("failed to run `{program}` for `{}`: {error}", path.display())).hint(format!(
                "install {program} on this machine, or add an archive that is compressed with gzip"
            ))
        })?;
    let mut output = child.stdout.take();
    let mut block = Vec::new();
    let mut copied = Ok(None);
    if let Some(output) = &mut output {
        copied = output.take(BLOCK as u64).read_to_end(&mut block).and_then(|_| {
            if !is_header(&block) {
                return Ok(None);
            }
            let mut encoder = GzEncoder::new(tempfile::tempfile()?, Compression::fast());
            encoder.write_all(&block)?;
            io::copy(output, &mut encoder)?;
            encoder.finish().map(Some)
        });
    }
    // A program whose output is not read to its end would wait for ever.
    drop(output);
    let status = child.wait().map_err(unreadable)?;
    match copied.map_err(unreadable)? {
        Some(_) if !status.success() => {
            Err(Error::new(format!("`{program}` cannot decompress `{}`: {status}", path.display())))
        }
        other => Ok(other),
    }
}

/// Whether a block is the header of a tar archive: its checksum is right.
fn is_header(block: &[u8]) -> bool {
    let Some(block) = block.first_chunk::<BLOCK>() else { return false };
    let stored = std::str::from_utf8(&block[148..156]).unwrap_or_default();
    let stored = u32::from_str_radix(stored.trim_matches(['\0', ' ']), 8).ok();
    let sum = block.iter().enumerate().map(|(at, byte)| match at {
        148..156 => u32::from(b' '),
        _ => u32::from(*byte),
    });
    stored == Some(sum.sum())
}

#[cfg(test)]
mod tests;
