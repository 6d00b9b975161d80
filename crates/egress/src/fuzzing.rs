//! Checks that must hold for any bytes that the egress proxy reads: the first bytes of a connection out of a sandbox, and
//! answers of name servers. The programs in `fuzz/` search for bytes that break them; the tests below replay the inputs they
//! have collected.

use std::net::Ipv4Addr;

use crate::dns_message::{Answer, MAX_ADDRESSES, Query};
use crate::requested_host::{RequestedHost, host_name};

/// Maximum length of inputs whose prefixes are all checked, bytes.
const MAX_ALL_PREFIXES: usize = 512;

/// Checks the first bytes of a connection.
pub fn requested_host(input: &[u8]) {
    let whole = RequestedHost::read(input);
    if let RequestedHost::Name(name) = &whole {
        assert_eq!(host_name(name).as_ref(), Some(name), "the name is not in its normal form");
        assert!(name.is_ascii() && name.parse::<Ipv4Addr>().is_err());
        let in_input = input.windows(name.len()).any(|part| part.eq_ignore_ascii_case(name.as_bytes()));
        // A TLS hello may cut a name into records.
        assert!(in_input || input[0] == 0x16, "the name is not in the input");
    }
    let step = input.len() / MAX_ALL_PREFIXES + 1;
    for end in (0..input.len()).step_by(step) {
        let part = RequestedHost::read(&input[..end]);
        // More bytes never change a decision, so a client cannot have one host checked and request another.
        assert!(part == RequestedHost::Incomplete || part == whole, "{part:?} at {end}, then {whole:?}");
    }
}

/// Checks an answer to the query with the number 7 for `www.example.com`.
pub fn dns_answer(input: &[u8]) {
    let Ok(query) = Query::new(7, "www.example.com") else { return };
    let answer = query.read_answer(input);
    let Some(answer) = answer else { return };
    assert!(input.starts_with(&query.bytes()[..2]) && input[2] & 0x80 != 0, "not an answer to this query");
    let question = query.bytes().len();
    assert!(input[12..question].eq_ignore_ascii_case(&query.bytes()[12..]), "another question was answered");
    if let Answer::Addresses(addresses) = &answer {
        assert!(addresses.len() <= MAX_ADDRESSES);
        for address in addresses {
            assert!(input[question..].windows(4).any(|bytes| bytes == address.octets()));
        }
    }
    let longer = [input, b"more"].concat();
    assert_eq!(query.read_answer(&longer), Some(answer), "bytes after the answer changed it");
    let other = Query::new(8, "www.example.com").map(|other| other.read_answer(input));
    assert!(matches!(other, Ok(None)), "it answers another query too");
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn replay(corpus: &str, check: fn(&[u8])) {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(corpus);
        let inputs: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!inputs.is_empty());
        for input in inputs {
            println!("{}", input.display());
            check(&std::fs::read(input).unwrap());
        }
    }

    #[test]
    fn the_first_bytes_collected_by_fuzzing_hold() {
        replay("requested_host", requested_host);
    }

    #[test]
    fn the_dns_answers_collected_by_fuzzing_hold() {
        replay("dns_answer", dns_answer);
    }

    /// The server name as a TLS library reads it; `None` for a hello that it refuses or that has no name.
    fn name_by_rustls(mut bytes: &[u8]) -> Option<String> {
        let mut acceptor = tokio_rustls::rustls::server::Acceptor::default();
        while acceptor.read_tls(&mut bytes).ok()? > 0 {
            if let Some(accepted) = acceptor.accept().ok()? {
                return accepted.client_hello().server_name().map(str::to_owned);
            }
        }
        None
    }

    #[test]
    fn a_tls_library_reads_the_same_names() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/requested_host");
        let mut compared = 0;
        for entry in std::fs::read_dir(corpus).unwrap() {
            let whole = std::fs::read(entry.unwrap().path()).unwrap();
            for at in 0..whole.len().min(1024) {
                for change in [0, 1, 0x80, 0xff] {
                    let mut bytes = whole.clone();
                    bytes[at] ^= change;
                    if let (RequestedHost::Name(ours), Some(theirs)) =
                        (RequestedHost::read(&bytes), name_by_rustls(&bytes))
                    {
                        assert_eq!(Some(ours), host_name(&theirs), "byte {at} changed by {change}");
                        compared += 1;
                    }
                }
            }
        }
        assert!(compared > 1000, "only {compared} hellos had a name for both");
    }
}
