//! Which paused sandbox loses its memory when there is too much of it. Policy only: a sandbox that loses its memory keeps its
//! files.

use jiff::Timestamp;
use uuid::Uuid;

use super::team::Quota;

/// A paused sandbox that keeps its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frozen {
    /// The team.
    pub(crate) team: Uuid,
    /// Memory that the processes hold, bytes.
    pub(crate) bytes: u64,
    /// Time of the pause.
    pub(crate) since: Timestamp,
}

/// The limits on memory of paused sandboxes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrozenLimits {
    /// Number of sandboxes of the team that is looked at.
    pub(crate) team_count: u32,
    /// Memory of the sandboxes of the team that is looked at, bytes.
    pub(crate) team_bytes: u64,
    /// Memory of the sandboxes of all teams, bytes.
    pub(crate) host_bytes: u64,
}

impl FrozenLimits {
    /// The limits of a team on a host that has `host_bytes` for paused sandboxes.
    pub(crate) fn of(quota: &Quota, host_bytes: u64) -> Self {
        Self { team_count: quota.in_memory, team_bytes: quota.memory_mib.saturating_mul(1 << 20), host_bytes }
    }
}

/// The index of the sandbox that has to lose its memory before `team` and the host are within their limits; none when they
/// are. One that is too large alone goes first, then the oldest of the team, and on a full host the oldest of the team that
/// holds the most.
pub(crate) fn surplus(all: &[Frozen], team: Uuid, limits: FrozenLimits) -> Option<usize> {
    let fits =
        |one: &Frozen| one.bytes <= limits.host_bytes && (one.team != team || one.bytes <= limits.team_bytes);
    if let Some(index) = all.iter().position(|one| !fits(one)) {
        return Some(index);
    }
    let own = || all.iter().filter(|one| one.team == team);
    if own().count() > limits.team_count as usize || total(own()) > limits.team_bytes {
        return oldest(all, team);
    }
    if total(all.iter()) > limits.host_bytes {
        return oldest_of_heaviest(all, |one| one.bytes);
    }
    None
}

/// The index of the sandbox that loses its memory when a start finds no slot: the oldest of the team that holds the most slots.
pub(crate) fn for_slot(all: &[Frozen]) -> Option<usize> {
    oldest_of_heaviest(all, |_| 1)
}

fn oldest_of_heaviest(all: &[Frozen], weight: impl Fn(&Frozen) -> u64) -> Option<usize> {
    let weight_of = |team: Uuid| all.iter().filter(|one| one.team == team).map(&weight).sum::<u64>();
    let heaviest = all.iter().map(|one| (weight_of(one.team), one.team)).max()?.1;
    oldest(all, heaviest)
}

fn oldest(all: &[Frozen], team: Uuid) -> Option<usize> {
    let own = all.iter().enumerate().filter(|(_, one)| one.team == team);
    own.min_by_key(|(_, one)| one.since).map(|(index, _)| index)
}

fn total<'a>(all: impl Iterator<Item = &'a Frozen>) -> u64 {
    all.map(|one| one.bytes).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frozen(team: u128, bytes: u64, second: i64) -> Frozen {
        Frozen { team: Uuid::from_u128(team), bytes, since: Timestamp::from_second(second).unwrap() }
    }

    const A: Uuid = Uuid::from_u128(1);
    const WIDE: FrozenLimits = FrozenLimits { team_count: 100, team_bytes: 1000, host_bytes: 1000 };

    #[test]
    fn the_oldest_of_the_team_goes_when_the_team_has_too_much() {
        let all = [frozen(2, 5, 1), frozen(1, 10, 3), frozen(1, 10, 2)];
        assert_eq!(surplus(&all, A, WIDE), None);
        assert_eq!(surplus(&all, A, FrozenLimits { team_count: 2, ..WIDE }), None);
        assert_eq!(surplus(&all, A, FrozenLimits { team_count: 1, ..WIDE }), Some(2));
        assert_eq!(surplus(&all, A, FrozenLimits { team_bytes: 20, ..WIDE }), None);
        assert_eq!(surplus(&all, A, FrozenLimits { team_bytes: 19, ..WIDE }), Some(2));
    }

    #[test]
    fn one_that_is_too_large_drives_nobody_out() {
        let all = [frozen(1, 10, 1), frozen(1, 60, 2), frozen(2, 60, 0)];
        assert_eq!(surplus(&all, A, FrozenLimits { team_bytes: 50, ..WIDE }), Some(1));
        assert_eq!(surplus(&all[..1], A, FrozenLimits { team_bytes: 50, ..WIDE }), None);
        assert_eq!(surplus(&all, A, FrozenLimits { host_bytes: 59, team_bytes: 100, ..WIDE }), Some(1));
    }

    #[test]
    fn on_a_full_host_the_team_with_the_most_goes_first() {
        let all = [frozen(2, 5, 1), frozen(1, 10, 3), frozen(1, 10, 2), frozen(2, 5, 0), frozen(2, 5, 0)];
        assert_eq!(surplus(&all, A, FrozenLimits { host_bytes: 35, ..WIDE }), None);
        assert_eq!(surplus(&all, A, FrozenLimits { host_bytes: 34, ..WIDE }), Some(2));
        assert_eq!(surplus(&all, Uuid::from_u128(2), FrozenLimits { host_bytes: 34, ..WIDE }), Some(2));
        assert_eq!(for_slot(&all), Some(3), "the team with the most sandboxes");
        assert_eq!(for_slot(&[]), None);
    }

    proptest! {
        #[test]
        fn taking_the_surplus_away_leaves_what_is_within_the_limits(
            sandboxes in prop::collection::vec((0u128..3, 0u64..50, 0i64..9), 0..20),
            team_count in 0u32..6, team_bytes in 0u64..100, host_bytes in 0u64..200,
        ) {
            let limits = FrozenLimits { team_count, team_bytes, host_bytes };
            let mut all: Vec<_> = sandboxes.into_iter().map(|(team, bytes, at)| frozen(team, bytes, at)).collect();
            while let Some(index) = surplus(&all, A, limits) {
                all.remove(index);
            }
            let own: Vec<_> = all.iter().filter(|one| one.team == A).collect();
            prop_assert!(own.len() <= team_count as usize);
            prop_assert!(total(own.into_iter()) <= team_bytes);
            prop_assert!(total(all.iter()) <= host_bytes);
        }
    }
}
