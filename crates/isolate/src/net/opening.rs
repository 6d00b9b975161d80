//! Which host a connection says it wants, from its first bytes: the server name of a TLS ClientHello, or the `Host` of a
//! plain HTTP request. The bytes are a sandbox's, so anything may be in them.

use std::net::Ipv4Addr;

/// Headers a request may have.
const MOST_HEADERS: usize = 128;
/// Record type of TLS handshakes.
const HANDSHAKE: u8 = 0x16;
/// Handshake type of a ClientHello.
const CLIENT_HELLO: u8 = 1;
/// A record holds at most this, encrypted ones a little more.
const MOST_RECORD: usize = (1 << 14) + 256;
/// Number of the extension that holds server names, and of names that are hosts.
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// What the first bytes of a connection tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Opening {
    /// The host, in small letters, without a dot at its end.
    Host(String),
    /// Not all of it is there yet.
    Incomplete,
    /// No host, several, an address, or another protocol.
    Nameless,
}

impl Opening {
    /// Reads the first bytes of a connection.
    pub(super) fn of(bytes: &[u8]) -> Self {
        match bytes.first() {
            None => Self::Incomplete,
            Some(&HANDSHAKE) => of_tls(bytes),
            Some(_) => of_http(bytes),
        }
    }

    fn host(text: &[u8]) -> Self {
        std::str::from_utf8(text).ok().and_then(host_name).map_or(Self::Nameless, Self::Host)
    }
}

/// `text` as names are compared, when it is a name that can be asked for and no address.
fn host_name(text: &str) -> Option<String> {
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    let is_name = name.len() <= 253 && name.split('.').all(is_label) && name.parse::<Ipv4Addr>().is_err();
    is_name.then(|| name.to_ascii_lowercase())
}

fn of_http(bytes: &[u8]) -> Opening {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Opening::Incomplete,
        Err(_) => return Opening::Nameless,
    }
    let mut hosts = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => Opening::host(without_port(host.value.trim_ascii())),
        // Which of two counts is for the other side to say: neither is trusted.
        _ => Opening::Nameless,
    }
}

fn without_port(host: &[u8]) -> &[u8] {
    match host.iter().rposition(|byte| *byte == b':') {
        Some(colon) if host[colon + 1..].iter().all(u8::is_ascii_digit) => &host[..colon],
        _ => host,
    }
}

fn of_tls(bytes: &[u8]) -> Opening {
    let hello = match client_hello(bytes) {
        Ok(Some(hello)) => hello,
        Ok(None) => return Opening::Incomplete,
        Err(NotTls) => return Opening::Nameless,
    };
    server_name(&hello).map_or(Opening::Nameless, Opening::host)
}

struct NotTls;

/// The body of the ClientHello, put together from the records it may be spread over; `None` when there is more to come.
fn client_hello(bytes: &[u8]) -> Result<Option<Vec<u8>>, NotTls> {
    let (mut rest, mut handshake) = (Fields(bytes), Vec::new());
    loop {
        if let [kind, a, b, c, body @ ..] = &handshake[..] {
            let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            if *kind != CLIENT_HELLO {
                return Err(NotTls);
            }
            if let Some(whole) = body.get(..length) {
                return Ok(Some(whole.to_vec()));
            }
        }
        let Some(header) = rest.take(5) else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if header[0] != HANDSHAKE || header[1] != 3 || length == 0 || length > MOST_RECORD {
            return Err(NotTls);
        }
        let Some(fragment) = rest.take(length) else { return Ok(None) };
        handshake.extend_from_slice(fragment);
    }
}

/// The only host name among the extensions of a ClientHello.
fn server_name(hello: &[u8]) -> Option<&[u8]> {
    let mut fields = Fields(hello);
    // Version and random bytes, then the session, what it can encrypt and compress with.
    fields.take(2 + 32)?;
    fields.prefixed::<1>()?;
    fields.prefixed::<2>()?;
    fields.prefixed::<1>()?;
    let mut extensions = fields.prefixed::<2>()?;
    let mut found = None;
    while !extensions.0.is_empty() {
        let kind = extensions.number::<2>()?;
        let mut content = extensions.prefixed::<2>()?;
        if kind == usize::from(SERVER_NAME) {
            let mut names = content.prefixed::<2>()?;
            let is_host = names.number::<1>()? == usize::from(HOST_NAME);
            let name = names.prefixed::<2>()?.0;
            if !is_host || !names.0.is_empty() || found.replace(name).is_some() {
                return None;
            }
        }
    }
    found
}

/// Bytes that are read from the front.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// A number of `N` bytes, the highest first.
    fn number<const N: usize>(&mut self) -> Option<usize> {
        Some(self.take(N)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// As many bytes as the `N` bytes before them say.
    fn prefixed<const N: usize>(&mut self) -> Option<Self> {
        let length = self.number::<N>()?;
        self.take(length).map(Fields)
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

    fn host(name: &str) -> Opening {
        Opening::Host(name.into())
    }

    #[test]
    fn a_server_name_is_found_however_it_is_cut_into_records() {
        let handshake = hello(&[extension(&["Api.Example.COM"])]);
        for size in [1, 3, 4, 50, handshake.len()] {
            let bytes = records(&handshake, size);
            assert_eq!(Opening::of(&bytes), host("api.example.com"));
            for end in 0..bytes.len() {
                assert_eq!(Opening::of(&bytes[..end]), Opening::Incomplete, "{end} of {}", bytes.len());
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
            assert_eq!(Opening::of(&records(&hello(&extensions), 9999)), Opening::Nameless, "{extensions:?}");
        }
        let mut other = records(&hello(&[extension(&["a.com"])]), 9999);
        other[5] = 2;
        assert_eq!(Opening::of(&other), Opening::Nameless);
    }

    #[test]
    fn a_plain_request_is_judged_by_its_host() {
        let request = |host: &str| format!("GET / HTTP/1.1\r\nA: b\r\n{host}\r\n\r\n");
        for (header, expected) in [
            ("Host: Example.com", host("example.com")),
            ("host:example.com.:8080", host("example.com")),
            ("X: y", Opening::Nameless),
            ("Host: 1.2.3.4", Opening::Nameless),
            ("Host: [::1]:80", Opening::Nameless),
            ("Host: a.com\r\nHost: b.com", Opening::Nameless),
            ("Host: a.com, b.com", Opening::Nameless),
            ("Host: a.com@b.com", Opening::Nameless),
        ] {
            let bytes = request(header);
            assert_eq!(Opening::of(bytes.as_bytes()), expected, "{header}");
            for end in 0..bytes.len() {
                assert_eq!(Opening::of(&bytes.as_bytes()[..end]), Opening::Incomplete);
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
            assert_eq!(Opening::of(bytes), Opening::Nameless);
        }
    }

    proptest! {
        #[test]
        fn whatever_is_sent_only_names_come_out(mut bytes: Vec<u8>, is_tls: bool) {
            if is_tls {
                bytes.splice(..0, [0x16, 3, 1]);
            }
            if let Opening::Host(name) = Opening::of(&bytes) {
                prop_assert_eq!(host_name(&name), Some(name));
            }
        }

        #[test]
        fn a_changed_hello_never_breaks_the_reader(at in 0_usize..120, byte: u8, size in 1_usize..200) {
            let mut handshake = hello(&[extension(&["a.example"])]);
            let at = at % handshake.len();
            handshake[at] = byte;
            let whole = Opening::of(&records(&handshake, 9999));
            // How it is cut changes nothing, once all of it is there.
            prop_assert_eq!(Opening::of(&records(&handshake, size)), whole);
        }
    }
}
