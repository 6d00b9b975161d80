//! Signed URLs (contract: envd, section 4.1). Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use sandcove_wire::secret::Secret;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// What a signature allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// A download.
    Read,
    /// An upload.
    Write,
}

impl Operation {
    fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// A signature with its expiry, as presented.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Signed {
    pub(super) value: String,
    /// Unix seconds. Negative ones are allowed, and long over.
    pub(super) expiration: Option<i64>,
}

/// Why a signature does not open the door.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Rejected {
    #[error("invalid signature")]
    Mismatch,
    // Clients compare this text.
    #[error("signature is already expired")]
    Expired,
}

/// Checks `signed` for an operation on `path` as `username`, both as in the query; `now` in Unix seconds.
pub(super) fn check(
    signed: &Signed,
    path: &str,
    operation: Operation,
    username: &str,
    token: &Secret,
    now: i64,
) -> Result<(), Rejected> {
    let mut text = format!("{path}:{}:{username}:{}", operation.word(), token.expose());
    if let Some(expiration) = signed.expiration {
        text.push_str(&format!(":{expiration}"));
    }
    let expected = format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text)));
    if !bool::from(expected.as_bytes().ct_eq(signed.value.as_bytes())) {
        return Err(Rejected::Mismatch);
    }
    match signed.expiration {
        Some(expiration) if expiration < now => Err(Rejected::Expired),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // printf %s '/home/user/a.txt:read:user:token:1000' | openssl dgst -sha256 -binary | base64 | tr -d =
    const KNOWN: &str = "v1_olXK5W0JjHyqZ2JEMpQcx2IwjG0rM93LMsvrQYv4FAY";

    fn try_at(now: i64, value: &str, expiration: Option<i64>, operation: Operation) -> Result<(), Rejected> {
        let signed = Signed { value: value.into(), expiration };
        check(&signed, "/home/user/a.txt", operation, "user", &Secret::new("token"), now)
    }

    #[test]
    fn a_signature_made_elsewhere_is_accepted_until_it_expires() {
        assert_eq!(try_at(1000, KNOWN, Some(1000), Operation::Read), Ok(()));
        assert_eq!(try_at(1001, KNOWN, Some(1000), Operation::Read), Err(Rejected::Expired));
    }

    #[test]
    fn everything_in_it_counts() {
        assert_eq!(try_at(0, KNOWN, Some(1000), Operation::Write), Err(Rejected::Mismatch));
        assert_eq!(try_at(0, KNOWN, Some(2000), Operation::Read), Err(Rejected::Mismatch));
        assert_eq!(try_at(0, KNOWN, None, Operation::Read), Err(Rejected::Mismatch));
        assert_eq!(try_at(0, "", Some(1000), Operation::Read), Err(Rejected::Mismatch));
    }
}
