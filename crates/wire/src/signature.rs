//! Signatures of file URLs (contract: envd, section 4.1). A signed URL opens one file for one operation without a token.
//! The agent checks signatures; the server's proxy identifies the sandbox of a URL by them. No clock: the time is a value.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use sha2::{Digest, Sha256};

use crate::secret::Secret;

/// The beginning of every signature.
const PREFIX: &str = "v1_";
/// Length of a signature, bytes: the prefix, and 32 bytes in base64 without padding.
const LENGTH: usize = PREFIX.len() + 43;

/// The operation that a signature allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A download.
    Read,
    /// An upload.
    Write,
}

/// The signature of a URL as a request presents it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlSignature {
    /// The signature itself.
    pub value: String,
    /// Expiry, Unix seconds. Negative values are allowed, and have expired.
    pub expiration: Option<i64>,
}

impl Operation {
    fn text(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

impl UrlSignature {
    /// Signs a URL for an operation on `path` as `username`, both as in the query, until `expiration`, Unix seconds.
    pub fn sign(
        token: &Secret,
        path: &str,
        operation: Operation,
        username: &str,
        expiration: Option<i64>,
    ) -> Self {
        let value = value(signed_before_token(path, operation, username), token, expiration);
        Self { value, expiration }
    }

    /// Whether the signature can be one at all.
    pub fn is_well_formed(&self) -> bool {
        self.value.starts_with(PREFIX) && self.value.len() == LENGTH
    }

    /// Whether the signature was made with `token` for an operation on `path` as `username`, both as in the query. Compares
    /// in constant time. The expiry is part of what is signed, but an expired signature matches too.
    pub fn is_made_with(&self, token: &Secret, path: &str, operation: Operation, username: &str) -> bool {
        self.check(path, operation, username)(token)
    }

    /// The check of [`UrlSignature::is_made_with`] for any number of tokens. A path may be long; it is hashed once for all of them.
    pub fn check(&self, path: &str, operation: Operation, username: &str) -> impl Fn(&Secret) -> bool {
        let signed = signed_before_token(path, operation, username);
        move |token| Secret::new(value(signed.clone(), token, self.expiration)).matches(&self.value)
    }

    /// Whether the signature has expired at `now`, Unix seconds.
    pub fn is_expired(&self, now: i64) -> bool {
        self.expiration.is_some_and(|expiration| expiration < now)
    }
}

/// The hash of what is signed before the token.
fn signed_before_token(path: &str, operation: Operation, username: &str) -> Sha256 {
    Sha256::new_with_prefix(format!("{path}:{}:{username}:", operation.text()))
}

fn value(mut signed: Sha256, token: &Secret, expiration: Option<i64>) -> String {
    signed.update(token.expose());
    if let Some(expiration) = expiration {
        signed.update(format!(":{expiration}"));
    }
    format!("{PREFIX}{}", STANDARD_NO_PAD.encode(signed.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    // printf %s '/home/user/a.txt:read:user:token:1000' | openssl dgst -sha256 -binary | base64 | tr -d =
    const KNOWN: &str = "v1_olXK5W0JjHyqZ2JEMpQcx2IwjG0rM93LMsvrQYv4FAY";

    fn matches(value: &str, expiration: Option<i64>, operation: Operation, token: &str) -> bool {
        let signature = UrlSignature { value: value.into(), expiration };
        signature.is_made_with(&Secret::new(token), "/home/user/a.txt", operation, "user")
    }

    #[test]
    fn everything_in_a_signature_counts() {
        assert!(matches(KNOWN, Some(1000), Operation::Read, "token"));
        assert!(!matches(KNOWN, Some(1000), Operation::Write, "token"));
        assert!(!matches(KNOWN, Some(2000), Operation::Read, "token"));
        assert!(!matches(KNOWN, None, Operation::Read, "token"));
        assert!(!matches(KNOWN, Some(1000), Operation::Read, "other"));
        assert!(!matches("", Some(1000), Operation::Read, "token"));
    }

    #[test]
    fn one_check_is_for_any_number_of_tokens() {
        let signature = UrlSignature { value: KNOWN.into(), expiration: Some(1000) };
        let is_made_with = signature.check("/home/user/a.txt", Operation::Read, "user");
        let found = ["other", "token", "to", "token"].map(|token| is_made_with(&Secret::new(token)));
        assert_eq!(found, [false, true, false, true]);
    }

    #[test]
    fn the_form_of_a_signature_is_known_before_anything_is_hashed() {
        let is_well_formed =
            |value: &str| UrlSignature { value: value.into(), expiration: None }.is_well_formed();
        assert!(is_well_formed(KNOWN));
        for other in ["", "v1_", "v1_x", &KNOWN.replace("v1_", "v2_"), &format!("{KNOWN}=")] {
            assert!(!is_well_formed(other), "{other}");
        }
    }

    #[test]
    fn a_signature_is_good_up_to_the_second_of_its_expiry() {
        let at = |expiration| UrlSignature { value: String::new(), expiration };
        assert!(!at(Some(1000)).is_expired(1000));
        assert!(at(Some(1000)).is_expired(1001));
        assert!(at(Some(-1)).is_expired(0));
        assert!(!at(None).is_expired(i64::MAX));
    }
}
