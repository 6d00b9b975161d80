//! Writes a tree as an archive of an OCI layout with one layer, for [`import_archive`](super::import_archive) and other readers of OCI
//! images. The name of a layer is its digest and stands before its data, so the tree is read twice: once to compute the digest, once to
//! write. One pass would need a copy of the layer on disk, or the data under another name first and a link to it: readers that take an
//! archive as a stream, such as containerd, ignore links.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::fs::{fgetxattr, flistxattr, fstat, openat, readlinkat, statat};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

use super::digest::Digest;
use super::platform::Platform;
use super::xattrs::kept;

/// Maximum depth of directories, as in imports.
const MAX_DEPTH: usize = 256;
/// Length of the names in headers of archives; longer ones are in an entry of their own.
const NAME: usize = 100;
const BUFFER: usize = 256 << 10;

/// Description of the image in an archive.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Exported {
    /// Name and tag of the image.
    pub name: String,
    /// Variables of commands.
    pub env: BTreeMap<String, String>,
    /// User of the commands.
    pub user: String,
    /// Directory of the commands.
    pub workdir: Option<String>,
    /// Command line that containers run by default.
    pub command: Option<String>,
    /// Labels of the configuration, which are also annotations of the manifest.
    pub labels: BTreeMap<String, String>,
}

/// Writes the tree `root` to `out`. The tree must not change meanwhile. `proceed` is asked from time to time.
///
/// # Errors
/// When the tree cannot be read, `out` cannot be written to, or `proceed` says no.
pub fn export(
    root: &OwnedFd,
    image: &Exported,
    out: &mut impl Write,
    proceed: &dyn Fn() -> bool,
) -> io::Result<()> {
    let mut hashing = Hashing { hasher: Sha256::new(), size: 0, proceed };
    write_tree(root, &mut hashing)?;
    let size = hashing.size;
    let layer = Digest::from_hasher(hashing.hasher);
    let platform = Platform::host();
    let mut settings = json!({
        "Env": image.env.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>(),
        "User": image.user,
        "Labels": image.labels,
    });
    if let Some(workdir) = &image.workdir {
        settings["WorkingDir"] = json!(workdir);
    }
    if let Some(command) = &image.command {
        settings["Cmd"] = json!(["/bin/sh", "-c", command]);
    }
    let config = json!({
        "os": "linux",
        "architecture": platform.architecture(),
        "config": settings,
        "rootfs": { "type": "layers", "diff_ids": [layer.to_string()] },
        "history": [{ "created_by": "sandcove template export" }],
    });
    let config = config.to_string().into_bytes();
    let described = |kind: &str, digest: &Digest, size: u64| {
        json!({
            "mediaType": format!("application/vnd.oci.image.{kind}"),
            "digest": digest.to_string(),
            "size": size,
        })
    };
    let config_digest = Digest::of(&config);
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": described("config.v1+json", &config_digest, config.len() as u64),
        "layers": [described("layer.v1.tar", &layer, size)],
        "annotations": image.labels,
    });
    let manifest = manifest.to_string().into_bytes();
    let manifest_digest = Digest::of(&manifest);
    let mut listed = described("manifest.v1+json", &manifest_digest, manifest.len() as u64);
    listed["annotations"] = json!({ "org.opencontainers.image.ref.name": image.name });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [listed],
    });
    let mut archive = Builder::new(out);
    let blob = |digest: &Digest| format!("blobs/sha256/{}", digest.hex());
    for (name, data) in [
        ("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()),
        ("index.json".to_owned(), index.to_string().into_bytes()),
        (blob(&manifest_digest), manifest),
        (blob(&config_digest), config),
    ] {
        archive.append(&plain(&name, data.len() as u64)?, data.as_slice())?;
    }
    // The header, without data; the data has a whole number of blocks.
    archive.append(&plain(&blob(&layer), size)?, io::empty())?;
    let mut checked = Checked { out: archive.get_mut(), left: size, proceed };
    write_tree(root, &mut checked)?;
    if checked.left > 0 {
        return Err(io::Error::other("the files changed while they were written"));
    }
    archive.finish()
}

fn plain(name: &str, size: u64) -> io::Result<Header> {
    let mut header = Header::new_ustar();
    header.set_path(name)?;
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header.set_entry_type(EntryType::Regular);
    header.set_cksum();
    Ok(header)
}

/// Writes the files below `root` as a layer: sorted, so that the same files are always the same bytes.
fn write_tree(root: &OwnedFd, out: &mut impl Write) -> io::Result<()> {
    let mut writer = TreeWriter {
        archive: Builder::new(io::BufWriter::with_capacity(BUFFER, out)),
        links: HashMap::new(),
    };
    let top = openat(root, c".", readable(), Mode::empty())?;
    writer.directory(&top, &mut Vec::new(), 0)?;
    writer.archive.into_inner()?.into_inner().map_err(io::IntoInnerError::into_error)?.flush()
}

struct TreeWriter<W: Write> {
    archive: Builder<W>,
    /// Names of files that have more than one, by device and inode.
    links: HashMap<(u64, u64), Vec<u8>>,
}

impl<W: Write> TreeWriter<W> {
    fn directory(&mut self, directory: &OwnedFd, path: &mut Vec<u8>, depth: usize) -> io::Result<()> {
        if depth > MAX_DEPTH {
            let path = String::from_utf8_lossy(path).into_owned();
            return Err(io::Error::other(format!("{path} is below more than {MAX_DEPTH} directories")));
        }
        let mut names: Vec<CString> = Vec::new();
        for item in Dir::read_from(directory)? {
            let item = item?;
            if item.file_name() != c"." && item.file_name() != c".." {
                names.push(item.file_name().to_owned());
            }
        }
        names.sort();
        for name in names {
            let above = path.len();
            path.extend_from_slice(name.to_bytes());
            self.entry(directory, &name, path, depth)?;
            path.truncate(above);
        }
        Ok(())
    }

