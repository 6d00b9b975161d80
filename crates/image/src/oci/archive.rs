//! Images in files: OCI layout directories, and archives of a layout or of `docker save`, compressed or not.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use super::blob::Blob;
use super::compression::{decompress, is_compressed};
use super::digest::{Digest, Hashing};
use super::error::{Error, Result};
use super::import::{Plan, check, choose};
use super::layer::Limit;
use super::manifest::{Config, Descriptor, Document, MAX_CONFIG, MAX_MANIFEST};
use super::tar_stream::{Kind, TarStream};

/// Maximum number of files in an archive.
const MAX_FILES: usize = 100_000;
const MAX_LINKS: usize = 8;
/// Annotations that name a manifest.
const NAMES: [&str; 2] = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];

/// Files of an image by name.
pub(super) struct Archive {
    /// Path as given, for errors.
    image: String,
    files: Files,
    /// Paths of the layers in an archive of `docker save`, by the digests of their uncompressed data.
    saved: HashMap<Digest, String>,
}

enum Files {
    Directory(PathBuf),
    Tar { file: Arc<File>, index: HashMap<String, Place> },
}

/// A file of an archive.
#[derive(Clone)]
enum Place {
    At { offset: u64, size: u64 },
    Link(String),
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    #[serde(flatten)]
    descriptor: Descriptor,
    #[serde(default)]
    annotations: HashMap<String, String>,
}

/// An image in the `manifest.json` of `docker save`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

impl Archive {
    /// Opens the directory or archive `path`. A compressed archive is unpacked to the empty file `scratch`, with up to `limit` bytes.
    pub(super) fn open(path: &Path, scratch: File, limit: u64) -> Result<Self> {
        let image = path.display().to_string();
        let metadata = std::fs::metadata(path).map_err(Error::host("open", path))?;
        if metadata.is_dir() {
            return Ok(Self { image, files: Files::Directory(path.to_owned()), saved: HashMap::new() });
        }
        let mut file = File::open(path).map_err(Error::host("open", path))?;
        let mut magic = [0; 4];
        let is_packed = file.read_exact_at(&mut magic, 0).is_ok() && is_compressed(magic);
        let invalid = |error: io::Error| Error::Invalid { image: image.clone(), reason: error.to_string() };
        if is_packed {
            let mut unpacked = scratch;
            let mut input = decompress(&file).map_err(invalid)?.take(limit);
            io::copy(&mut input, &mut unpacked).map_err(|error| match error.kind() {
                io::ErrorKind::StorageFull => Error::Full { image: image.clone() },
                _ => invalid(error),
            })?;
            if input.limit() == 0 {
                let what = "it has more data".to_owned();
                return Err(Error::TooLarge { image, what, limit: Limit::Bytes(limit) });
            }
            unpacked.flush().and_then(|()| unpacked.rewind()).map_err(Error::host("unpack", path))?;
            drop(input);
            file = unpacked;
        }
        let index = index(&file).map_err(invalid)?;
        Ok(Self { image, files: Files::Tar { file: Arc::new(file), index }, saved: HashMap::new() })
    }

    /// Finds the image with this name, tag or digest, or the only one.
    pub(super) fn plan(&mut self, name: Option<&str>) -> Result<Plan> {
        if self.has("index.json") { self.layout(name) } else { self.docker(name) }
    }

    /// Opens a layer, after its digest and size have been verified. Layers of `docker save` are verified when they are unpacked.
    pub(super) fn verified(&self, layer: &Descriptor) -> Result<Blob> {
        if let Some(path) = self.saved.get(&layer.digest) {
            return self.open_file(path);
        }
        let name = blob_name(&layer.digest);
        let blob = self.open_file(&name)?;
        if blob.size != layer.size {
            return Err(self.invalid(format!("{name} has {} bytes instead of {}", blob.size, layer.size)));
        }
        let found = Hashing::new(blob.reader(), blob.size)
            .finish()
            .map_err(|error| self.invalid(format!("{name} cannot be read: {error}")))?;
        if found != layer.digest {
            return Err(self.invalid(format!("{name} has the digest {found}")));
        }
        Ok(blob)
    }

