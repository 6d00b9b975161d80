//! Checks of signed URLs (contract: envd, section 4.1). Pure.

use sandcove_wire::secret::Secret;
use sandcove_wire::signature::{Operation, UrlSignature};

/// The reason for which a signature is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Rejected {
    #[error("invalid signature")]
    Mismatch,
    // Clients compare this text.
    #[error("signature is already expired")]
    Expired,
}

/// Checks `signature` for an operation on `path` as `username`, both as in the query; `now` in Unix seconds.
pub(super) fn check(
    signature: &UrlSignature,
    path: &str,
    operation: Operation,
    username: &str,
    token: &Secret,
    now: i64,
) -> Result<(), Rejected> {
    if !signature.is_made_with(token, path, operation, username) {
        Err(Rejected::Mismatch)
    } else if signature.is_expired(now) {
        Err(Rejected::Expired)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // printf %s '/home/user/a.txt:read:user:token:1000' | openssl dgst -sha256 -binary | base64 | tr -d =
    const KNOWN: &str = "v1_olXK5W0JjHyqZ2JEMpQcx2IwjG0rM93LMsvrQYv4FAY";

    #[test]
    fn a_signature_made_elsewhere_is_accepted_until_it_expires() {
        let try_at = |now, operation| {
            let signature = UrlSignature { value: KNOWN.into(), expiration: Some(1000) };
            check(&signature, "/home/user/a.txt", operation, "user", &Secret::new("token"), now)
        };
        assert_eq!(try_at(1000, Operation::Read), Ok(()));
        assert_eq!(try_at(1001, Operation::Read), Err(Rejected::Expired));
        // Whether a signature is genuine is decided before whether it has expired.
        assert_eq!(try_at(1001, Operation::Write), Err(Rejected::Mismatch));
    }
}
