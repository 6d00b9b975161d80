//! What a certificate says: until when it is valid, and for which names.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use tokio_rustls::rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, GeneralName, ParsedExtension, X509Certificate, X509Error};

/// A certificate is damaged, as its parser reports.
#[derive(Debug, thiserror::Error)]
#[error("it is damaged ({0})")]
pub(super) struct Damaged(#[from] x509_parser::nom::Err<X509Error>);

/// The parts of a certificate that matter here.
pub(super) struct Parsed {
    /// Seconds since 1970.
    pub(super) not_before: i64,
    /// Seconds since 1970.
    pub(super) not_after: i64,
    /// Names of hosts, which may begin with `*.`.
    names: Vec<String>,
    /// For an authority, the domains it may sign for; none when it may sign for all.
    pub(super) permitted: Vec<String>,
}

impl Parsed {
    /// Reads a certificate.
    pub(super) fn read(certificate: &CertificateDer<'_>) -> Result<Self, Damaged> {
        let (_, parsed) = X509Certificate::from_der(certificate)?;
        let dns = |name: &GeneralName<'_>| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
            _ => None,
        };
        let (mut names, mut permitted) = (Vec::new(), Vec::new());
        for extension in parsed.extensions() {
            match extension.parsed_extension() {
                ParsedExtension::SubjectAlternativeName(found) => {
                    names.extend(found.general_names.iter().filter_map(dns));
                }
                ParsedExtension::NameConstraints(found) => {
                    let subtrees = found.permitted_subtrees.iter().flatten();
                    permitted.extend(subtrees.filter_map(|subtree| dns(&subtree.base)));
                }
                _ => {}
            }
        }
        let validity = parsed.validity();
        Ok(Self {
            not_before: validity.not_before.timestamp(),
            not_after: validity.not_after.timestamp(),
            names,
            permitted,
        })
    }

    /// Whether the certificate is for `host`.
    pub(super) fn covers(&self, host: &str) -> bool {
        let parent = host.split_once('.').map(|(_, parent)| parent);
        self.names.iter().any(|name| match name.strip_prefix("*.") {
            Some(rest) => parent.is_some_and(|parent| parent.eq_ignore_ascii_case(rest)),
            None => name.eq_ignore_ascii_case(host),
        })
    }
}

/// Seconds since 1970.
pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// A point in time, given in seconds since 1970, for a message.
pub(super) fn date(seconds: i64) -> String {
    Timestamp::from_second(seconds).map_or_else(|_| "an unknown day".to_owned(), |time| time.to_string())
}