    fn layout(&self, name: Option<&str>) -> Result<Plan> {
        let bytes = self.read("index.json", MAX_MANIFEST)?;
        let index: Index = serde_json::from_slice(&bytes)
            .map_err(|error| self.invalid(format!("index.json cannot be read: {error}")))?;
        let is_wanted = |listed: &&Listed| {
            name.is_none_or(|name| {
                listed.descriptor.digest.to_string() == name
                    || NAMES.iter().any(|key| listed.annotations.get(*key).is_some_and(|value| value == name))
            })
        };
        let found: Vec<&Listed> = index.manifests.iter().filter(is_wanted).collect();
        let descriptors: Vec<Descriptor> = found.iter().map(|listed| listed.descriptor.clone()).collect();
        let top = match descriptors.as_slice() {
            [] => return Err(Error::UnknownTag(self.image.clone())),
            [only] => only.clone(),
            // The same image for several platforms.
            several if several.iter().all(|one| one.platform.is_some()) => {
                choose(&self.image, several)?.clone()
            }
            _ => {
                let names: Vec<&str> = found
                    .iter()
                    .filter_map(|listed| NAMES.iter().find_map(|key| listed.annotations.get(*key)))
                    .map(String::as_str)
                    .take(20)
                    .collect();
                return Err(
                    self.invalid(format!("it holds several images; choose one of {}", names.join(", ")))
                );
            }
        };
        let digest = top.digest;
        let mut at = top;
        for _ in 0..4 {
            let bytes = self.blob(&at, MAX_MANIFEST)?;
            match Document::parse(&bytes).map_err(|error| self.invalid(error.to_string()))? {
                Document::Index(manifests) => at = choose(&self.image, &manifests)?.clone(),
                Document::Manifest { config, layers } => {
                    let bytes = self.blob(&config, MAX_CONFIG)?;
                    let (config, config_digest) = (self.config(&bytes)?, config.digest);
                    return Ok(Plan { image: self.image.clone(), digest, config, config_digest, layers });
                }
            }
        }
        Err(self.invalid("its indexes are nested too deeply".to_owned()))
    }

    fn docker(&mut self, name: Option<&str>) -> Result<Plan> {
        let bytes = self.read("manifest.json", MAX_MANIFEST).map_err(|_| {
            self.invalid(
                "it has neither index.json nor manifest.json; use an OCI layout or `docker save`".to_owned(),
            )
        })?;
        let images: Vec<Saved> = serde_json::from_slice(&bytes)
            .map_err(|error| self.invalid(format!("manifest.json cannot be read: {error}")))?;
        let tags = |image: &Saved| image.repo_tags.clone().unwrap_or_default();
        let mut found =
            images.iter().filter(|image| name.is_none_or(|name| tags(image).iter().any(|tag| tag == name)));
        let saved = match (found.next(), found.next()) {
            (None, _) => return Err(Error::UnknownTag(self.image.clone())),
            (Some(only), None) => only,
            (Some(_), Some(_)) => {
                let names: Vec<String> = images.iter().flat_map(tags).take(20).collect();
                return Err(
                    self.invalid(format!("it holds several images; choose one of {}", names.join(", ")))
                );
            }
        };
        let bytes = self.read(&saved.config, MAX_CONFIG)?;
        let (config, config_digest) = (self.config(&bytes)?, Digest::of(&bytes));
        let mut layers = Vec::new();
        for (path, diff_id) in saved.layers.iter().zip(config.diff_ids()) {
            let size = self.open_file(path)?.size;
            layers.push(Descriptor { media_type: String::new(), digest: *diff_id, size, platform: None });
            self.saved.insert(*diff_id, path.clone());
        }
        if saved.layers.len() != layers.len() {
            return Err(self
                .invalid("manifest.json and the configuration have different numbers of layers".to_owned()));
        }
        Ok(Plan { image: self.image.clone(), digest: config_digest, config, config_digest, layers })
    }

    fn config(&self, bytes: &[u8]) -> Result<Config> {
        Config::parse(bytes).map_err(|error| self.invalid(error.to_string()))
    }

    fn blob(&self, descriptor: &Descriptor, limit: u64) -> Result<Vec<u8>> {
        let name = blob_name(&descriptor.digest);
        let bytes = self.read(&name, limit)?;
        check(&bytes, descriptor, &name).map_err(|error| self.invalid(error.to_string()))?;
        Ok(bytes)
    }

