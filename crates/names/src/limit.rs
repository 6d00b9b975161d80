//! How many answers a network gets over UDP. The sender of a datagram may be forged, so that answers to it hit somebody else.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::time::Instant;

/// Answers for a network per second, in the long run and at once.
const RATE: f32 = 20.0;
const BURST: f32 = 100.0;
/// Networks that are counted apart. Others share their answers with one of them.
const NETWORKS: usize = 4096;

/// The fate of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Course {
    /// An answer.
    Answer,
    /// An answer that has the client ask again over TCP, where senders cannot be forged.
    AskAgain,
    /// No answer.
    Drop,
}

/// The answers that networks have left.
pub(crate) struct Limit {
    networks: Vec<Left>,
    /// With a secret, so that nobody can choose to share with somebody else.
    hasher: RandomState,
}

#[derive(Clone, Copy)]
struct Left {
    answers: f32,
    since: Instant,
    dropped: bool,
}

impl Limit {
    pub(crate) fn new(now: Instant) -> Self {
        let full = Left { answers: BURST, since: now, dropped: false };
        Self { networks: vec![full; NETWORKS], hasher: RandomState::new() }
    }

    /// Decides about a question of `sender`, and counts it.
    pub(crate) fn course(&mut self, sender: IpAddr, now: Instant) -> Course {
        let place = self.hasher.hash_one(network(sender)) as usize % NETWORKS;
        let Some(left) = self.networks.get_mut(place) else { return Course::Drop };
        let passed = now.saturating_duration_since(left.since).as_secs_f32();
        left.answers = (left.answers + passed * RATE).min(BURST);
        left.since = now;
        if left.answers >= 1.0 {
            left.answers -= 1.0;
            return Course::Answer;
        }
        left.dropped = !left.dropped;
        if left.dropped { Course::Drop } else { Course::AskAgain }
    }
}

/// The network of an address, as large as providers give them to one customer.
fn network(address: IpAddr) -> [u8; 8] {
    let mut network = [0; 8];
    match address.to_canonical() {
        IpAddr::V4(address) => network[..3].copy_from_slice(&address.octets()[..3]),
        IpAddr::V6(address) => network[..7].copy_from_slice(&address.octets()[..7]),
    }
    network
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_network_gets_so_many_answers_and_others_get_theirs() {
        let begun = Instant::now();
        let mut limit = Limit::new(begun);
        let mut ask = |last: [u8; 4], after| limit.course(last.into(), begun + Duration::from_secs(after));
        for host in 0..100 {
            assert_eq!(ask([192, 0, 2, host], 0), Course::Answer);
        }
        let courses: Vec<_> = (0..4).map(|_| ask([192, 0, 2, 200], 0)).collect();
        assert_eq!(courses, [Course::Drop, Course::AskAgain, Course::Drop, Course::AskAgain]);
        assert_eq!(ask([198, 51, 100, 1], 0), Course::Answer);
        let later = (0..30).filter(|_| ask([192, 0, 2, 1], 1) == Course::Answer).count();
        assert_eq!(later, 20);
    }

    #[test]
    fn addresses_of_one_customer_are_one_network() {
        let network = |text: &str| network(text.parse().unwrap());
        assert_eq!(network("2001:db8:0:1::1"), network("2001:db8:0:2::2"));
        assert_ne!(network("2001:db8:0:100::1"), network("2001:db8:0:200::1"));
        assert_eq!(network("::ffff:192.0.2.1"), network("192.0.2.9"));
    }
}
