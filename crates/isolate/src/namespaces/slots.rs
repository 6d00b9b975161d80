//! Allocation of an instance's slots.

use std::sync::{Mutex, PoisonError};

use crate::net::SLOTS_PER_INSTANCE;
use crate::{Error, Result};

#[derive(Debug)]
pub(super) struct Slots {
    taken: Mutex<Vec<bool>>,
}

impl Slots {
    pub(super) fn new(count: u32) -> Self {
        Self { taken: Mutex::new(vec![false; count.min(SLOTS_PER_INSTANCE) as usize]) }
    }

    /// Takes the lowest free slot.
    pub(super) fn take(&self) -> Result<u32> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.len() as u32;
        match (0..).zip(taken.iter_mut()).find(|(_, taken)| !**taken) {
            Some((slot, free)) => {
                *free = true;
                Ok(slot)
            }
            None => Err(Error::NoSlot(count)),
        }
    }

    /// Takes the given slot for a sandbox that exists already; false when it is taken. A slot beyond the configured maximum,
    /// which was lowered, is accepted and not allocated again.
    pub(super) fn mark(&self, slot: u32) -> bool {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.get_mut(slot as usize) {
            Some(taken) => !std::mem::replace(taken, true),
            None => true,
        }
    }

    /// Takes the slots `kept` and releases all others.
    pub(super) fn keep_only(&self, kept: &[u32]) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        for (slot, taken) in (0..).zip(taken.iter_mut()) {
            *taken = kept.contains(&slot);
        }
    }

    /// Number of slots that nobody has.
    pub(super) fn free(&self) -> usize {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.iter().filter(|taken| !**taken).count()
    }

    pub(super) fn is_taken(&self, slot: u32) -> bool {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).get(slot as usize).copied().unwrap_or(false)
    }

    /// Releases a slot; false when it was not taken. Its owner calls this once: a second time, the slot may be that of another sandbox.
    pub(super) fn release(&self, slot: u32) -> bool {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.get_mut(slot as usize).is_none_or(|taken| std::mem::replace(taken, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_given_out_once_until_released() {
        let slots = Slots::new(2);
        assert!(slots.mark(0));
        assert!(!slots.mark(0));
        assert_eq!(slots.take().unwrap(), 1);
        assert!(slots.take().is_err());
        assert!(slots.release(1));
        assert!(!slots.release(1));
        assert_eq!(slots.take().unwrap(), 1);
        slots.keep_only(&[1, 7]);
        assert_eq!(slots.take().unwrap(), 0);
        assert!(slots.take().is_err());
    }
}
