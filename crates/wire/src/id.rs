//! Identifiers, parsed once at the edge (contract: control-plane, section 4.1).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The client id in every sandbox answer. Clients up to 1.5 append it to the sandbox id.
pub const CLIENT_ID: &str = "6532622b";

/// The error of an id that does not have the right form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {kind} `{value}`")]
pub struct InvalidId {
    kind: &'static str,
    value: String,
}

fn short(value: &str) -> String {
    value.chars().take(64).collect()
}

/// The id of a sandbox: `i` and 20 characters of `[a-z0-9]`; any `[a-z0-9]+` up to 63 characters is read.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SandboxId(String);

impl SandboxId {
    /// Makes an id from 20 uniformly random values below 36.
    pub fn from_random(digits: [u8; 20]) -> Self {
        let mut id = String::from("i");
        id.extend(digits.map(|d| char::from(b"abcdefghijklmnopqrstuvwxyz0123456789"[usize::from(d % 36)])));
        Self(id)
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SandboxId {
    type Err = InvalidId;

    /// Reads `<id>` or `<id>-<clientID>`; more than one dash is refused.
    fn from_str(value: &str) -> Result<Self, InvalidId> {
        let invalid = || InvalidId { kind: "sandbox ID", value: short(value) };
        let id = match value.split_once('-') {
            Some((id, client)) if !client.contains('-') => id,
            Some(_) => return Err(invalid()),
            None => value,
        };
        let plain = id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        if id.is_empty() || id.len() > 63 || !plain { Err(invalid()) } else { Ok(Self(id.to_owned())) }
    }
}

impl TryFrom<String> for SandboxId {
    type Error = InvalidId;

    fn try_from(value: String) -> Result<Self, InvalidId> {
        value.parse()
    }
}

impl From<SandboxId> for String {
    fn from(id: SandboxId) -> Self {
        id.0
    }
}

impl fmt::Display for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The id of a template: 20 characters of `[a-z0-9]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TemplateId(String);

impl TemplateId {
    /// Makes an id from 20 uniformly random values below 36.
    pub fn from_random(digits: [u8; 20]) -> Self {
        Self(SandboxId::from_random(digits).0[1..].to_owned())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TemplateId {
    type Err = InvalidId;

    fn from_str(value: &str) -> Result<Self, InvalidId> {
        let plain = value.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        if value.len() == 20 && plain {
            Ok(Self(value.to_owned()))
        } else {
            Err(InvalidId { kind: "template ID", value: short(value) })
        }
    }
}

impl TryFrom<String> for TemplateId {
    type Error = InvalidId;

    fn try_from(value: String) -> Result<Self, InvalidId> {
        value.parse()
    }
}

impl From<TemplateId> for String {
    fn from(id: TemplateId) -> Self {
        id.0
    }
}

impl fmt::Display for TemplateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn composite_ids_of_old_clients_are_read() {
        let id: SandboxId = "iabc-6532622b".parse().unwrap();
        assert_eq!(id.as_str(), "iabc");
    }

    #[test]
    fn ids_that_could_be_paths_are_refused() {
        for bad in ["", "-", "a-b-c", "../x", "A", "a/b", "a.b", "a\0", &"a".repeat(64)] {
            assert!(bad.parse::<SandboxId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn random_ids_have_the_documented_form() {
        let id = SandboxId::from_random([255; 20]);
        assert_eq!(id.as_str().len(), 21);
        assert!(id.as_str().starts_with('i'));
        assert_eq!(TemplateId::from_random([3; 20]).as_str().len(), 20);
    }
}
