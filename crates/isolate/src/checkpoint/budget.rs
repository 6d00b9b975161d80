//! The processor time that looking at the processes of a sandbox may take. They have as many descriptors, mappings and watches as they like,
//! and some of what is looked for is in every pair of them.

use std::marker::PhantomData;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::refusal::refused;
use crate::Result;

/// Processor time for what is looked for before CRIU runs, and again for what is stored after it. A browser takes a fiftieth of it.
const LIMIT: Duration = Duration::from_secs(5);

/// Processor time of this thread, the kernel's work for it included.
pub(super) struct Budget {
    end: Duration,
    /// The clock is that of the thread that has made this.
    not_send: PhantomData<*const ()>,
}

impl Budget {
    /// The time that a thread has from now on.
    pub(super) fn start() -> Self {
        Self::of(LIMIT)
    }

    /// A budget of `limit`.
    pub(super) fn of(limit: Duration) -> Self {
        Self { end: used() + limit, not_send: PhantomData }
    }

    pub(super) fn is_spent(&self) -> bool {
        used() >= self.end
    }

    /// Checks that there is time left.
    pub(super) fn check(&self) -> Result<()> {
        if !self.is_spent() {
            return Ok(());
        }
        Err(refused(format!("looking at its processes takes more than {} s", LIMIT.as_secs())))
    }
}

fn used() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_this_thread_does_counts() {
        let budget = Budget::start();
        let other = std::thread::spawn(|| while used() < Duration::from_millis(200) {});
        other.join().unwrap();
        assert!(used() < Duration::from_millis(200) && budget.check().is_ok());
        let spent = Budget { end: used(), not_send: PhantomData };
        assert!(spent.check().is_err());
    }
}
