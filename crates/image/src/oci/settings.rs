//! What an import is allowed to do, and what it reports.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use sandcove_wire::secret::Secret;
use serde::{Deserialize, Serialize};
use tokio::net::TcpSocket;

/// Creates a socket that is to be connected to an address of the internet; the flag is set for IPv6.
pub type Guard = Arc<dyn Fn(bool) -> CreatedSocket + Send + Sync>;
/// A socket that is being created.
pub type CreatedSocket = Pin<Box<dyn Future<Output = io::Result<TcpSocket>> + Send>>;

/// Settings of imports.
#[derive(Clone)]
pub struct Settings {
    /// Servers that are asked before a registry, in order. They get no credentials.
    pub mirrors: Vec<Mirror>,
    /// Registries that speak HTTP without TLS, as `host` or `host:port`. Their addresses may be private.
    pub insecure: Vec<String>,
    /// Registries with TLS whose addresses may be private, as `host` or `host:port`.
    pub private: Vec<String>,
    /// Whether every registry may have a private, loopback or link-local address.
    pub allow_private: bool,
    /// Number of layers that are downloaded at the same time, at least 1.
    pub parallel: usize,
    /// Maximum size of the uncompressed files of an image, bytes.
    pub max_bytes: u64,
    /// Maximum size of the uncompressed files of an image that was not imported before, bytes, if that is less.
    pub room: u64,
    /// Maximum number of files, directories and links in an image.
    pub max_entries: u64,
    /// Whether an address is on the internet. Other addresses are connected to only where a setting above allows it.
    pub is_public: fn(IpAddr) -> bool,
    /// Creates the sockets for addresses that are on the internet.
    pub guard: Option<Guard>,
    /// URL of Amazon's API for registry tokens; `None` stands for that of the region.
    pub ecr_endpoint: Option<String>,
}

impl Settings {
    /// The defaults, with a function that says whether an address is on the internet.
    pub fn new(is_public: fn(IpAddr) -> bool) -> Self {
        Self {
            mirrors: Vec::new(),
            insecure: Vec::new(),
            private: Vec::new(),
            allow_private: false,
            parallel: 4,
            max_bytes: 25_000_000_000,
            room: u64::MAX,
            max_entries: 2_000_000,
            is_public,
            guard: None,
            ecr_endpoint: None,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("mirrors", &self.mirrors)
            .field("insecure", &self.insecure)
            .field("private", &self.private)
            .field("allow_private", &self.allow_private)
            .field("parallel", &self.parallel)
            .field("max_bytes", &self.max_bytes)
            .field("room", &self.room)
            .field("max_entries", &self.max_entries)
            .finish_non_exhaustive()
    }
}

/// A server with copies of a registry's images.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mirror {
    /// Host of the registry, such as `docker.io`.
    pub registry: String,
    /// URL of the mirror, such as `https://mirror.gcr.io`.
    pub url: String,
}

/// Credentials for a registry. `Debug` hides the secrets.
#[derive(Debug, Clone, Default)]
pub enum Credentials {
    /// No credentials.
    #[default]
    Anonymous,
    /// User name and password.
    Basic {
        /// User name.
        username: String,
        /// Password or token.
        password: Secret,
    },
    /// An access key of Amazon Web Services.
    Ecr {
        /// Id of the access key.
        access_key_id: String,
        /// The access key.
        secret_access_key: Secret,
        /// Region of the registry.
        region: String,
    },
    /// A service account of Google Cloud.
    Gcr {
        /// The key file of the service account: JSON as text.
        service_account_json: Secret,
    },
}

/// Progress of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress<'a> {
    /// The image has been found.
    Resolved {
        /// Digest of its manifest.
        digest: &'a str,
        /// Number of its layers.
        layers: usize,
        /// Size of its compressed layers, bytes.
        size_bytes: u64,
    },
    /// The image has been imported before; nothing else follows.
    Exists,
    /// A part of a layer has arrived. Reported a few times for each layer.
    Downloading {
        /// Digest of the layer.
        layer: &'a str,
        /// Number of bytes that have arrived.
        done: u64,
        /// Size of the compressed layer, bytes.
        size_bytes: u64,
    },
    /// A layer has been unpacked; its digests are right.
    Unpacked {
        /// Digest of the layer.
        layer: &'a str,
        /// Number of the layer, from 1.
        number: usize,
        /// Number of layers.
        of: usize,
    },
}
