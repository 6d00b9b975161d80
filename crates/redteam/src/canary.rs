//! Canaries: values that must not come back, also not in another spelling.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

/// Shortest canary that is looked for in other spellings: short ones are met by chance.
const MIN_ENCODED: usize = 8;

/// Returns the spelling in which a text holds a canary: `plain`, `Base64`, `Base64url`, `hex`, `URL-encoded` or `reversed`.
pub fn found(text: &str, canary: &str) -> Option<&'static str> {
    if canary.is_empty() {
        return None;
    }
    if text.contains(canary) {
        return Some("plain");
    }
    if canary.len() < MIN_ENCODED {
        return None;
    }
    // Inside of a longer text that was encoded as a whole, the canary begins at any of three offsets.
    for (name, engine) in [("Base64", &STANDARD), ("Base64url", &URL_SAFE)] {
        for offset in 0..3 {
            let padded: Vec<u8> = std::iter::repeat_n(b'\0', offset).chain(canary.bytes()).collect();
            let encoded = engine.encode(&padded);
            // The first and the last characters also carry bits of the neighbours.
            let from = [0, 2, 3][offset];
            let until = padded.len() / 3 * 4;
            if encoded.get(from..until).is_some_and(|core| core.len() >= MIN_ENCODED && text.contains(core)) {
                return Some(name);
            }
        }
    }
    let hex: String = canary.bytes().map(|byte| format!("{byte:02x}")).collect();
    if text.contains(&hex) || text.contains(&hex.to_uppercase()) {
        return Some("hex");
    }
    let url: String = canary.bytes().map(|byte| format!("%{byte:02X}")).collect();
    if text.contains(&url) || text.contains(&url.to_lowercase()) {
        return Some("URL-encoded");
    }
    text.contains(&canary.chars().rev().collect::<String>()).then_some("reversed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canaries_are_found_in_six_spellings() {
        let canary = "e2b_0123456789abcdef";
        let within = |text: &str| format!("x{text}y");
        assert_eq!(found(&within(canary), canary), Some("plain"));
        for before in ["", "a", "ab", "abc", "{'K': '"] {
            let encoded = STANDARD.encode(format!("{before}{canary} and more"));
            assert_eq!(found(&encoded, canary), Some("Base64"), "{before}");
        }
        assert_eq!(found("6532625f30313233343536373839616263646566", canary), Some("hex"));
        assert_eq!(found("fedcba9876543210_b2e", canary), Some("reversed"));
        let url: String = canary.bytes().map(|byte| format!("%{byte:02x}")).collect();
        assert_eq!(found(&url, canary), Some("URL-encoded"));
        assert_eq!(found("nothing of it", canary), None);
        assert_eq!(found("anything", ""), None);
    }
}
