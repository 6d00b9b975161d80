//! A registry on loopback, images to put into it, and layers as bytes.

use std::collections::HashMap;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tar::{EntryType, Header};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::LayerStore;
use crate::oci::digest::Digest;
use crate::oci::{Credentials, Image, Platform, Progress, Result, Settings, import};

/// A layer that is being written.
pub struct Tar(Vec<u8>);

impl Tar {
    pub fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds an entry; `change` may set anything in its header.
    pub fn entry(
        mut self,
        kind: EntryType,
        path: &str,
        data: &[u8],
        change: impl FnOnce(&mut Header),
    ) -> Self {
        let mut header = Header::new_gnu();
        let name = &mut header.as_old_mut().name;
        name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(if kind == EntryType::Directory { 0o755 } else { 0o644 });
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1_600_000_000);
        header.set_size(data.len() as u64);
        change(&mut header);
        header.set_cksum();
        self.0.extend(header.as_bytes());
        self.raw(data)
    }

    /// Adds bytes, padded to whole blocks.
    pub fn raw(mut self, data: &[u8]) -> Self {
        self.0.extend(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub fn file(self, path: &str, text: &str) -> Self {
        self.entry(EntryType::Regular, path, text.as_bytes(), |_| {})
    }

    pub fn directory(self, path: &str) -> Self {
        self.entry(EntryType::Directory, path, b"", |_| {})
    }

    pub fn symlink(self, path: &str, target: &str) -> Self {
        self.entry(EntryType::Symlink, path, b"", |header| {
            header.set_link_name_literal(target.as_bytes()).unwrap();
        })
    }

    pub fn hard_link(self, path: &str, target: &str) -> Self {
        self.entry(EntryType::Link, path, b"", |header| {
            header.set_link_name_literal(target.as_bytes()).unwrap();
        })
    }

    /// Adds an extended header for the next entry.
    pub fn pax(self, records: &[(&str, &[u8])]) -> Self {
        let mut builder = tar::Builder::new(Vec::new());
        builder.append_pax_extensions(records.iter().copied()).unwrap();
        let mut data = builder.into_inner().unwrap();
        data.truncate(data.len() - 1024);
        self.raw(&data)
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}

pub fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

/// The documents and blobs of an image.
#[derive(Clone)]
pub struct TestImage {
    pub manifest: Vec<u8>,
    pub config: Vec<u8>,
    pub layers: Vec<Vec<u8>>,
}

impl TestImage {
    /// An image with these uncompressed layers, which are compressed with gzip.
    pub fn new(layers: &[Vec<u8>]) -> Self {
        Self::with(layers, |_| {}, |_| {})
    }

    /// An image with changes to its configuration and manifest.
    pub fn with(
        layers: &[Vec<u8>],
        change_config: impl FnOnce(&mut Value),
        change_manifest: impl FnOnce(&mut Value),
    ) -> Self {
        let platform = Platform::host().to_string();
        let diff_ids: Vec<String> = layers.iter().map(|layer| Digest::of(layer).to_string()).collect();
        let mut config = json!({
            "os": "linux",
            "architecture": platform.split('/').nth(1),
            "config": { "Env": ["PATH=/bin", "EMPTY="], "User": "ignored" },
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        });
        change_config(&mut config);
        let config = config.to_string().into_bytes();
        let layers: Vec<Vec<u8>> = layers.iter().map(|layer| gzip(layer)).collect();
        let described = layers
            .iter()
            .map(|layer| described("application/vnd.oci.image.layer.v1.tar+gzip", layer))
            .collect::<Vec<_>>();
        let mut manifest = json!({
            "schemaVersion": 2,
            "config": described_config(&config),
            "layers": described,
        });
        change_manifest(&mut manifest);
        Self { manifest: manifest.to_string().into_bytes(), config, layers }
    }

    pub fn layer_name(&self) -> String {
        format!("oci-{}", &Digest::of(&self.config).hex()[..32])
    }
}

fn described_config(config: &[u8]) -> Value {
    described("application/vnd.oci.image.config.v1+json", config)
}

pub fn described(media_type: &str, data: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": Digest::of(data).to_string(), "size": data.len() })
}

/// A request that the registry has received.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub headers: HashMap<String, String>,
    pub body: String,
}

impl Request {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// A response of the registry.
#[derive(Debug, Clone)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The connection ends after so many bytes of the body.
    pub cut: Option<usize>,
}

impl Response {
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into(), cut: None }
    }

    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub fn error(status: u16, code: &str) -> Self {
        Self::new(status, json!({ "errors": [{ "code": code, "message": "no" }] }).to_string())
    }
}

type Handler = Arc<dyn Fn(&Request, Response) -> Response + Send + Sync>;

