//! Addresses of names, asked for by the server itself: what a sandbox believes a name means does not count.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, UdpSocket};

use crate::sys;

/// How long one server may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Questions that are asked before giving up.
const MOST_QUESTIONS: usize = 4;
/// Addresses of one name that are looked at.
const MOST_ADDRESSES: usize = 16;
const PORT: u16 = 53;
/// An answer over UDP is no longer unless it was asked to be.
const MOST_DATAGRAM: usize = 512;
/// Record type of an IPv4 address, class of the internet.
const A: [u8; 2] = [0, 1];
const IN: [u8; 2] = [0, 1];

/// Whom names are asked of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Servers {
    /// The operator's, wherever they are.
    Trusted(Vec<Ipv4Addr>),
    /// A user's: only where sandboxes may go.
    Guarded(Vec<Ipv4Addr>),
}

impl Servers {
    fn list(&self) -> &[Ipv4Addr] {
        let (Self::Trusted(list) | Self::Guarded(list)) = self;
        list
    }

    /// IPv4 addresses of `name`. Servers that do not answer are asked in turn, a few times.
    pub(super) async fn resolve(&self, name: &str) -> io::Result<Vec<Ipv4Addr>> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "there is no name server to ask");
        let attempts = MOST_QUESTIONS.min(self.list().len() * 2);
        for server in self.list().iter().cycle().take(attempts) {
            match tokio::time::timeout(PATIENCE, self.ask(*server, name)).await {
                Ok(Ok(addresses)) => return Ok(addresses),
                Ok(Err(error)) => last = error,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(last)
    }

    async fn ask(&self, server: Ipv4Addr, name: &str) -> io::Result<Vec<Ipv4Addr>> {
        let question = Question::new(rand::random(), name)?;
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
        self.guard(&socket)?;
        socket.connect((server, PORT)).await?;
        socket.send(&question.bytes).await?;
        let mut buffer = [0; MOST_DATAGRAM];
        loop {
            let length = socket.recv(&mut buffer).await?;
            // What is no answer to this question may be a forgery: the real one is waited for.
            match question.answered_by(&buffer[..length]) {
                Some(Answer::Addresses(addresses)) => return Ok(addresses),
                Some(Answer::TooLong) => return self.ask_over_tcp(server, &question).await,
                Some(Answer::Failed) => return Err(io::Error::other("the name server could not say")),
                None => {}
            }
        }
    }

    async fn ask_over_tcp(&self, server: Ipv4Addr, question: &Question) -> io::Result<Vec<Ipv4Addr>> {
        let socket = TcpSocket::new_v4()?;
        self.guard(&socket)?;
        let mut stream = socket.connect((server, PORT).into()).await?;
        let length = question.bytes.len() as u16;
        stream.write_all(&[&length.to_be_bytes()[..], &question.bytes].concat()).await?;
        let mut answer = vec![0; usize::from(stream.read_u16().await?)];
        stream.read_exact(&mut answer).await?;
        match question.answered_by(&answer) {
            Some(Answer::Addresses(addresses)) => Ok(addresses),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn guard(&self, socket: &impl std::os::fd::AsFd) -> io::Result<()> {
        match self {
            Self::Trusted(_) => Ok(()),
            Self::Guarded(_) => sys::mark(socket.as_fd(), super::GUARDED_MARK),
        }
    }
}

struct Question {
    bytes: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Addresses(Vec<Ipv4Addr>),
    TooLong,
    Failed,
}

impl Question {
    /// Number, the wish that the server asks others, one question, nothing else.
    fn new(id: u16, name: &str) -> io::Result<Self> {
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

    /// What a message answers; `None` when it is not an answer to this question.
    fn answered_by(&self, message: &[u8]) -> Option<Answer> {
        let (head, mut rest) = message.split_at_checked(12)?;
        let (asked, answers) = rest.split_at_checked(self.bytes.len() - 12)?;
        rest = answers;
        let is_answer = head[..2] == self.bytes[..2] && head[2] & 0x80 != 0 && head[4..6] == [0, 1];
        if !is_answer || !asked.eq_ignore_ascii_case(&self.bytes[12..]) {
            return None;
        }
        const NO_SUCH_NAME: u8 = 3;
        match (head[2] & 0x02 != 0, head[3] & 0x0f) {
            (true, _) => return Some(Answer::TooLong),
            (_, 0 | NO_SUCH_NAME) => {}
            _ => return Some(Answer::Failed),
        }
        // Names that stand for others come first, then the addresses of the last of them; only those count.
        let mut addresses = Vec::new();
        for _ in 0..u16::from_be_bytes([head[6], head[7]]) {
            let (record, data, after) = record(rest)?;
            rest = after;
            if let (true, Ok(address)) = (record == [A, IN].concat(), <[u8; 4]>::try_from(data))
                && addresses.len() < MOST_ADDRESSES
            {
                addresses.push(address.into());
            }
        }
        Some(Answer::Addresses(addresses))
    }
}

/// Type and class of the first record, its data, and what follows it.
fn record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (fixed, rest) = after_name(bytes)?.split_at_checked(10)?;
    let (data, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([fixed[8], fixed[9]])))?;
    Some((&fixed[..4], data, rest))
}

fn after_name(mut bytes: &[u8]) -> Option<&[u8]> {
    loop {
        let (length, rest) = bytes.split_first()?;
        match length {
            0 => return Some(rest),
            // It goes on elsewhere in the message, which ends it here.
            0xc0.. => return rest.get(1..),
            _ => bytes = rest.get(usize::from(*length)..)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer(question: &Question, flags: [u8; 2], records: &[(u8, &[u8])]) -> Vec<u8> {
        let mut message = question.bytes.clone();
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
        let question = Question::new(7, "www.example.com").unwrap();
        let message =
            answer(&question, [0x81, 0x80], &[(5, b"\x01a\xc0\x10"), (1, &[1, 2, 3, 4]), (28, &[0; 16])]);
        let expected = Answer::Addresses(vec![Ipv4Addr::new(1, 2, 3, 4)]);
        assert_eq!(question.answered_by(&message), Some(expected));
        for end in 0..message.len() {
            assert_eq!(question.answered_by(&message[..end]), None);
        }
    }

    #[test]
    fn only_an_answer_to_the_question_counts() {
        let question = Question::new(7, "example.com").unwrap();
        let address: &[(u8, &[u8])] = &[(1, &[1, 2, 3, 4])];
        for other in [Question::new(8, "example.com"), Question::new(7, "example.org")] {
            assert_eq!(question.answered_by(&answer(&other.unwrap(), [0x81, 0x80], address)), None);
        }
        assert_eq!(question.answered_by(&question.bytes), None);
        assert_eq!(question.answered_by(&answer(&question, [0x83, 0x80], &[])), Some(Answer::TooLong));
        assert_eq!(question.answered_by(&answer(&question, [0x81, 0x82], &[])), Some(Answer::Failed));
        let none = Some(Answer::Addresses(vec![]));
        assert_eq!(question.answered_by(&answer(&question, [0x81, 0x83], &[])), none);
    }

    proptest! {
        #[test]
        fn any_message_can_be_read(tail: Vec<u8>, answers: u8) {
            let question = Question::new(7, "a.b").unwrap();
            let mut message = answer(&question, [0x81, 0x80], &[]);
            message[7] = answers;
            message.extend(tail);
            let _ = question.answered_by(&message);
        }
    }
}
