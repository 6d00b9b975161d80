//! DNS messages (RFC 1035): the reading of a question, and the writing of its answer. A question comes from anybody, so any byte may be
//! wrong. An answer is a header, the question as it came, and a few records whose names are pointers into the question.

/// Length of the header of a message.
const HEADER: usize = 12;
/// Maximum length of a name, its lengths and its end included.
const MAX_NAME: usize = 255;
/// Maximum length of an answer over UDP that every client takes. No answer here is longer.
pub(crate) const MAX_ANSWER: usize = 512;
/// Length that the server takes itself over UDP (RFC 6891): as little as it sends.
const TAKEN: u16 = 512;

/// Types of records.
pub(crate) mod kind {
    pub(crate) const A: u16 = 1;
    pub(crate) const NS: u16 = 2;
    pub(crate) const SOA: u16 = 6;
    pub(crate) const TXT: u16 = 16;
    pub(crate) const AAAA: u16 = 28;
    pub(crate) const OPT: u16 = 41;
    pub(crate) const ANY: u16 = 255;
}
/// Class of the internet.
const IN: u16 = 1;

/// Result codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    Success = 0,
    Malformed = 1,
    NoSuchName = 3,
    NotImplemented = 4,
    Refused = 5,
}

/// A question.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Question<'a> {
    head: Head,
    /// The question as it came, to be repeated: clients compare the case of letters.
    bytes: &'a [u8],
    /// Labels of the name, in lower case, the topmost one last.
    pub(crate) labels: Vec<Vec<u8>>,
    pub(crate) kind: u16,
    pub(crate) class_is_internet: bool,
    has_extensions: bool,
}

/// The beginning of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    id: [u8; 2],
    recursion_desired: bool,
}

/// A message, by its kind.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received<'a> {
    Question(Question<'a>),
    /// A request that gets an answer without records.
    Unanswerable(Vec<u8>),
    /// No request. An answer to it could be answered for ever.
    Noise,
}

/// Reads a message.
pub(crate) fn read(message: &[u8]) -> Received<'_> {
    let Some((head, rest)) = message.split_at_checked(HEADER) else { return Received::Noise };
    const IS_ANSWER: u8 = 0x80;
    const OPERATION: u8 = 0x78;
    if head[2] & IS_ANSWER != 0 {
        return Received::Noise;
    }
    let own = Head { id: [head[0], head[1]], recursion_desired: head[2] & 1 != 0 };
    if head[2] & OPERATION != 0 {
        return Received::Unanswerable(own.answer(Code::NotImplemented).to_vec());
    }
    match question(own, head, rest) {
        Some(question) => Received::Question(question),
        None => Received::Unanswerable(own.answer(Code::Malformed).to_vec()),
    }
}

fn question<'a>(own: Head, head: &[u8], rest: &'a [u8]) -> Option<Question<'a>> {
    // One question, and nothing else but extensions.
    if head[4..10] != [0, 1, 0, 0, 0, 0] {
        return None;
    }
    let (labels, length) = name(rest)?;
    let (bytes, additional) = rest.split_at_checked(length + 4)?;
    let number = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let has_extensions = head[10..12] != [0, 0] && additional.starts_with(&[0, 0, kind::OPT as u8]);
    Some(Question {
        head: own,
        bytes,
        labels,
        kind: number(length),
        class_is_internet: number(length + 2) == IN,
        has_extensions,
    })
}

/// Reads a name: its labels, and its length. Nothing precedes it that a pointer could lead to.
fn name(bytes: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let (mut labels, mut at) = (Vec::new(), 0);
    loop {
        let length = usize::from(*bytes.get(at)?);
        at += 1;
        match length {
            0 => return Some((labels, at)),
            1..64 if at + length < MAX_NAME => {
                let label = bytes.get(at..at + length)?;
                labels.push(label.to_ascii_lowercase());
                at += length;
            }
            _ => return None,
        }
    }
}

impl Head {
    fn answer(self, code: Code) -> [u8; HEADER] {
        let flags = 0x80 | u8::from(self.recursion_desired);
        let [first, second] = self.id;
        [first, second, flags, code as u8, 0, 0, 0, 0, 0, 0, 0, 0]
    }
}

/// A name in an answer: the part of the question's that begins with the label of this number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) label: usize,
}

/// An answer that is being written.
pub(crate) struct Answer<'a> {
    question: &'a Question<'a>,
    bytes: Vec<u8>,
    /// Numbers of records: answers, and authorities.
    counts: [u16; 2],
}

impl<'a> Answer<'a> {
    /// Begins an answer to `question`. With `is_ours`, the name is one that this server decides about.
    pub(crate) fn new(question: &'a Question<'a>, code: Code, is_ours: bool) -> Self {
        let mut bytes = question.head.answer(code).to_vec();
        if is_ours {
            bytes[2] |= 0x04;
        }
        bytes[5] = 1;
        bytes.extend(question.bytes);
        Self { question, bytes, counts: [0, 0] }
    }

    /// An answer that says to ask again over TCP.
    pub(crate) fn truncated(question: &'a Question<'a>) -> Self {
        let mut answer = Self::new(question, Code::Success, false);
        answer.bytes[2] |= 0x02;
        answer
    }

