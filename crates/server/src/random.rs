//! Random ids and secrets, from the operating system's generator through `rand`'s thread generator.

use std::fmt::Write;

use rand::Rng;
use sandcove_wire::id::{SandboxId, TemplateId};
use sandcove_wire::secret::Secret;

fn digits() -> [u8; 20] {
    let mut random = rand::rng();
    std::array::from_fn(|_| random.random_range(0..36))
}

fn hex<const N: usize>() -> String {
    let bytes: [u8; N] = rand::rng().random();
    bytes.iter().fold(String::with_capacity(2 * N), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(crate) fn sandbox_id() -> SandboxId {
    SandboxId::from_random(digits())
}

pub(crate) fn template_id() -> TemplateId {
    TemplateId::from_random(digits())
}

/// The id of a secret: a UUID by time in 26 digits of Crockford's base 32 (contract: control-plane, section 4.1).
pub(crate) fn secret_id() -> String {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let id = uuid::Uuid::now_v7().as_u128();
    let digits = (0..26).rev().map(|place| char::from(DIGITS[(id >> (5 * place)) as usize % 32]));
    "sec_".chars().chain(digits).collect()
}

/// A secret of 64 hex digits.
pub(crate) fn token() -> Secret {
    Secret::new(hex::<32>())
}

/// An API key: `e2b_` and 40 hex digits, a form that clients check.
pub(crate) fn api_key() -> Secret {
    Secret::new(format!("e2b_{}", hex::<20>()))
}

/// An access token: `sk_e2b_` and 40 hex digits.
pub(crate) fn access_token() -> Secret {
    Secret::new(format!("sk_e2b_{}", hex::<20>()))
}
