//! Properties of DNS messages that hold for any bytes.

use crate::message::MAX_ANSWER;
use crate::{Settings, Zone};

/// Checks the answers to a message: they are short, carry the number of the message and are answers; what is refused is no longer than
/// what asked.
pub fn dns_query(message: &[u8]) {
    let zone = Zone::new(&Settings {
        domain: "s.example".into(),
        addresses: vec![[198, 51, 100, 7].into(), "2001:db8::7".parse().unwrap_or([0; 16].into())],
        acme: None,
    });
    zone.set_challenges(vec!["v".repeat(43), "w".repeat(43)]);
    for is_curt in [false, true] {
        let Some(answer) = zone.answer(message, is_curt) else { continue };
        assert!((12..=MAX_ANSWER).contains(&answer.len()));
        assert_eq!(answer[..2], message[..2]);
        assert!(answer[2] & 0x80 != 0 && message[2] & 0x80 == 0);
        let has_extensions = answer[11] == 1;
        let records = answer[7] + answer[9];
        if records == 0 {
            assert!(answer.len() <= message.len() + if has_extensions { 11 } else { 0 });
        }
        assert!(!is_curt || records == 0);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn the_queries_collected_by_fuzzing_hold() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/dns_query");
        let inputs: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!inputs.is_empty());
        for input in inputs {
            super::dns_query(&std::fs::read(input).unwrap());
        }
    }
}