    fn read(&self, name: &str, limit: u64) -> Result<Vec<u8>> {
        let blob = self.open_file(name)?;
        if blob.size > limit {
            return Err(self.invalid(format!("{name} has {} bytes; {limit} are supported", blob.size)));
        }
        let mut bytes = Vec::new();
        blob.reader()
            .take(limit)
            .read_to_end(&mut bytes)
            .map_err(|error| self.invalid(format!("{name} cannot be read: {error}")))?;
        Ok(bytes)
    }

    fn has(&self, name: &str) -> bool {
        self.open_file(name).is_ok()
    }

    /// Opens a file of the image.
    fn open_file(&self, name: &str) -> Result<Blob> {
        let missing = || self.invalid(format!("{name} is missing"));
        match &self.files {
            Files::Directory(directory) => {
                let name = normal("", name).ok_or_else(missing)?;
                let file = File::open(directory.join(&name)).map_err(|_| missing())?;
                let metadata = file.metadata().map_err(|_| missing())?;
                if !metadata.is_file() {
                    return Err(missing());
                }
                Ok(Blob { file: Arc::new(file), offset: 0, size: metadata.len() })
            }
            Files::Tar { file, index } => {
                let mut at = normal("", name).ok_or_else(missing)?;
                for _ in 0..MAX_LINKS {
                    match index.get(&at).ok_or_else(missing)? {
                        Place::At { offset, size } => {
                            return Ok(Blob { file: file.clone(), offset: *offset, size: *size });
                        }
                        Place::Link(target) => at.clone_from(target),
                    }
                }
                Err(missing())
            }
        }
    }

    fn invalid(&self, reason: String) -> Error {
        Error::Invalid { image: self.image.clone(), reason }
    }
}

fn blob_name(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// Finds the files in a tar archive.
fn index(file: &File) -> io::Result<HashMap<String, Place>> {
    let mut input = file;
    input.seek(SeekFrom::Start(0))?;
    let mut stream =
        TarStream::new(Counting { inner: BufReader::with_capacity(256 << 10, input), position: 0 });
    let mut index = HashMap::new();
    let mut is_tar = false;
    // What is wrong with the first header of another file says nothing to its owner, and quotes it.
    let other = |_| io::Error::other("it is not a tar archive; use an OCI layout or `docker save`");
    while let Some(entry) = stream.next().map_err(|error| if is_tar { error } else { other(error) })? {
        is_tar = true;
        let path = String::from_utf8(entry.path).ok().and_then(|path| normal("", &path));
        let Some(path) = path else { continue };
        let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
        let target =
            |target: Vec<u8>, base| String::from_utf8(target).ok().and_then(|target| normal(base, &target));
        let place = match entry.kind {
            Kind::File(None) => Some(Place::At { offset: stream.input().position, size: stream.left() }),
            Kind::Symlink(link) => target(link, directory).map(Place::Link),
            Kind::HardLink(link) => target(link, "").map(Place::Link),
            _ => None,
        };
        if let Some(place) = place {
            index.insert(path, place);
        }
        if index.len() > MAX_FILES {
            return Err(io::Error::other("it has more than 100000 files"));
        }
    }
    Ok(index)
}

/// Resolves `path`, from the directory `base`, without leaving the archive.
fn normal(base: &str, path: &str) -> Option<String> {
    let mut names: Vec<&str> = if path.starts_with('/') { Vec::new() } else { base.split('/').collect() };
    for name in path.split('/') {
        match name {
            ".." => {
                names.pop()?;
            }
            name => names.push(name),
        }
    }
    names.retain(|name| !name.is_empty() && *name != ".");
    (!names.is_empty()).then(|| names.join("/"))
}

/// A reader that knows its position.
struct Counting<R> {
    inner: R,
    position: u64,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.position += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_the_archive() {
        for (base, path, expected) in [
            ("", "blobs//sha256/./a", Some("blobs/sha256/a")),
            ("b", "../a/layer.tar", Some("a/layer.tar")),
            ("b", "/etc/passwd", Some("etc/passwd")),
            ("", "./", None),
            ("b", "../../a", None),
        ] {
            assert_eq!(normal(base, path).as_deref(), expected, "{path}");
        }
    }
}
