//! Tokens that open one volume for a limited time. A token carries its own proof (an HMAC with a secret of this server), so
//! none is stored.

use hmac::{Hmac, Mac};
use sandcove_wire::secret::Secret;
use sha2::Sha256;
use uuid::Uuid;

/// The issuer of tokens; clones use the same secret.
#[derive(Debug, Clone)]
pub(super) struct Tokens {
    secret: Secret,
}

impl Tokens {
    pub(super) fn new(secret: Secret) -> Self {
        Self { secret }
    }

    /// A token for volume `id`, good until `expiry` (Unix seconds).
    pub(super) fn issue(&self, id: Uuid, expiry: i64) -> String {
        let proof = self.mac(id, expiry).finalize().into_bytes();
        let hex = proof.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        format!("vol_{expiry}_{hex}")
    }

    /// Whether `token` was made for volume `id` and is still good at `now`.
    pub(super) fn opens(&self, token: &str, id: Uuid, now: i64) -> bool {
        let Some((expiry, hex)) = token.strip_prefix("vol_").and_then(|rest| rest.split_once('_')) else {
            return false;
        };
        let Ok(expiry) = expiry.parse::<i64>() else { return false };
        let proof: Option<Vec<u8>> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()).collect();
        // Compared in constant time.
        expiry > now && proof.is_some_and(|proof| self.mac(id, expiry).verify_slice(&proof).is_ok())
    }

    fn mac(&self, id: Uuid, expiry: i64) -> Hmac<Sha256> {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(self.secret.expose().as_bytes()).expect("any key");
        mac.update(id.as_bytes());
        mac.update(&expiry.to_be_bytes());
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_opens_its_own_volume_until_it_expires() {
        let tokens = Tokens::new(Secret::new("server"));
        let (a, b) = (Uuid::new_v4(), Uuid::new_v4());
        let token = tokens.issue(a, 100);
        assert!(tokens.opens(&token, a, 99));
        assert!(!tokens.opens(&token, a, 100));
        assert!(!tokens.opens(&token, b, 99));
        assert!(!Tokens::new(Secret::new("other")).opens(&token, a, 99));
        for forged in [
            token.replace("vol_100_", "vol_200_"),
            token[..token.len() - 2].to_owned(),
            format!("{token}00"),
            "vol_100_".into(),
            "vol_100_é".into(),
            "vol_100_zz".into(),
            "e2b_00".into(),
            String::new(),
        ] {
            assert!(!tokens.opens(&forged, a, 99), "{forged}");
        }
    }
}