    fn entry(&mut self, above: &OwnedFd, name: &CStr, path: &mut Vec<u8>, depth: usize) -> io::Result<()> {
        let stat = statat(above, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let directory = openat(above, name, readable() | OFlags::NOFOLLOW, Mode::empty())?;
                path.push(b'/');
                let found = Found { stat, path, target: None, xattrs: xattrs(&directory)? };
                self.append(EntryType::Directory, &found, 0, io::empty())?;
                self.directory(&directory, path, depth + 1)
            }
            FileType::RegularFile => {
                let known = (stat.st_dev, stat.st_ino);
                if stat.st_nlink > 1 {
                    if let Some(first) = self.links.get(&known) {
                        let target = Some(first.clone());
                        let found = Found { stat, path, target, xattrs: Vec::new() };
                        return self.append(EntryType::Link, &found, 0, io::empty());
                    }
                    self.links.insert(known, path.clone());
                }
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let file = openat(above, name, flags, Mode::empty())?;
                let (stat, xattrs) = (fstat(&file)?, xattrs(&file)?);
                let size = u64::try_from(stat.st_size).unwrap_or_default();
                let found = Found { stat, path, target: None, xattrs };
                self.append(EntryType::Regular, &found, size, File::from(file).take(size))
            }
            FileType::Symlink => {
                let target = Some(readlinkat(above, name, Vec::new())?.into_bytes());
                let found = Found { stat, path, target, xattrs: Vec::new() };
                self.append(EntryType::Symlink, &found, 0, io::empty())
            }
            FileType::Fifo => {
                let found = Found { stat, path, target: None, xattrs: Vec::new() };
                self.append(EntryType::Fifo, &found, 0, io::empty())
            }
            // Every sandbox has its own devices, and a socket without its process is nothing.
            _ => Ok(()),
        }
    }

    fn append(&mut self, kind: EntryType, found: &Found<'_>, size: u64, data: impl Read) -> io::Result<()> {
        let mut header = Header::new_ustar();
        let mut records: Vec<(String, &[u8])> = Vec::new();
        if let Some(ustar) = header.as_ustar_mut() {
            if fill(&mut ustar.name, found.path) {
                records.push(("path".to_owned(), found.path));
            }
            if let Some(target) = &found.target
                && fill(&mut ustar.linkname, target)
            {
                records.push(("linkpath".to_owned(), target));
            }
        }
        for (name, value) in &found.xattrs {
            records.push((format!("SCHILY.xattr.{name}"), value));
        }
        if !records.is_empty() {
            self.archive.append_pax_extensions(records.iter().map(|(key, value)| (key.as_str(), *value)))?;
        }
        header.set_entry_type(kind);
        header.set_mode(found.stat.st_mode & 0o7777);
        header.set_uid(found.stat.st_uid.into());
        header.set_gid(found.stat.st_gid.into());
        header.set_mtime(u64::try_from(found.stat.st_mtime).unwrap_or_default());
        header.set_size(size);
        header.set_cksum();
        self.archive.append(&header, data)
    }
}

/// A file that has been found.
struct Found<'a> {
    stat: Stat,
    path: &'a [u8],
    target: Option<Vec<u8>>,
    xattrs: Vec<(String, Vec<u8>)>,
}

/// Fills a field of a header. Returns whether the text is too long for it.
fn fill(field: &mut [u8; NAME], text: &[u8]) -> bool {
    let length = text.len().min(NAME);
    field[..length].copy_from_slice(&text[..length]);
    text.len() > NAME
}

/// The extended attributes that an import takes.
fn xattrs(file: &OwnedFd) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut names = Vec::new();
    let mut space = vec![0; 4096];
    loop {
        match flistxattr(file, &mut space) {
            Ok(length) => break names.extend_from_slice(&space[..length]),
            Err(rustix::io::Errno::RANGE) if space.len() < 1 << 20 => space.resize(space.len() * 4, 0),
            Err(rustix::io::Errno::OPNOTSUPP) => break,
            Err(errno) => return Err(errno.into()),
        }
    }
    let mut found = Vec::new();
    for name in names.split(|byte| *byte == 0) {
        let Ok(name) = std::str::from_utf8(name) else { continue };
        if name != "security.capability" && !name.starts_with("user.") {
            continue;
        }
        let mut value = vec![0; 64 << 10];
        let length = fgetxattr(file, name, &mut value)?;
        value.truncate(length);
        if kept(name, &value).is_some() {
            found.push((name.to_owned(), value));
        }
    }
    found.sort();
    Ok(found)
}

fn readable() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC
}

/// Computes digest and size of what is written to it.
struct Hashing<'a> {
    hasher: Sha256,
    size: u64,
    proceed: &'a dyn Fn() -> bool,
}

impl Write for Hashing<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        ask(self.proceed)?;
        self.hasher.update(data);
        self.size += data.len() as u64;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Passes on as many bytes as were announced.
struct Checked<'a, W> {
    out: &'a mut W,
    left: u64,
    proceed: &'a dyn Fn() -> bool,
}

impl<W: Write> Write for Checked<'_, W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        ask(self.proceed)?;
        let left = self.left.checked_sub(data.len() as u64);
        self.left = left.ok_or_else(|| io::Error::other("the files changed while they were written"))?;
        self.out.write_all(data)?;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn ask(proceed: &dyn Fn() -> bool) -> io::Result<()> {
    if proceed() { Ok(()) } else { Err(io::Error::other("cancelled")) }
}
