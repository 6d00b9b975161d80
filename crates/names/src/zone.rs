//! What this server answers: addresses for its domain and every name below it, and the records that certificates are checked by. Anything
//! else is refused, in as many bytes as the question has.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use crate::message::{Answer, Code, MAX_ANSWER, Part, Question, Received, kind, read, text};
use crate::settings::{CHALLENGE, NAME_SERVER, PROBE, PROBE_ADDRESS, Settings};

/// Time for which addresses may be kept, seconds.
const ADDRESS_TTL: u32 = 300;
/// Time for which it may be kept that there is no such record, seconds.
const NOTHING_TTL: u32 = 60;
/// Time for which a record that a certificate is checked by may be kept, and that there is none.
const CHALLENGE_TTL: u32 = 1;
/// Maximum number of records of one kind in an answer.
const MAX_RECORDS: usize = 4;

/// The names below a domain. Clones share them.
#[derive(Clone)]
pub struct Zone(Arc<Shared>);

struct Shared {
    /// Labels of the domain.
    domain: Vec<Vec<u8>>,
    addresses: Vec<IpAddr>,
    /// Values that certificates are checked by at the moment.
    challenges: RwLock<Vec<String>>,
}

/// A name of the zone.
enum Name {
    /// The domain itself.
    Domain,
    /// A name with one label more.
    Below,
    /// The name that certificates are checked by.
    Challenge,
    /// A name that shows whether the one above leads here.
    Probe,
    /// No name, below the one that certificates are checked by.
    NoneOfChallenge,
    /// No name.
    None,
}

impl Zone {
    /// The names below the domain of `settings`.
    pub fn new(settings: &Settings) -> Self {
        let domain = settings.domain.split('.').map(|label| label.as_bytes().to_ascii_lowercase()).collect();
        let addresses = settings.addresses.clone();
        Self(Arc::new(Shared { domain, addresses, challenges: RwLock::default() }))
    }

    /// Answers with `values` where certificates are checked, from now on.
    pub(crate) fn set_challenges(&self, values: Vec<String>) {
        *self.0.challenges.write().unwrap_or_else(PoisonError::into_inner) = values;
    }

    /// The answer to a message, if it gets one. With `is_curt`, a question gets none but to ask again over TCP.
    pub(crate) fn answer(&self, message: &[u8], is_curt: bool) -> Option<Vec<u8>> {
        let answer = match read(message) {
            Received::Noise => return None,
            Received::Unanswerable(answer) => answer,
            Received::Question(question) if is_curt => Answer::truncated(&question).finish(),
            Received::Question(question) => self.0.answer(&question),
        };
        debug_assert!(answer.len() <= MAX_ANSWER);
        Some(answer)
    }
}

impl Shared {
    fn answer(&self, question: &Question<'_>) -> Vec<u8> {
        let name = question.labels.strip_suffix(&self.domain[..]).filter(|_| question.class_is_internet);
        let Some(below) = name else { return Answer::new(question, Code::Refused, false).finish() };
        let name = Name::of(below);
        let domain = Part { label: below.len() };
        let (zone, ttl) = match name {
            Name::Challenge | Name::Probe | Name::NoneOfChallenge => {
                (Part { label: below.len() - 1 }, CHALLENGE_TTL)
            }
            _ => (domain, NOTHING_TTL),
        };
        let exists = !matches!(name, Name::None | Name::NoneOfChallenge);
        let code = if exists { Code::Success } else { Code::NoSuchName };
        let mut answer = Answer::new(question, code, true);
        let server =
            [&[NAME_SERVER.len() as u8], NAME_SERVER.as_bytes(), &answer.pointer(domain)[..]].concat();
        let start = [&server[..], b"\x0ahostmaster", &answer.pointer(domain)[..], &numbers(ttl)[..]].concat();
        let records: Vec<(u16, u32, Vec<u8>)> = match name {
            Name::None | Name::NoneOfChallenge => Vec::new(),
            Name::Probe => vec![(kind::A, CHALLENGE_TTL, PROBE_ADDRESS.octets().to_vec())],
            Name::Below => self.addresses(),
            Name::Domain => {
                let own = [(kind::NS, ADDRESS_TTL, server), (kind::SOA, NOTHING_TTL, start.clone())];
                self.addresses().into_iter().chain(own).collect()
            }
            Name::Challenge => {
                let own = [(kind::NS, CHALLENGE_TTL, server), (kind::SOA, CHALLENGE_TTL, start.clone())];
                let values = self.challenges.read().unwrap_or_else(PoisonError::into_inner);
                let texts =
                    values.iter().take(MAX_RECORDS).map(|value| (kind::TXT, CHALLENGE_TTL, text(value)));
                texts.chain(own).collect()
            }
        };
        // Who asks for everything gets addresses (RFC 8482).
        let asked = if question.kind == kind::ANY { kind::A } else { question.kind };
        let mut is_empty = true;
        for (kind, ttl, data) in records.into_iter().filter(|(kind, ..)| *kind == asked) {
            answer.record(kind, ttl, &data);
            is_empty = false;
        }
        if is_empty {
            answer.authority(zone, kind::SOA, ttl, &start);
        }
        answer.finish()
    }

    fn addresses(&self) -> Vec<(u16, u32, Vec<u8>)> {
        let record = |address: &IpAddr| match address {
            IpAddr::V4(address) => (kind::A, ADDRESS_TTL, address.octets().to_vec()),
            IpAddr::V6(address) => (kind::AAAA, ADDRESS_TTL, address.octets().to_vec()),
        };
        self.addresses.iter().take(MAX_RECORDS).map(record).collect()
    }
}

