//! Fairness on the processors: sandboxes that keep them busy give way to all others.
//!
//! Each sandbox has an account of processor time. What it uses is charged, except a free share: half a processor, or, when the
//! processors of the host are saturated, half of what it would get if all active sandboxes got the same. A sandbox whose debt
//! exceeds [`BURST_US`] is deprioritized: it runs only on processors that no other sandbox wants. One that has nearly paid its
//! debt is restored. A sandbox that cannot run because of others pays too, so none starves.

use std::time::Duration;

/// Free share of a processor: one in so many.
const FREE_PART: u64 = 2;
/// Share of a processor, one in so many, up to which a sandbox counts as inactive.
const INACTIVE_PART: u64 = 100;
/// Share of all processors, one in so many, that is idle at least while they are not saturated.
const IDLE_PART: u64 = 10;
/// Debt above which a sandbox is deprioritized: a command or the import of a large package uses less.
const BURST_US: u64 = 500_000;
/// Debt below which a deprioritized sandbox is restored.
const CALM_US: u64 = 100_000;
/// Maximum debt: an inactive sandbox pays it in four seconds.
const MAX_DEBT_US: u64 = 2_000_000;

/// Place of a sandbox on the processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Sandboxes share the processors evenly.
    Normal,
    /// The sandbox gives way to all others.
    LowPriority,
}

/// Free processor time of each sandbox in an interval.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Interval {
    elapsed_us: u64,
    free_us: u64,
}

impl Interval {
    /// Describes an interval in which sandboxes have used `used`, in microseconds each.
    pub(crate) fn new(elapsed: Duration, used: &[u64], saturated: bool) -> Self {
        let elapsed_us = elapsed.as_micros() as u64;
        let free_us = elapsed_us / FREE_PART;
        let this = Self { elapsed_us, free_us };
        if !saturated {
            return this;
        }
        let active: Vec<u64> = used.iter().copied().filter(|used| this.is_active(*used)).collect();
        let share_us = active.iter().sum::<u64>() / active.len().max(1) as u64;
        Self { free_us: free_us.min(share_us / FREE_PART), ..this }
    }

    /// Whether a sandbox that has used `used_us` counts as active.
    pub(crate) fn is_active(&self, used_us: u64) -> bool {
        used_us > self.elapsed_us / INACTIVE_PART
    }

    /// Whether no sandbox can have exceeded its share, if all together have used `total_us`.
    pub(crate) fn covers(&self, total_us: u64) -> bool {
        total_us <= self.free_us
    }

    /// Whether processors that were idle for `idle_us`, all of them together, are saturated.
    pub(crate) fn is_saturated(&self, idle_us: u64, processors: u64) -> bool {
        idle_us < self.elapsed_us * processors / IDLE_PART
    }

    fn free_us(&self, used_us: u64) -> u64 {
        if self.is_active(used_us) { self.free_us } else { self.elapsed_us / FREE_PART }
    }
}

/// Account of one sandbox's processor time.
#[derive(Debug)]
pub(crate) struct Account {
    debt_us: u64,
    place: Place,
}

impl Account {
    /// Opens an account without debt for a sandbox in its normal place.
    pub(crate) fn new() -> Self {
        Self { debt_us: 0, place: Place::Normal }
    }

    /// Charges what the sandbox has used in an interval. Returns its new place if that changes.
    pub(crate) fn charge(&mut self, used_us: u64, interval: &Interval) -> Option<Place> {
        let debt_us = (self.debt_us + used_us).saturating_sub(interval.free_us(used_us));
        self.debt_us = debt_us.min(MAX_DEBT_US);
        let place = match self.place {
            Place::Normal if self.debt_us > BURST_US => Place::LowPriority,
            Place::LowPriority if self.debt_us < CALM_US => Place::Normal,
            unchanged => unchanged,
        };
        (std::mem::replace(&mut self.place, place) != place).then_some(place)
    }

    /// Place of the sandbox.
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// Whether the sandbox has no debt and is in its normal place.
    pub(crate) fn is_settled(&self) -> bool {
        self.debt_us == 0 && self.place == Place::Normal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(250);

    /// Lets sandboxes use so many processors each for `seconds`; returns the changes of the first one, with their second.
    fn run(accounts: &mut [Account], load: &[f64], seconds: f64, saturated: bool) -> Vec<(f64, Place)> {
        let used: Vec<u64> = load.iter().map(|one| (STEP.as_micros() as f64 * one) as u64).collect();
        let interval = Interval::new(STEP, &used, saturated);
        let mut changes = Vec::new();
        for n in 1..=(seconds * 4.0) as u32 {
            for (index, (account, used)) in accounts.iter_mut().zip(&used).enumerate() {
                let place = account.charge(*used, &interval);
                changes.extend(place.filter(|_| index == 0).map(|place| (f64::from(n) / 4.0, place)));
            }
        }
        changes
    }

    #[test]
    fn a_sandbox_that_burns_is_deprioritized_within_a_second_and_restored_after_it_stops() {
        let mut account = [Account::new()];
        assert_eq!(run(&mut account, &[2.0], 10.0, false), [(0.5, Place::LowPriority)]);
        assert_eq!(run(&mut account, &[0.0], 10.0, true), [(4.0, Place::Normal)]);
        assert!(account[0].is_settled());
    }

    #[test]
    fn one_busy_loop_is_deprioritized_too_and_moderate_use_is_not() {
        let mut account = [Account::new()];
        assert_eq!(run(&mut account, &[0.5], 60.0, false), []);
        assert_eq!(run(&mut account, &[1.0], 60.0, false), [(1.25, Place::LowPriority)]);
    }

    #[test]
    fn a_short_burst_is_free() {
        let mut account = [Account::new()];
        assert_eq!(run(&mut account, &[1.0], 1.0, false), []);
        assert_eq!(run(&mut account, &[0.0], 1.0, false), []);
        assert!(account[0].is_settled());
    }

    #[test]
    fn on_a_saturated_host_the_share_counts_and_not_the_time() {
        // The host itself takes most of the processors.
        let mut accounts = [Account::new(), Account::new()];
        assert_eq!(run(&mut accounts, &[0.3, 0.1], 60.0, false), []);
        let changes = run(&mut accounts, &[0.3, 0.1], 60.0, true);
        assert_eq!(changes.iter().map(|(_, place)| *place).collect::<Vec<_>>(), [Place::LowPriority]);
        assert!(accounts[1].is_settled(), "it uses less than half of what is fair: {accounts:?}");
    }

    #[test]
    fn a_deprioritized_sandbox_that_cannot_run_is_restored() {
        let mut accounts = [Account::new(), Account::new()];
        run(&mut accounts, &[2.0, 0.0], 5.0, true);
        let changes = run(&mut accounts, &[0.005, 1.9], 10.0, true);
        assert_eq!(changes.iter().map(|(_, place)| *place).collect::<Vec<_>>(), [Place::Normal]);
    }

    #[test]
    fn a_host_without_idle_processors_is_saturated() {
        let interval = Interval::new(STEP, &[], false);
        assert!(interval.is_saturated(0, 2) && !interval.is_saturated(60_000, 2));
    }
}