    /// Adds a record for the name of the question.
    pub(crate) fn record(&mut self, kind: u16, ttl: u32, data: &[u8]) {
        debug_assert_eq!(self.counts[1], 0, "answers come before authorities");
        self.counts[0] += 1;
        self.write(Part { label: 0 }, kind, ttl, data);
    }

    /// Adds a record about the zone that the name belongs to.
    pub(crate) fn authority(&mut self, zone: Part, kind: u16, ttl: u32, data: &[u8]) {
        self.counts[1] += 1;
        self.write(zone, kind, ttl, data);
    }

    fn write(&mut self, name: Part, kind: u16, ttl: u32, data: &[u8]) {
        self.bytes.extend(self.pointer(name));
        self.bytes.extend(kind.to_be_bytes());
        self.bytes.extend(IN.to_be_bytes());
        self.bytes.extend(ttl.to_be_bytes());
        self.bytes.extend((data.len() as u16).to_be_bytes());
        self.bytes.extend(data);
    }

    /// A pointer to a part of the question's name.
    pub(crate) fn pointer(&self, part: Part) -> [u8; 2] {
        let before: usize = self.question.labels.iter().take(part.label).map(|label| label.len() + 1).sum();
        (0xc000 | (HEADER + before) as u16).to_be_bytes()
    }

    /// The bytes of the answer.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes[6..8].copy_from_slice(&self.counts[0].to_be_bytes());
        self.bytes[8..10].copy_from_slice(&self.counts[1].to_be_bytes());
        if self.question.has_extensions {
            self.bytes[11] = 1;
            let [high, low] = TAKEN.to_be_bytes();
            self.bytes.extend([0, 0, kind::OPT as u8, high, low, 0, 0, 0, 0, 0, 0]);
        }
        self.bytes
    }
}

/// A text as the data of a record.
pub(crate) fn text(text: &str) -> Vec<u8> {
    let short = &text.as_bytes()[..text.len().min(255)];
    [&[short.len() as u8], short].concat()
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A question as clients ask it.
    pub(crate) fn asked(name: &str, kind: u16) -> Vec<u8> {
        let mut message = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.').filter(|label| !label.is_empty()) {
            message.push(label.len() as u8);
            message.extend(label.bytes());
        }
        message.push(0);
        message.extend(kind.to_be_bytes());
        message.extend(IN.to_be_bytes());
        message
    }

    fn labels(message: &[u8]) -> Option<Vec<String>> {
        let Received::Question(question) = read(message) else { return None };
        Some(question.labels.iter().map(|label| String::from_utf8(label.clone()).unwrap()).collect())
    }

    #[test]
    fn a_question_is_read_in_lower_case_and_repeated_as_it_came() {
        let message = asked("wWw.Example.COM", kind::A);
        assert_eq!(labels(&message).unwrap(), ["www", "example", "com"]);
        let Received::Question(question) = read(&message) else { panic!() };
        let answer = Answer::new(&question, Code::Refused, false).finish();
        assert_eq!(answer, [&[0xab, 0xcd, 0x81, 5, 0, 1, 0, 0, 0, 0, 0, 0], &message[12..]].concat());
    }

    #[test]
    fn what_is_no_question_gets_no_answer_or_an_error() {
        let message = asked("example.com", kind::A);
        let with = |at: usize, byte: u8| {
            let mut message = message.clone();
            message[at] = byte;
            message
        };
        assert_eq!(read(&message[..11]), Received::Noise);
        assert_eq!(read(&with(2, 0x81)), Received::Noise, "an answer");
        let error = |message: &[u8]| match read(message) {
            Received::Unanswerable(answer) => (answer.len(), answer[3]),
            other => panic!("{other:?}"),
        };
        assert_eq!(error(&with(2, 0x28)), (12, Code::NotImplemented as u8), "an update");
        for (at, byte) in [(5, 0), (5, 2), (7, 1), (9, 1), (12, 0xc0), (12, 64), (12, 12)] {
            assert_eq!(error(&with(at, byte)), (12, Code::Malformed as u8), "{byte} at {at}");
        }
        for end in 12..message.len() {
            assert_eq!(error(&message[..end]).1, Code::Malformed as u8);
        }
    }

    #[test]
    fn a_name_has_at_most_255_bytes() {
        let name = |last: usize| format!("{0}.{0}.{0}.{1}", "a".repeat(63), "b".repeat(last));
        assert!(labels(&asked(&name(61), kind::A)).is_some());
        assert!(labels(&asked(&name(62), kind::A)).is_none());
    }

    #[test]
    fn extensions_are_answered_with_extensions() {
        let mut message = asked("example.com", kind::A);
        message[11] = 1;
        message.extend([0, 0, 41, 0x10, 0, 0, 0, 0, 0, 0, 0]);
        let Received::Question(question) = read(&message) else { panic!() };
        let answer = Answer::new(&question, Code::Success, true).finish();
        assert_eq!(answer[11], 1);
        assert_eq!(answer[answer.len() - 11..], [0, 0, 41, 2, 0, 0, 0, 0, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn any_message_can_be_read(message: Vec<u8>) {
            crate::fuzzing::dns_query(&message);
        }
    }
}