impl Name {
    /// The name with these labels before those of the domain.
    fn of(labels: &[Vec<u8>]) -> Self {
        match labels {
            [] => Self::Domain,
            [only] if only == CHALLENGE.as_bytes() => Self::Challenge,
            [_] => Self::Below,
            [first, last] if last == CHALLENGE.as_bytes() && first.starts_with(PROBE.as_bytes()) => {
                Self::Probe
            }
            [.., last] if last == CHALLENGE.as_bytes() => Self::NoneOfChallenge,
            _ => Self::None,
        }
    }
}

/// The numbers of a zone: a serial number, times between looks of other servers, of which there are none, and how long a missing name is.
fn numbers(ttl: u32) -> [u8; 20] {
    let mut bytes = [0; 20];
    for (place, number) in bytes.chunks_exact_mut(4).zip([1_u32, 3600, 600, 86_400, ttl]) {
        place.copy_from_slice(&number.to_be_bytes());
    }
    bytes
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Zone")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::tests::asked;

    fn zone() -> Zone {
        Zone::new(&Settings {
            domain: "sbx.example.com".into(),
            addresses: vec!["198.51.100.7".parse().unwrap(), "2001:db8::7".parse().unwrap()],
            acme: None,
        })
    }

    /// Result code, whether this server decides, and the numbers of answers and authorities; and the whole answer.
    fn ask(zone: &Zone, name: &str, kind: u16) -> ((u8, bool, u8, u8), Vec<u8>) {
        let answer = zone.answer(&asked(name, kind), false).unwrap();
        ((answer[3] & 15, answer[2] & 4 != 0, answer[7], answer[9]), answer)
    }

    fn ends_with(answer: &[u8], data: &[u8]) -> bool {
        answer.ends_with(data)
    }

    #[test]
    fn every_name_with_one_label_more_leads_here() {
        let zone = zone();
        for name in
            ["sbx.example.com", "api.sbx.example.com", "8000-iabc.SBX.example.com", "ns.sbx.example.com"]
        {
            let (facts, answer) = ask(&zone, name, kind::A);
            assert_eq!(facts, (0, true, 1, 0), "{name}");
            assert!(ends_with(&answer, &[0, 4, 198, 51, 100, 7]));
            assert_eq!(ask(&zone, name, kind::AAAA).0, (0, true, 1, 0), "{name}");
            assert_eq!(ask(&zone, name, kind::TXT).0, (0, true, 0, 1), "{name}");
        }
        assert_eq!(ask(&zone, "a.b.sbx.example.com", kind::A).0, (3, true, 0, 1));
        assert_eq!(ask(&zone, "sbx.example.com", kind::NS).0, (0, true, 1, 0));
        assert_eq!(ask(&zone, "sbx.example.com", kind::SOA).0, (0, true, 1, 0));
        const CAA: u16 = 257;
        assert_eq!(ask(&zone, "sbx.example.com", CAA).0, (0, true, 0, 1));
    }

    #[test]
    fn certificates_are_checked_by_the_values_of_the_moment() {
        let zone = zone();
        let name = "_acme-challenge.sbx.example.com";
        assert_eq!(ask(&zone, name, kind::TXT).0, (0, true, 0, 1));
        zone.set_challenges(vec!["one".into(), "two".into()]);
        let (facts, answer) = ask(&zone, name, kind::TXT);
        assert_eq!(facts, (0, true, 2, 0));
        assert!(ends_with(&answer, b"\x00\x04\x03two"));
        // A wildcard of somebody else has no such address.
        assert!(ends_with(&ask(&zone, &probe_name(), kind::A).1, &[0, 4, 192, 0, 2, 53]));
        assert_eq!(ask(&zone, "other._acme-challenge.sbx.example.com", kind::A).0, (3, true, 0, 1));
        zone.set_challenges(Vec::new());
        assert_eq!(ask(&zone, name, kind::TXT).0, (0, true, 0, 1));
    }

    fn probe_name() -> String {
        crate::probe_name("sbx.example.com")
    }

    #[test]
    fn what_is_not_ours_is_refused_in_as_many_bytes() {
        let zone = zone();
        for name in ["example.com", "xsbx.example.com", "example.org", "", "com"] {
            for kind in [kind::A, kind::ANY, kind::TXT] {
                let (facts, answer) = ask(&zone, name, kind);
                assert_eq!(facts, (5, false, 0, 0), "{name}");
                assert_eq!(answer.len(), asked(name, kind).len());
            }
        }
    }

    #[test]
    fn no_answer_is_long() {
        let zone = zone();
        zone.set_challenges(vec!["x".repeat(43); 9]);
        let label = "a".repeat(63);
        for name in
            [format!("{label}.sbx.example.com"), "_acme-challenge.sbx.example.com".into(), probe_name()]
        {
            for kind in [kind::A, kind::AAAA, kind::TXT, kind::NS, kind::SOA, kind::ANY] {
                assert!(ask(&zone, &name, kind).1.len() <= MAX_ANSWER, "{name} {kind}");
            }
        }
        let curt = zone.answer(&asked(&label, kind::A), true).unwrap();
        assert_eq!((curt.len(), curt[2] & 2), (asked(&label, kind::A).len(), 2));
    }
}
