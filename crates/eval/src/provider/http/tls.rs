//! Connections with certificates of their own: `tls`.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use reqwest::tls::Version;
use reqwest::{Certificate, Client, Identity};
use serde_json::Value;

use super::error::HttpError;
use super::scope::Scope;
use crate::calling::transport;
use crate::model::Object;
use crate::reading::files;

/// Reason why there is no client for a `tls`.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The setting has another type.
    #[error("must be a map, not {0}")]
    NotAMap(Value),
    #[error("`ca` holds no certificate")]
    NoCertificate,
    /// A setting is not what the library for TLS takes.
    #[error("{setting}: {reason}")]
    Setting { setting: &'static str, reason: String },
    #[error(transparent)]
    Pem(#[from] PemError),
}

/// Reason why there is no PEM: its file could not be read.
#[derive(Debug, thiserror::Error)]
#[error("failed to read `{path}`: {error}")]
pub struct PemError {
    path: String,
    error: std::io::Error,
}

/// The client of a provider with `tls`; made for the first request.
#[derive(Debug, Default)]
pub struct TlsClient(OnceLock<Result<Client, Arc<TlsError>>>);

impl TlsClient {
    /// Returns the client; nothing if the one of all providers will do.
    pub fn client(&self, config: &Object, scope: &Scope<'_>) -> Result<Option<Client>, HttpError> {
        let Some(tls) = config.get("tls").and_then(Value::as_object) else { return Ok(None) };
        let rendered = scope.templates.render_value(&Value::Object(tls.clone()), &scope.vars)?;
        let made = self.0.get_or_init(|| match &rendered {
            Value::Object(tls) => client(tls, scope.base).map_err(Arc::new),
            other => Err(Arc::new(TlsError::NotAMap(other.clone()))),
        });
        made.clone().map(Some).map_err(HttpError::Tls)
    }
}

fn client(tls: &Object, base: &Path) -> Result<Client, TlsError> {
    let failed =
        |setting, error: reqwest::Error| TlsError::Setting { setting, reason: transport::reason(&error) };
    let mut builder = transport::builder();
    if let Some(authorities) = pem(tls, ["ca", "caPath"], base)? {
        let certificates = Certificate::from_pem_bundle(authorities.as_bytes());
        let certificates = certificates.map_err(|error| failed("ca", error))?;
        if certificates.is_empty() {
            return Err(TlsError::NoCertificate);
        }
        // As in Node, these authorities take the place of the known ones.
        builder = builder.tls_certs_only(certificates);
    }
    if let Some((certificate, key)) =
        pem(tls, ["cert", "certPath"], base)?.zip(pem(tls, ["key", "keyPath"], base)?)
    {
        let identity = Identity::from_pem(format!("{key}\n{certificate}").as_bytes());
        builder = builder.identity(identity.map_err(|error| failed("cert and key", error))?);
    }
    if tls.get("rejectUnauthorized") == Some(&Value::Bool(false)) {
        builder = builder.tls_danger_accept_invalid_certs(true);
    }
    if let Some(version) = version(tls, "minVersion") {
        builder = builder.tls_version_min(version);
    }
    if let Some(version) = version(tls, "maxVersion") {
        builder = builder.tls_version_max(version);
    }
    builder.build().map_err(|error| failed("the connection", error))
}

/// Returns PEM that is written in the configuration, or in the file that it names.
pub fn pem(of: &Object, [inline, path]: [&str; 2], base: &Path) -> Result<Option<String>, PemError> {
    let lines = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => Some(parts.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n")),
        _ => None,
    };
    if let Some(text) = of.get(inline).and_then(lines).filter(|text| !text.is_empty()) {
        return Ok(Some(text));
    }
    let Some(file) = of.get(path).and_then(Value::as_str) else { return Ok(None) };
    // `file://` has been replaced by what the file holds.
    if file.contains("-----BEGIN") {
        return Ok(Some(file.to_owned()));
    }
    let read = std::fs::read_to_string(files::resolve(base, file));
    read.map(Some).map_err(|error| PemError { path: file.to_owned(), error })
}

/// The version of TLS that a setting names. The oldest that there are is 1.2.
fn version(tls: &Object, key: &str) -> Option<Version> {
    match tls.get(key).and_then(Value::as_str)? {
        "TLSv1.3" => Some(Version::TLS_1_3),
        _ => Some(Version::TLS_1_2),
    }
}
