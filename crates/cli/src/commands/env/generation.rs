//! What the releases of the E2B packages read from their environment.

use std::str::FromStr;

use super::{DASHBOARD, KEY, Variables, dashboard};
use crate::commands::trust::Trusted;

/// The first release that takes the address of sandbox traffic. Those before send it to `https://<port>-<sandbox>.<domain>`.
const TAKES_ADDRESSES: (u32, u32) = (2, 7);

/// A release of the E2B packages, or the newest of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation {
    major: u32,
    /// `u32::MAX` for the newest.
    minor: u32,
}

/// The language of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Language {
    /// clients in Python
    #[value(alias = "python")]
    Py,
    /// clients in JavaScript and TypeScript
    #[value(alias = "javascript", alias = "ts")]
    Js,
}

impl Generation {
    /// Whether clients can be given addresses instead of a domain.
    pub(super) fn takes_addresses(self) -> bool {
        (self.major, self.minor) >= TAKES_ADDRESSES
    }

    /// Whether some releases refuse keys that are not `e2b_` and hexadecimal digits, unless a variable stops them.
    fn checks_keys(self) -> bool {
        self.major >= 2
    }
}

impl FromStr for Generation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a release such as 2.6.1, 2.x, 1.x or 0.x");
        let mut parts = text.split('.');
        let major = parts.next().and_then(|major| major.parse().ok()).ok_or_else(wrong)?;
        let minor = match parts.next() {
            None | Some("x") => u32::MAX,
            Some(minor) => minor.parse().map_err(|_| wrong())?,
        };
        Ok(Self { major, minor })
    }
}

/// The variables of clients that find a server by its domain, with TLS. `trusted` is the server's own authority, if the certificate is
/// one of it.
pub(super) fn by_name(
    domain: &str,
    key: &str,
    generation: Generation,
    language: Option<Language>,
    trusted: Option<&Trusted>,
) -> Variables {
    let links = dashboard(&format!("https://api.{domain}"));
    let mut set = vec![("E2B_DOMAIN", domain.to_owned()), (DASHBOARD, links), (KEY, key.to_owned())];
    let digits = key.strip_prefix("e2b_").filter(|digits| !digits.is_empty());
    let is_usual =
        digits.is_some_and(|digits| digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')));
    if generation.checks_keys() && !is_usual {
        set.push(("E2B_VALIDATE_API_KEY", "false".to_owned()));
    }
    let is = |one| language.is_none_or(|language| language == one);
    if let Some(trusted) = trusted {
        if is(Language::Js) {
            set.push(("NODE_EXTRA_CA_CERTS", trusted.certificate.display().to_string()));
        }
        if is(Language::Py) {
            for name in ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"] {
                set.push((name, trusted.bundle.display().to_string()));
            }
        }
    }
    // Each of them leads clients away from the domain.
    let unset = vec!["E2B_API_URL", "E2B_SANDBOX_URL", "E2B_VOLUME_API_URL", "E2B_DEBUG", "E2B_SECURE"];
    Variables { set, unset }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(text: &str) -> Generation {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_are_for_releases_since_2_7() {
        for new in ["2.7", "2.7.0", "2.x", "2", "2.63.0", "3.x"] {
            assert!(release(new).takes_addresses(), "{new}");
        }
        for old in ["2.6.1", "2.0", "1.x", "1", "0.x", "0.17.1"] {
            assert!(!release(old).takes_addresses(), "{old}");
        }
        for wrong in ["", "x", "2.y", "newest"] {
            assert!(wrong.parse::<Generation>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_language_has_its_own_way_to_trust() {
        let trusted = Trusted { certificate: "/ca".into(), bundle: "/all".into() };
        let names = |language, trusted| {
            let variables = by_name("sbx.localhost:3000", "e2b_0a", release("1.x"), language, trusted);
            variables.set.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(names(None, None), ["E2B_DOMAIN", "E2B_DASHBOARD_BASE", "E2B_API_KEY"]);
        assert_eq!(names(Some(Language::Js), Some(&trusted))[3..], ["NODE_EXTRA_CA_CERTS"]);
        assert_eq!(names(Some(Language::Py), Some(&trusted))[3..], ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"]);
        assert_eq!(names(None, Some(&trusted)).len(), 6);
    }

    #[test]
    fn unusual_keys_are_announced_to_releases_that_check_them() {
        let checks = |key, sdk| {
            let variables = by_name("d", key, release(sdk), None, None);
            variables.set.iter().any(|(name, _)| *name == "E2B_VALIDATE_API_KEY")
        };
        assert!(checks("secret", "2.x") && checks("e2b_XY", "2.30") && checks("e2b_", "2.x"));
        assert!(!checks("secret", "1.x") && !checks("e2b_0a9", "2.x"));
    }
}
