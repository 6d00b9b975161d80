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

/// The id of a secret.
pub(crate) fn secret_id() -> String {
    let digit = |value: u8| char::from_digit(value.into(), 36).unwrap_or('0');
    digits().into_iter().map(digit).fold("sec_".to_owned(), |mut id, digit| {
        id.push(digit);
        id
    })
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
