//! Unpacks archives: tar in every dialect that the `tar` crate reads (ustar, PAX and GNU long names, sparse files of GNU tar), as
//! the SDKs and other clients write them. Owner and time of an entry are the developer's, so they do not count (contract:
//! templates, section 6.4).

use std::fs::File;
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};

use tar::{Archive, Entry, EntryType};

use super::decompress;
use super::error::{Result, StepError};
use super::tree::{Inside, Tree, refused};

/// Bytes of a file in memory at a time.
const BLOCK: usize = 128 << 10;
/// Limit on what is read after the end of the archive, to find a wrong checksum of the compressed stream.
const MAX_PADDING: u64 = 1 << 20;
/// Limit on the size of a sparse file, whose holes take time and no space in the archive.
const MAX_SPARSE: u64 = if cfg!(fuzzing) { 1 << 20 } else { 64 << 30 };
/// Limit on the entries of an archive, as for images: each takes time and space, however small it is.
const MAX_ENTRIES: u64 = if cfg!(fuzzing) { 10_000 } else { 2_000_000 };
/// Type of an entry with the label of an archive.
const LABEL: u8 = b'V';
/// Start of the attributes of a sparse file in the PAX dialect.
const PAX_SPARSE: &str = "GNU.sparse.";

/// Unpacks `input` into `tree`.
///
/// # Errors
/// If the archive is malformed or has too many entries, an entry would leave the tree or has a type that cannot be copied, or the disk
/// is full.
pub(super) fn unpack(input: impl BufRead, tree: &mut Tree) -> Result<()> {
    unpack_at_most(MAX_ENTRIES, input, tree)
}

fn unpack_at_most(max: u64, input: impl BufRead, tree: &mut Tree) -> Result<()> {
    let mut archive = Archive::new(decompress::open(input).map_err(unreadable)?);
    let mut block = vec![0; BLOCK];
    for (number, entry) in (1..).zip(archive.entries().map_err(unreadable)?) {
        if number > max {
            return Err(StepError::invalid(format!(
                "the uploaded files are more than {max}: copy fewer, or a tar archive of them that a later step extracts"
            )));
        }
        unpack_entry(entry.map_err(unreadable)?, tree, &mut block)?;
    }
    let mut rest = archive.into_inner().take(MAX_PADDING);
    io::copy(&mut rest, &mut io::sink()).map_err(unreadable)?;
    Ok(())
}

fn unpack_entry(mut entry: Entry<'_, impl Read>, tree: &mut Tree, block: &mut [u8]) -> Result<()> {
    let kind = entry.header().entry_type();
    if kind == EntryType::XGlobalHeader || kind.as_byte() == LABEL {
        return Ok(());
    }
    let path = entry.path_bytes().into_owned();
    let at = Inside::parse(&path)?;
    let mode = entry.header().mode().map_err(|_| refused(&path, "has a malformed mode"))?;
    match kind {
        // Old archives mark directories by the end of the name only.
        EntryType::Regular if path.ends_with(b"/") => tree.directory(&at, mode),
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
            let extensions = entry.pax_extensions().map_err(unreadable)?;
            if extensions.is_some_and(|mut all| all.any(|one| is_sparse(&one))) {
                return Err(refused(&path, "is a sparse file in the PAX format; pack it without `--sparse`"));
            }
            let size = entry.size();
            let holes = kind == EntryType::GNUSparse;
            if holes && size > MAX_SPARSE {
                return Err(refused(
                    &path,
                    &format!("is a sparse file of {size} bytes, more than {MAX_SPARSE}"),
                ));
            }
            tree.file(&at, mode, |file| {
                let written = copy(&mut entry, file, block, holes);
                match written.map_err(|error| error.of(&at))? {
                    written if written == size => Ok(()),
                    written => Err(refused(&path, &format!("ends after {written} of {size} bytes"))),
                }
            })
        }
        EntryType::Directory => tree.directory(&at, mode),
        EntryType::Symlink => tree.symlink(&at, &link_target(&entry, &path)?),
        EntryType::Link => tree.hard_link(&at, &Inside::parse(&link_target(&entry, &path)?)?),
        EntryType::Fifo => tree.fifo(&at, mode),
        EntryType::Char | EntryType::Block => Err(refused(&path, "is a device, which cannot be copied")),
        other => Err(refused(&path, &format!("has the unknown type {:?}", char::from(other.as_byte())))),
    }
}

fn link_target(entry: &Entry<'_, impl Read>, path: &[u8]) -> Result<Vec<u8>> {
    let target = entry.link_name_bytes().map(|target| target.into_owned());
    target.filter(|target| !target.is_empty()).ok_or_else(|| refused(path, "is a link without a target"))
}

fn is_sparse(extension: &io::Result<tar::PaxExtension<'_>>) -> bool {
    extension.as_ref().is_ok_and(|one| one.key_bytes().starts_with(PAX_SPARSE.as_bytes()))
}

/// A failed copy: the archive is broken, or the file cannot be written.
enum CopyError {
    Read(io::Error),
    Write(io::Error),
}

impl CopyError {
    fn of(self, at: &Inside<'_>) -> StepError {
        match self {
            Self::Read(error) => StepError::file("read from the archive", at.shown(), error),
            Self::Write(error) => StepError::file("write", at.shown(), error),
        }
    }
}

/// Copies all of `from`. With `holes`, blocks of zeros are left out of the file. Returns the size of the file.
fn copy(
    from: &mut impl Read,
    to: &mut File,
    block: &mut [u8],
    holes: bool,
) -> std::result::Result<u64, CopyError> {
    let mut size = 0;
    loop {
        let read = match from.read(block) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(CopyError::Read(error)),
        };
        size += read as u64;
        if holes && block[..read].iter().all(|byte| *byte == 0) {
            to.seek(SeekFrom::Start(size)).map_err(CopyError::Write)?;
        } else {
            to.write_all(&block[..read]).map_err(CopyError::Write)?;
        }
    }
    if holes {
        to.set_len(size).map_err(CopyError::Write)?;
    }
    Ok(size)
}

fn unreadable(source: io::Error) -> StepError {
    StepError::File { action: "read the archive".to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::super::tree::Attributes;
    use super::*;
    use crate::filesystem::directories::Owner;

    #[test]
    fn entries_beyond_the_limit_are_refused_with_what_to_do() {
        let mut builder = tar::Builder::new(Vec::new());
        for number in 0..5 {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o644);
            header.set_size(0);
            builder.append_data(&mut header, format!("src/{number}"), io::empty()).unwrap();
        }
        let archive = builder.into_inner().unwrap();
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let attributes = Attributes { owner: Owner { uid, gid }, mode: None };
        let unpacked = |max| {
            let directory = tempfile::tempdir().unwrap();
            let mut tree = Tree::new(directory.path(), attributes).unwrap();
            unpack_at_most(max, archive.as_slice(), &mut tree).map_err(|error| error.to_string())
        };
        assert_eq!(unpacked(5), Ok(()));
        let error = unpacked(4).unwrap_err();
        assert!(error.starts_with("the uploaded files are more than 4: copy fewer"), "{error}");
    }
}
