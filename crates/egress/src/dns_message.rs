//! DNS messages: the query for the IPv4 addresses of a name, and the reading of its answer. An answer comes from a
//! server that a user may have chosen, so any byte may be wrong. Why no library reads it: decision page 10.

use std::io;
use std::net::Ipv4Addr;

/// Maximum number of addresses that are taken from an answer.
pub(crate) const MAX_ADDRESSES: usize = 16;
/// Length of the header of a message.
const HEADER: usize = 12;
/// Record type of an IPv4 address.
const A: [u8; 2] = [0, 1];
/// Class of the internet.
const IN: [u8; 2] = [0, 1];

/// A query for the IPv4 addresses of one name.
pub(crate) struct Query {
    bytes: Vec<u8>,
}

/// An answer to a query.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Addresses of the name; none when the name has none.
    Addresses(Vec<Ipv4Addr>),
    /// The answer does not fit into a datagram and has to be asked for over TCP.
    Truncated,
    /// The server reports an error.
    Failed,
}

impl Query {
    /// Writes a query with the number `id`: recursion desired, one question, no other records.
    pub(crate) fn new(id: u16, name: &str) -> io::Result<Self> {
        let mut bytes = id.to_be_bytes().to_vec();
        bytes.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        for label in name.split('.') {
            let length = u8::try_from(label.len()).ok().filter(|length| (1..64).contains(length));
            bytes.push(length.ok_or(io::ErrorKind::InvalidInput)?);
            bytes.extend(label.bytes());
        }
        bytes.push(0);
        bytes.extend([A, IN].concat());
        Ok(Self { bytes })
    }

    /// Bytes of the query.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Reads a message; `None` when it does not answer this query.
    pub(crate) fn read_answer(&self, message: &[u8]) -> Option<Answer> {
        let (head, mut rest) = message.split_at_checked(HEADER)?;
        let (asked, answers) = rest.split_at_checked(self.bytes.len() - HEADER)?;
        rest = answers;
        let is_answer = head[..2] == self.bytes[..2] && head[2] & 0x80 != 0 && head[4..6] == [0, 1];
        if !is_answer || !asked.eq_ignore_ascii_case(&self.bytes[HEADER..]) {
            return None;
        }
        const NO_SUCH_NAME: u8 = 3;
        match (head[2] & 0x02 != 0, head[3] & 0x0f) {
            (true, _) => return Some(Answer::Truncated),
            (_, 0 | NO_SUCH_NAME) => {}
            _ => return Some(Answer::Failed),
        }
        // Aliases (CNAME) come first, then the addresses of the last one; only addresses count.
        let mut addresses = Vec::new();
        for _ in 0..u16::from_be_bytes([head[6], head[7]]) {
            let (record, data, after) = record(rest)?;
            rest = after;
            if let (true, Ok(address)) = (record == [A, IN].concat(), <[u8; 4]>::try_from(data))
                && addresses.len() < MAX_ADDRESSES
            {
                addresses.push(address.into());
            }
        }
        Some(Answer::Addresses(addresses))
    }
}

/// Reads a record: its type and class, its data, and the bytes after it.
fn record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (fixed, rest) = after_name(bytes)?.split_at_checked(10)?;
    let (data, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([fixed[8], fixed[9]])))?;
    Some((&fixed[..4], data, rest))
}

/// Skips a name.
fn after_name(mut bytes: &[u8]) -> Option<&[u8]> {
    loop {
        let (length, rest) = bytes.split_first()?;
        match length {
            0 => return Some(rest),
            // A pointer to the rest of the name elsewhere in the message ends it here.
            0xc0.. => return rest.get(1..),
            _ => bytes = rest.get(usize::from(*length)..)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer(query: &Query, flags: [u8; 2], records: &[(u8, &[u8])]) -> Vec<u8> {
        let mut message = query.bytes.clone();
        message[2..4].copy_from_slice(&flags);
        message[7] = records.len() as u8;
        for (kind, data) in records {
            message.extend([0xc0, 12, 0, *kind, 0, 1, 0, 0, 0, 60, 0, data.len() as u8]);
            message.extend(*data);
        }
        message
    }

    #[test]
    fn addresses_behind_other_names_are_found() {
        let query = Query::new(7, "www.example.com").unwrap();
        let message =
            answer(&query, [0x81, 0x80], &[(5, b"\x01a\xc0\x10"), (1, &[1, 2, 3, 4]), (28, &[0; 16])]);
        let expected = Answer::Addresses(vec![Ipv4Addr::new(1, 2, 3, 4)]);
        assert_eq!(query.read_answer(&message), Some(expected));
        for end in 0..message.len() {
            assert_eq!(query.read_answer(&message[..end]), None);
        }
    }

    #[test]
    fn only_an_answer_to_the_query_counts() {
        let query = Query::new(7, "example.com").unwrap();
        let address: &[(u8, &[u8])] = &[(1, &[1, 2, 3, 4])];
        for other in [Query::new(8, "example.com"), Query::new(7, "example.org")] {
            assert_eq!(query.read_answer(&answer(&other.unwrap(), [0x81, 0x80], address)), None);
        }
        assert_eq!(query.read_answer(&query.bytes), None);
        assert_eq!(query.read_answer(&answer(&query, [0x83, 0x80], &[])), Some(Answer::Truncated));
        assert_eq!(query.read_answer(&answer(&query, [0x81, 0x82], &[])), Some(Answer::Failed));
        let none = Some(Answer::Addresses(vec![]));
        assert_eq!(query.read_answer(&answer(&query, [0x81, 0x83], &[])), none);
    }

    proptest! {
        #[test]
        fn any_message_can_be_read(tail: Vec<u8>, answers: u8) {
            let query = Query::new(7, "a.b").unwrap();
            let mut message = answer(&query, [0x81, 0x80], &[]);
            message[7] = answers;
            message.extend(tail);
            let _ = query.read_answer(&message);
        }
    }
}
