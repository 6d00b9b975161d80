//! The server name of a TLS ClientHello. A hello may be spread over several records, and any byte may be wrong.
//!
//! This reader takes no more of TLS than the name, so that hellos of all versions are read, and refuses what servers
//! might read differently. Why it is not a TLS library's: decision page 10.

/// Record type of TLS handshakes.
pub(crate) const HANDSHAKE: u8 = 0x16;
/// Handshake type of a ClientHello.
const CLIENT_HELLO: u8 = 1;
/// Maximum length of a record; encrypted ones may be a little longer than 16 KiB.
const MAX_RECORD: usize = (1 << 14) + 256;
/// Number of the extension that holds server names.
const SERVER_NAME: u16 = 0;
/// Type of server names that are host names.
const HOST_NAME: u8 = 0;

/// Result of reading a ClientHello.
pub(crate) enum ServerName {
    /// Bytes of the only host name.
    Found(Vec<u8>),
    /// More bytes are needed.
    Incomplete,
    /// No host name, several, or no ClientHello.
    Missing,
}

/// Reads the first bytes of a TLS connection.
pub(crate) fn server_name(bytes: &[u8]) -> ServerName {
    match client_hello(bytes) {
        Ok(Some(hello)) => {
            host_name(&hello).map_or(ServerName::Missing, |name| ServerName::Found(name.to_vec()))
        }
        Ok(None) => ServerName::Incomplete,
        Err(NotClientHello) => ServerName::Missing,
    }
}

struct NotClientHello;

/// Joins the body of the ClientHello from its records; `None` when more bytes are needed.
fn client_hello(bytes: &[u8]) -> Result<Option<Vec<u8>>, NotClientHello> {
    let (mut rest, mut handshake) = (Fields(bytes), Vec::new());
    loop {
        if let [kind, a, b, c, body @ ..] = &handshake[..] {
            let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            if *kind != CLIENT_HELLO {
                return Err(NotClientHello);
            }
            if let Some(whole) = body.get(..length) {
                return Ok(Some(whole.to_vec()));
            }
        }
        let Some(header) = rest.take(5) else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if header[0] != HANDSHAKE || header[1] != 3 || length == 0 || length > MAX_RECORD {
            return Err(NotClientHello);
        }
        let Some(fragment) = rest.take(length) else { return Ok(None) };
        handshake.extend_from_slice(fragment);
    }
}

/// Finds the only host name among the extensions of a ClientHello.
fn host_name(hello: &[u8]) -> Option<&[u8]> {
    let mut fields = Fields(hello);
    // Version and random bytes, then session id, cipher suites and compression methods.
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

/// Reader of bytes from the front.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// Reads a big-endian number of `N` bytes.
    fn number<const N: usize>(&mut self) -> Option<usize> {
        Some(self.take(N)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// Reads a field that begins with its length in `N` bytes.
    fn prefixed<const N: usize>(&mut self) -> Option<Self> {
        let length = self.number::<N>()?;
        self.take(length).map(Fields)
    }
}
