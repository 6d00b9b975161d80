//! Imports images from registries, OCI layout directories and archives of `docker save`. All layers of an image are flattened into one
//! plain tree, which becomes a layer of the [`LayerStore`] with the name `oci-<first 32 hex digits of the configuration's digest>`.
//!
//! ```text
//! reference -- registry (auth, network) --> manifest, configuration --> platform
//!                   |                                                      |
//!                   '-- download: blobs, in parallel, resumed --> unpack: compression -> tar -> tree
//! ```
//!
//! Layers are unpacked by a process of their own for each import (`process.rs`), which the caller starts without rights.
//!
//! Everything that a registry sends is hostile: digests and sizes of manifests, configurations, compressed and uncompressed layers are
//! verified, and the kernel resolves every path of a layer with the tree as root (`tree.rs`), so no link leads out of it.
//!
//! What a tree has afterwards, in terms of the image:
//! - ids as inside a sandbox, 0 to 65,535; a file with a larger id is an error;
//! - permissions with set-id bits, modification times, and the extended attributes `security.capability` and `user.*`; others are dropped;
//! - pipes and hard links; sparse files stay sparse. Device nodes below `/dev`, which every sandbox has of its own, are left out; a device
//!   node anywhere else is an error;
//! - whiteouts and opaque directories applied. If an archive names a path twice, the last entry wins;
//! - no absolute names: these are relative to the root. A name with `..` is an error.

mod ahead;
mod archive;
mod auth;
mod blob;
mod compression;
mod digest;
mod download;
mod ecr;
mod error;
mod export;
#[cfg(any(test, fuzzing, debug_assertions))]
pub mod fuzzing;
mod import;
mod layer;
mod manifest;
mod network;
pub mod pax;
mod platform;
mod process;
mod reference;
mod registry;
mod settings;
mod sparse;
mod tar_stream;
mod target;
mod tree;
mod write;
mod xattrs;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

pub use blob::Blob;
pub use error::{Error, Result};
pub use export::{Exported, export};
pub use layer::{LayerError, Limit, Limits};
pub use platform::Platform;
pub use process::unpack_as_asked;
pub use settings::{CreatedSocket, Credentials, Guard, Mirror, Progress, Settings};
pub use target::{ImportJob, ImportStart, Sha256Digest, StoreImport, Target, TargetError, TargetImport};

use crate::Lease;

/// An imported image.
#[derive(Debug, Clone)]
pub struct Image<L = Lease> {
    /// Name of its layer in the store.
    pub layer: String,
    /// Digest of its manifest, `sha256:<hex>`.
    pub digest: String,
    /// Environment variables of its configuration, in order, without those that are empty.
    pub env: Vec<(String, String)>,
    /// User of its configuration.
    pub user: Option<String>,
    /// Directory of its configuration.
    pub workdir: Option<String>,
    /// Labels of its configuration.
    pub labels: BTreeMap<String, String>,
    /// Size of the files, bytes, before compression by the file system.
    pub size_bytes: u64,
    /// Keeps the layer in the store until a template names it.
    pub lease: L,
}

/// Pulls `reference` for this machine's platform and publishes it as a layer unless it exists. Dropping the future cancels the import.
///
/// # Errors
/// With the texts of contract 11. [`Error::is_internal`] says whether the host is the reason.
pub async fn import<T: Target>(
    target: &T,
    reference: &str,
    credentials: &Credentials,
    settings: &Settings,
    progress: &mut (dyn FnMut(Progress<'_>) + Send),
) -> Result<Image<T::Lease>> {
    import::from_registry(target, reference, credentials, settings, progress).await
}

/// Imports the image in `path`, which is an OCI layout directory, or an archive of one or of `docker save`, and publishes it as a layer
/// unless it exists. If there are several, `name` has to be the name, tag or digest of one of them.
///
/// # Errors
/// As [`import`].
pub async fn import_archive<T: Target>(
    target: &T,
    path: &Path,
    name: Option<&str>,
    settings: &Settings,
    progress: &mut (dyn FnMut(Progress<'_>) + Send),
) -> Result<Image<T::Lease>> {
    import::from_archive(target, path, name, settings, progress).await
}
