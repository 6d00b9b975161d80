//! Settings of TLS: where the certificate comes from, and which plain address leads to it.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use serde::Deserialize;

use crate::address::address;

/// Options of TLS.
#[derive(Debug, Clone, Default, Args)]
pub struct TlsArgs {
    /// certificate for TLS: `local` for one of this server's own authority, which clients have to trust (`sandcove trust`) [default:
    /// that of --tls-cert, or none]
    #[arg(long, env = "SANDCOVE_TLS", value_name = "WHICH", value_enum)]
    tls: Option<TlsChoice>,
    /// PEM file with the certificate of `api.<domain>` and `*.<domain>`, and those that lead to its authority; read again when it changes
    #[arg(long, env = "SANDCOVE_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// PEM file with the key of that certificate
    #[arg(long, env = "SANDCOVE_TLS_KEY", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// address that redirects plain HTTP to TLS, as `0.0.0.0:80`
    #[arg(long, env = "SANDCOVE_REDIRECT_LISTEN", value_name = "HOST:PORT", value_parser = address)]
    redirect_listen: Option<SocketAddr>,
}

/// Options of TLS from the configuration file.
#[derive(Debug, Default)]
pub struct TlsFile {
    pub tls: Option<TlsChoice>,
    pub tls_cert: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    pub redirect_listen: Option<SocketAddr>,
}

/// The certificate of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TlsChoice {
    /// plain HTTP only
    Off,
    /// a certificate of the server's own authority, for one machine or a team that trusts it
    Local,
}

/// Settings of TLS.
#[derive(Debug, Clone, Default)]
pub struct TlsSettings {
    /// Where the certificate comes from; plain HTTP only when unset.
    pub source: Option<CertificateSource>,
    /// An address that redirects plain HTTP to TLS.
    pub redirect: Option<SocketAddr>,
}

/// Where a certificate comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateSource {
    /// The server's own authority.
    Local,
    /// Two files.
    Files {
        /// The certificate, and those that lead to its authority.
        certificate: PathBuf,
        /// The key of the certificate.
        key: PathBuf,
    },
}

impl TlsSettings {
    /// Merges flags and environment with the file.
    pub fn resolve(args: TlsArgs, file: TlsFile) -> Result<Self> {
        let files = (args.tls_cert.or(file.tls_cert), args.tls_key.or(file.tls_key));
        let source = match (args.tls.or(file.tls), files) {
            (Some(TlsChoice::Off), _) | (None, (None, None)) => None,
            (Some(TlsChoice::Local), (None, None)) => Some(CertificateSource::Local),
            (None, (Some(certificate), Some(key))) => Some(CertificateSource::Files { certificate, key }),
            (None, (Some(_), None)) => {
                bail!("--tls-cert needs --tls-key: the file with the certificate's key")
            }
            (None, (None, Some(_))) => {
                bail!("--tls-key needs --tls-cert: the file with the key's certificate")
            }
            (Some(TlsChoice::Local), _) => {
                bail!("--tls local makes a certificate of its own; use it without --tls-cert and --tls-key")
            }
        };
        let redirect = args.redirect_listen.or(file.redirect_listen);
        if redirect.is_some() && source.is_none() {
            bail!(
                "--redirect-listen needs a certificate to redirect to: use --tls-cert and --tls-key, or --tls local"
            );
        }
        Ok(Self { source, redirect })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(tls: Option<TlsChoice>, cert: Option<&str>, key: Option<&str>) -> Result<TlsSettings> {
        let args = TlsArgs { tls, tls_cert: cert.map(Into::into), ..TlsArgs::default() };
        TlsSettings::resolve(args, TlsFile { tls_key: key.map(Into::into), ..TlsFile::default() })
    }

    #[test]
    fn a_certificate_comes_from_one_place() {
        let source = |tls, cert, key| resolve(tls, cert, key).unwrap().source;
        assert_eq!(source(None, None, None), None);
        assert_eq!(source(Some(TlsChoice::Local), None, None), Some(CertificateSource::Local));
        let files = CertificateSource::Files { certificate: "c".into(), key: "k".into() };
        assert_eq!(source(None, Some("c"), Some("k")), Some(files));
        assert_eq!(source(Some(TlsChoice::Off), Some("c"), Some("k")), None);
        for (tls, cert, key) in
            [(None, Some("c"), None), (None, None, Some("k")), (Some(TlsChoice::Local), Some("c"), Some("k"))]
        {
            assert!(resolve(tls, cert, key).is_err(), "{tls:?} {cert:?} {key:?}");
        }
    }

    #[test]
    fn there_is_no_redirect_without_tls() {
        let args = TlsArgs { redirect_listen: Some("0.0.0.0:80".parse().unwrap()), ..TlsArgs::default() };
        let error = TlsSettings::resolve(args, TlsFile::default()).unwrap_err().to_string();
        assert!(error.starts_with("--redirect-listen needs a certificate"), "{error}");
    }
}
