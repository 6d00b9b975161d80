//! The configuration file.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sandcove_image::oci::Mirror;
use sandcove_wire::secret::Secret;
use serde::Deserialize;

use super::DEFAULT_CONFIG;
use super::choices::{InterpreterToken, LanguageChoice, ParkAfter};
use crate::address::address_in_file;
use crate::log_filter::LogFormat;
use crate::registries::mirrors_in_file;
use crate::tls::{AcmeCheck, TlsChoice};

/// The configuration file. Secrets come from here or from the environment, never from flags, which every account of the
/// machine can read.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    pub(super) data_dir: Option<PathBuf>,
    #[serde(deserialize_with = "address_in_file")]
    pub(super) listen: Option<SocketAddr>,
    pub(super) domain: Option<String>,
    pub(super) tls: Option<TlsChoice>,
    pub(super) tls_cert: Option<PathBuf>,
    pub(super) tls_key: Option<PathBuf>,
    #[serde(deserialize_with = "address_in_file")]
    pub(super) redirect_listen: Option<SocketAddr>,
    pub(super) tls_only: bool,
    pub(super) public_address: Option<Vec<IpAddr>>,
    #[serde(deserialize_with = "address_in_file")]
    pub(super) dns_listen: Option<SocketAddr>,
    pub(super) acme_directory: Option<String>,
    pub(super) acme_ca: Option<PathBuf>,
    pub(super) acme_check: Option<AcmeCheck>,
    pub(super) network: Option<String>,
    pub(super) dns: Option<Vec<IpAddr>>,
    pub(super) max_sandboxes: Option<u32>,
    pub(super) paused_memory: Option<u32>,
    pub(super) park_after: Option<ParkAfter>,
    pub(super) criu: Option<PathBuf>,
    pub(super) volume_size_gib: Option<u64>,
    pub(super) rate_limit: Option<u32>,
    pub(super) private_webhooks: bool,
    pub(super) seccomp_log: bool,
    pub(super) interpreter_token: Option<InterpreterToken>,
    pub(super) no_legacy: bool,
    pub(super) log_format: Option<LogFormat>,
    pub(super) no_dashboard: bool,
    pub(super) server_account: Option<u32>,
    pub(super) egress_account: Option<u32>,
    pub(super) pool_size_gib: Option<u64>,
    pub(super) spares: Option<usize>,
    pub(super) pool_memory: Option<u32>,
    pub(super) warm_memory: Option<u64>,
    pub(super) team_warm_memory: Option<u64>,
    pub(super) debian_mirror: Option<String>,
    pub(super) template_cache: Option<PathBuf>,
    pub(super) languages: Option<LanguageChoice>,
    pub(super) all_languages: Option<bool>,
    pub(super) otlp_endpoint: Option<String>,
    pub(super) stop_sandboxes: bool,
    pub(super) max_builds: Option<usize>,
    pub(super) gc_interval: Option<u64>,
    #[serde(deserialize_with = "mirrors_in_file")]
    pub(super) registry_mirrors: Option<Vec<Mirror>>,
    pub(super) insecure_registries: Option<Vec<String>>,
    pub(super) private_registries: Option<Vec<String>>,
    pub(super) api_key: Option<Secret>,
    pub(super) access_token: Option<Secret>,
    pub(super) admin_token: Option<Secret>,
}

/// Reads a configuration file, or that of the usual place if there is one.
pub(super) fn read(path: Option<&Path>) -> Result<File> {
    let (path, required) = match path {
        Some(path) => (path, true),
        None => (Path::new(DEFAULT_CONFIG), false),
    };
    match std::fs::read_to_string(path) {
        Ok(text) => toml::from_str(&text).with_context(|| format!("failed to read `{}`", path.display())),
        // An account that may not read the file runs no server, and reaches one by its address.
        Err(error)
            if !required && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) =>
        {
            Ok(File::default())
        }
        Err(error) => Err(error).with_context(|| format!("failed to read `{}`", path.display())),
    }
}

/// The keys that the configuration file may have.
#[cfg(test)]
pub fn keys_of_file() -> std::collections::BTreeSet<String> {
    // An unknown key is an error that names all known ones.
    let error = toml::from_str::<File>("unknown = 1").unwrap_err();
    error.message().split('`').skip(3).step_by(2).map(str::to_owned).collect()
}
