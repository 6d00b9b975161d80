//! Links that let a client upload one file set of its team for a limited time, without an API key. A link carries its own proof
//! (an HMAC with a secret of this server), so none is stored.

use std::fmt::Write;

use hmac::{Hmac, Mac};
use sandcove_wire::secret::Secret;
use sha2::Sha256;
use uuid::Uuid;

/// The issuer of upload links.
#[derive(Debug)]
pub(crate) struct UploadLinks {
    secret: Secret,
}

impl UploadLinks {
    pub(crate) fn new(secret: Secret) -> Self {
        Self { secret }
    }

    /// The proof of a link for the file set `hash` of a team, good until `expiry` (Unix seconds); hexadecimal.
    pub(crate) fn issue(&self, team: Uuid, hash: &str, expiry: i64) -> String {
        let proof = self.mac(team, hash, expiry).finalize().into_bytes();
        proof.iter().fold(String::with_capacity(64), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// Whether `token` is the proof of that link.
    pub(crate) fn proves(&self, token: &str, team: Uuid, hash: &str, expiry: i64) -> bool {
        let proof: Option<Vec<u8>> = (0..token.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(token.get(at..at + 2)?, 16).ok())
            .collect();
        // Compared in constant time.
        proof.is_some_and(|proof| self.mac(team, hash, expiry).verify_slice(&proof).is_ok())
    }

    fn mac(&self, team: Uuid, hash: &str, expiry: i64) -> Hmac<Sha256> {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(self.secret.expose().as_bytes()).expect("any key");
        mac.update(team.as_bytes());
        mac.update(&expiry.to_be_bytes());
        mac.update(hash.as_bytes());
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_of_one_team_file_set_and_time() {
        let links = UploadLinks::new(Secret::new("server"));
        let (a, b) = (Uuid::new_v4(), Uuid::new_v4());
        let token = links.issue(a, "00ff", 100);
        assert!(links.proves(&token, a, "00ff", 100));
        assert!(!links.proves(&token, b, "00ff", 100));
        assert!(!links.proves(&token, a, "00fe", 100));
        assert!(!links.proves(&token, a, "00ff", 101));
        assert!(!UploadLinks::new(Secret::new("other")).proves(&token, a, "00ff", 100));
        for forged in ["", "0", "é", "zz", &token[2..], &format!("{token}00")] {
            assert!(!links.proves(forged, a, "00ff", 100), "{forged}");
        }
    }
}
