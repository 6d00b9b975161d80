//! The host that a connection requests in its first bytes: the server name of a TLS ClientHello, or the `Host` of a
//! plain HTTP request. The bytes come from a sandbox, so anything may be in them.

use std::net::Ipv4Addr;

use crate::client_hello::{self, ServerName};

/// Maximum number of headers of a request.
const MAX_HEADERS: usize = 128;

/// Result of reading the first bytes of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestedHost {
    /// Name of the host, in lowercase, without a trailing dot.
    Name(String),
    /// More bytes are needed.
    Incomplete,
    /// No host name, several, an address, or another protocol.
    Unnamed,
}

impl RequestedHost {
    /// Reads the first bytes of a connection.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        match bytes.first() {
            None => Self::Incomplete,
            Some(&client_hello::HANDSHAKE) => match client_hello::server_name(bytes) {
                ServerName::Found(name) => Self::named(&name),
                ServerName::Incomplete => Self::Incomplete,
                ServerName::Missing => Self::Unnamed,
            },
            Some(_) => read_http(bytes),
        }
    }

    fn named(text: &[u8]) -> Self {
        std::str::from_utf8(text).ok().and_then(host_name).map_or(Self::Unnamed, Self::Name)
    }
}

/// Whether the first bytes of a connection are those of TLS.
pub(crate) fn is_tls(bytes: &[u8]) -> bool {
    bytes.first() == Some(&client_hello::HANDSHAKE)
}

/// Normalizes `text` for comparison; `None` when it is an address or cannot be looked up.
pub(crate) fn host_name(text: &str) -> Option<String> {
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    let is_name = name.len() <= 253 && name.split('.').all(is_label) && name.parse::<Ipv4Addr>().is_err();
    is_name.then(|| name.to_ascii_lowercase())
}

fn read_http(bytes: &[u8]) -> RequestedHost {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return RequestedHost::Incomplete,
        Err(_) => return RequestedHost::Unnamed,
    }
    let mut hosts = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => RequestedHost::named(without_port(host.value.trim_ascii())),
        // Of two, the server on the other side chooses one, so neither is trusted.
        _ => RequestedHost::Unnamed,
    }
}

fn without_port(host: &[u8]) -> &[u8] {
    match host.iter().rposition(|byte| *byte == b':') {
        Some(colon) if host[colon + 1..].iter().all(u8::is_ascii_digit) => &host[..colon],
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prefixed<const N: usize>(content: &[u8]) -> Vec<u8> {
        let length = (content.len() as u64).to_be_bytes();
        [&length[8 - N..], content].concat()
    }

    fn extension(names: &[&str]) -> Vec<u8> {
        let names: Vec<u8> =
            names.iter().flat_map(|n| [vec![0], prefixed::<2>(n.as_bytes())].concat()).collect();
        [vec![0, 0], prefixed::<2>(&prefixed::<2>(&names))].concat()
    }

    /// A handshake message with `extensions`.
    fn hello(extensions: &[Vec<u8>]) -> Vec<u8> {
        let other = [vec![0, 16], prefixed::<2>(b"\0\x03\x02h2")].concat();
        let body = [
            vec![3, 3],
            vec![7; 32],
            prefixed::<1>(&[1; 32]),
            prefixed::<2>(&[0x13, 1]),
            prefixed::<1>(&[0]),
            prefixed::<2>(&[other, extensions.concat()].concat()),
        ];
        [vec![1], prefixed::<3>(&body.concat())].concat()
    }

    fn records(handshake: &[u8], size: usize) -> Vec<u8> {
        handshake.chunks(size).flat_map(|part| [vec![0x16, 3, 1], prefixed::<2>(part)].concat()).collect()
    }

    fn host(name: &str) -> RequestedHost {
        RequestedHost::Name(name.into())
    }

    #[test]
    fn a_server_name_is_found_however_it_is_cut_into_records() {
        let handshake = hello(&[extension(&["Api.Example.COM"])]);
        for size in [1, 3, 4, 50, handshake.len()] {
            let bytes = records(&handshake, size);
            assert_eq!(RequestedHost::read(&bytes), host("api.example.com"));
            for end in 0..bytes.len() {
                assert_eq!(
                    RequestedHost::read(&bytes[..end]),
                    RequestedHost::Incomplete,
                    "{end} of {}",
                    bytes.len()
                );
            }
        }
    }

    #[test]
    fn a_hello_without_one_clear_name_has_none() {
        let long = format!("{}.com", "a".repeat(64));
        for extensions in [
            vec![],
            vec![extension(&[])],
            vec![extension(&["a.com", "b.com"])],
            vec![extension(&["a.com"]), extension(&["b.com"])],
            vec![extension(&["1.2.3.4"])],
            vec![extension(&["a.com\0.b.com"])],
            vec![extension(&[&long])],
            vec![extension(&["*.com"])],
            vec![extension(&[""])],
        ] {
            assert_eq!(
                RequestedHost::read(&records(&hello(&extensions), 9999)),
                RequestedHost::Unnamed,
                "{extensions:?}"
            );
        }
        let mut other = records(&hello(&[extension(&["a.com"])]), 9999);
        other[5] = 2;
        assert_eq!(RequestedHost::read(&other), RequestedHost::Unnamed);
    }

    #[test]
    fn a_plain_request_is_judged_by_its_host() {
        let request = |host: &str| format!("GET / HTTP/1.1\r\nA: b\r\n{host}\r\n\r\n");
        for (header, expected) in [
            ("Host: Example.com", host("example.com")),
            ("host:example.com.:8080", host("example.com")),
            ("X: y", RequestedHost::Unnamed),
            ("Host: 1.2.3.4", RequestedHost::Unnamed),
            ("Host: [::1]:80", RequestedHost::Unnamed),
            ("Host: a.com\r\nHost: b.com", RequestedHost::Unnamed),
            ("Host: a.com, b.com", RequestedHost::Unnamed),
            ("Host: a.com@b.com", RequestedHost::Unnamed),
        ] {
            let bytes = request(header);
            assert_eq!(RequestedHost::read(bytes.as_bytes()), expected, "{header}");
            for end in 0..bytes.len() {
                assert_eq!(RequestedHost::read(&bytes.as_bytes()[..end]), RequestedHost::Incomplete);
            }
        }
    }

    #[test]
    fn other_protocols_have_no_name() {
        for bytes in [
            &b"SSH-2.0-OpenSSH_9.2\r\n"[..],
            b"\0\0\0\x08\x04\xd2\x16\x2f",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ] {
            assert_eq!(RequestedHost::read(bytes), RequestedHost::Unnamed);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_normal_name_or_none(mut bytes: Vec<u8>, is_tls: bool) {
            if is_tls {
                bytes.splice(..0, [0x16, 3, 1]);
            }
            if let RequestedHost::Name(name) = RequestedHost::read(&bytes) {
                prop_assert_eq!(host_name(&name), Some(name));
            }
        }

        #[test]
        fn a_changed_hello_never_breaks_the_reader(at in 0_usize..120, byte: u8, size in 1_usize..200) {
            let mut handshake = hello(&[extension(&["a.example"])]);
            let at = at % handshake.len();
            handshake[at] = byte;
            let whole = RequestedHost::read(&records(&handshake, 9999));
            // A complete hello is read the same however it is cut into records.
            prop_assert_eq!(RequestedHost::read(&records(&handshake, size)), whole);
        }
    }
}