/// A registry on loopback. A handler sees each request with the response that a good registry would give.
pub struct Registry {
    pub address: SocketAddr,
    files: Arc<Mutex<HashMap<String, Vec<u8>>>>,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Registry {
    pub async fn start() -> Self {
        Self::with(|_, good| good).await
    }

    pub async fn with(handler: impl Fn(&Request, Response) -> Response + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let registry = Self { address, files: Arc::default(), requests: Arc::default() };
        let (files, requests) = (registry.files.clone(), registry.requests.clone());
        let handler: Handler = Arc::new(handler);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, files.clone(), requests.clone(), handler.clone()));
            }
        });
        registry
    }

    /// Adds an image to the repository `a/b`.
    pub fn add(&self, tag: &str, image: &TestImage) {
        self.put(&format!("/v2/a/b/manifests/{tag}"), &image.manifest);
        self.put(&format!("/v2/a/b/manifests/{}", Digest::of(&image.manifest)), &image.manifest);
        for blob in image.layers.iter().chain([&image.config]) {
            self.put(&format!("/v2/a/b/blobs/{}", Digest::of(blob)), blob);
        }
    }

    pub fn put(&self, path: &str, data: &[u8]) {
        self.files.lock().unwrap().insert(path.to_owned(), data.to_vec());
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// Settings that allow this registry, but no other address of the host.
    pub fn settings(&self) -> Settings {
        let mut settings = Settings::new(|address: IpAddr| !address.is_loopback());
        settings.insecure.push(self.address.to_string());
        settings
    }

    pub fn image(&self) -> String {
        format!("{}/a/b:v1", self.address)
    }
}

async fn serve(
    mut stream: TcpStream,
    files: Arc<Mutex<HashMap<String, Vec<u8>>>>,
    requests: Arc<Mutex<Vec<Request>>>,
    handler: Handler,
) {
    let Some(request) = receive(&mut stream).await else { return };
    requests.lock().unwrap().push(request.clone());
    let good = match files.lock().unwrap().get(&request.path) {
        Some(data) => answer(data, request.header("range")),
        None => Response::error(404, "MANIFEST_UNKNOWN"),
    };
    let response = handler(&request, good);
    let mut head = format!("HTTP/1.1 {} X\r\ncontent-length: {}\r\n", response.status, response.body.len());
    for (name, value) in &response.headers {
        head += &format!("{name}: {value}\r\n");
    }
    let end = response.cut.unwrap_or(response.body.len());
    let _ = stream.write_all(format!("{head}\r\n").as_bytes()).await;
    let _ = stream.write_all(&response.body[..end]).await;
    let _ = stream.shutdown().await;
    // Unread bytes would reset the connection.
    let _ = stream.read(&mut [0; 1]).await;
}

async fn receive(stream: &mut TcpStream) -> Option<Request> {
    let mut data = Vec::new();
    let head = loop {
        let mut part = [0; 4096];
        let count = stream.read(&mut part).await.ok().filter(|count| *count > 0)?;
        data.extend(&part[..count]);
        // No TLS here.
        if data[0] == 0x16 {
            return None;
        }
        if let Some(end) = data.windows(4).position(|window| window == b"\r\n\r\n") {
            break String::from_utf8(data.drain(..end + 4).collect()).ok()?;
        }
    };
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: HashMap<String, String> =
        lines.filter_map(|line| line.split_once(": ")).map(|(n, v)| (n.to_lowercase(), v.into())).collect();
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    while data.len() < length {
        let mut part = [0; 4096];
        let count = stream.read(&mut part).await.ok().filter(|count| *count > 0)?;
        data.extend(&part[..count]);
    }
    Some(Request { method, path, headers, body: String::from_utf8_lossy(&data).into_owned() })
}

fn answer(data: &[u8], range: &str) -> Response {
    let start =
        range.strip_prefix("bytes=").and_then(|range| range.strip_suffix('-')).map(str::parse::<usize>);
    match start {
        Some(Ok(start)) if start < data.len() => Response::new(206, &data[start..])
            .header("content-range", format!("bytes {start}-{}/{}", data.len() - 1, data.len())),
        Some(_) => Response::error(416, "RANGE"),
        None => Response::new(200, data),
    }
}

/// A store in a temporary directory, and imports into it.
pub struct Place {
    pub directory: tempfile::TempDir,
    pub store: LayerStore,
}

impl Place {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = LayerStore::open(&directory.path().join("layers")).unwrap();
        Self { directory, store }
    }

    pub async fn import(&self, image: &str, settings: &Settings) -> Result<Image> {
        self.import_as(image, &Credentials::Anonymous, settings).await
    }

    pub async fn import_as(
        &self,
        image: &str,
        credentials: &Credentials,
        settings: &Settings,
    ) -> Result<Image> {
        import(&self.store, image, credentials, settings, &mut |_: Progress<'_>| {}).await
    }

    pub async fn error(&self, image: &str, settings: &Settings) -> String {
        self.import(image, settings).await.unwrap_err().to_string()
    }

    pub fn path(&self, image: &Image) -> PathBuf {
        self.directory.path().join("layers").join(&image.layer)
    }

    /// Names in the directory of layers, once no import is being removed.
    pub fn names(&self) -> Vec<String> {
        let names = || {
            let entries = std::fs::read_dir(self.directory.path().join("layers")).unwrap();
            let mut names: Vec<String> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        // Up to a minute: what is left of an import is removed by a thread of its own.
        for _ in 0..3000 {
            if names().iter().all(|name| !name.starts_with(".importing")) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        names()
    }
}

/// An image with one file, `/etc/name`.
pub fn small() -> TestImage {
    TestImage::new(&[Tar::new().directory("etc").file("etc/name", "small").finish()])
}
