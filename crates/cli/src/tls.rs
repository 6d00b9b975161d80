//! Settings of TLS: where the certificate comes from, and which plain address leads to it.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use sandcove_names::{Acme, Check, LETS_ENCRYPT};
use serde::Deserialize;

use crate::address::address;

/// Options of TLS.
#[derive(Debug, Clone, Default, Args)]
pub struct TlsArgs {
    /// certificate for TLS: `local` for one of this server's own authority, which clients have to trust (`sandcove trust`); `acme` for one
    /// that is issued for --domain [default: that of --tls-cert, or none]
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
    /// refuse plain HTTP from other machines
    #[arg(long, env = "SANDCOVE_TLS_ONLY", value_parser = clap::builder::FalseyValueParser::new(), action = clap::ArgAction::SetTrue)]
    tls_only: bool,
    /// addresses that clients reach this server at, separated by commas; it answers DNS for its domain with them [default: that of
    /// --listen]
    #[arg(long, env = "SANDCOVE_PUBLIC_ADDRESS", value_delimiter = ',', value_name = "ADDRESS")]
    public_address: Option<Vec<IpAddr>>,
    /// address to answer DNS at for the domain, over UDP and TCP [default: with --tls acme port 53 of the address of --listen]
    #[arg(long, env = "SANDCOVE_DNS_LISTEN", value_name = "HOST:PORT", value_parser = address)]
    dns_listen: Option<SocketAddr>,
    /// directory of the ACME authority that issues the certificate [default: that of Let's Encrypt]
    #[arg(long, env = "SANDCOVE_ACME_DIRECTORY", value_name = "URL")]
    acme_directory: Option<String>,
    /// PEM file with the CA certificates that the ACME server is verified against [default: what this host trusts]
    #[arg(long, env = "SANDCOVE_ACME_CA", value_name = "FILE")]
    acme_ca: Option<PathBuf>,
    /// how the authority checks the domain [default: dns]
    #[arg(long, env = "SANDCOVE_ACME_CHECK", value_name = "HOW", value_enum)]
    acme_check: Option<AcmeCheck>,
}

/// Options of TLS from the configuration file.
#[derive(Debug, Default)]
pub struct TlsFile {
    pub tls: Option<TlsChoice>,
    pub tls_cert: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    pub redirect_listen: Option<SocketAddr>,
    pub tls_only: bool,
    pub public_address: Option<Vec<IpAddr>>,
    pub dns_listen: Option<SocketAddr>,
    pub acme_directory: Option<String>,
    pub acme_ca: Option<PathBuf>,
    pub acme_check: Option<AcmeCheck>,
}

/// The certificate of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TlsChoice {
    /// plain HTTP only
    Off,
    /// a certificate of the server's own authority, for one machine or a team that trusts it
    Local,
    /// a certificate that an authority issues for the domain, which this server answers DNS for
    Acme,
}

/// How an authority checks the domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AcmeCheck {
    /// by questions to this server, which answers DNS for the domain (dns-01)
    Dns,
    /// by a record that is added to the DNS once, and names this server's account (dns-persist-01)
    DnsPersist,
}

/// Settings of TLS.
#[derive(Debug, Clone, Default)]
pub struct TlsSettings {
    /// Where the certificate comes from; plain HTTP only when unset.
    pub source: Option<CertificateSource>,
    /// An address that redirects plain HTTP to TLS.
    pub redirect: Option<SocketAddr>,
    /// Whether other machines are refused plain HTTP.
    pub only: bool,
    /// Addresses that clients reach the server at, where they are not those that it listens on.
    pub public: Vec<IpAddr>,
    /// Where DNS is answered for the domain, if it is said.
    pub dns: Option<SocketAddr>,
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
    /// An authority that speaks ACME.
    Acme(Acme),
}

impl TlsSettings {
    /// Merges flags and environment with the file.
    pub fn resolve(args: TlsArgs, file: TlsFile) -> Result<Self> {
        let files = (args.tls_cert.or(file.tls_cert), args.tls_key.or(file.tls_key));
        let acme = (args.acme_directory.or(file.acme_directory), args.acme_ca.or(file.acme_ca));
        let check = match args.acme_check.or(file.acme_check) {
            Some(AcmeCheck::Dns) | None => Check::Dns,
            Some(AcmeCheck::DnsPersist) => Check::DnsPersist,
        };
        let source = match (args.tls.or(file.tls), files) {
            (Some(TlsChoice::Acme), (None, None)) => {
                Some(CertificateSource::Acme(authority(acme.0, acme.1, check)?))
            }
            (Some(TlsChoice::Acme), _) => {
                bail!("--tls acme has a certificate issued; use it without --tls-cert and --tls-key")
            }
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
        let only = args.tls_only || file.tls_only;
        if only && source.is_none() {
            bail!("--tls-only needs a certificate: use --tls-cert and --tls-key, --tls acme, or --tls local");
        }
        let public = args.public_address.or(file.public_address).unwrap_or_default();
        Ok(Self { source, redirect, only, public, dns: args.dns_listen.or(file.dns_listen) })
    }
}

/// The authority that issues certificates.
fn authority(directory: Option<String>, ca: Option<PathBuf>, check: Check) -> Result<Acme> {
    let directory = directory.unwrap_or_else(|| LETS_ENCRYPT.to_owned());
    if !directory.starts_with("https://") {
        bail!("--acme-directory has to begin with https://, and is `{directory}`");
    }
    let read = |path: PathBuf| {
        std::fs::read_to_string(&path)
            .with_context(|| format!("failed to read `{}` (--acme-ca)", path.display()))
    };
    Ok(Acme { directory, roots: ca.map(read).transpose()?, check })
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
        let acme = source(Some(TlsChoice::Acme), None, None);
        assert!(
            matches!(&acme, Some(CertificateSource::Acme(acme)) if acme.directory == LETS_ENCRYPT),
            "{acme:?}"
        );
        assert!(resolve(Some(TlsChoice::Acme), Some("c"), Some("k")).is_err());
    }

    #[test]
    fn an_authority_is_asked_by_https_only() {
        let error = authority(Some("http://acme.example/directory".into()), None, Check::Dns)
            .unwrap_err()
            .to_string();
        assert!(error.contains("begin with https://"), "{error}");
    }

    #[test]
    fn there_is_no_redirect_without_tls() {
        let args = TlsArgs { redirect_listen: Some("0.0.0.0:80".parse().unwrap()), ..TlsArgs::default() };
        let error = TlsSettings::resolve(args, TlsFile::default()).unwrap_err().to_string();
        assert!(error.starts_with("--redirect-listen needs a certificate"), "{error}");
        let args = TlsArgs { tls_only: true, ..TlsArgs::default() };
        let error = TlsSettings::resolve(args, TlsFile::default()).unwrap_err().to_string();
        assert!(error.starts_with("--tls-only needs a certificate"), "{error}");
    }
}
