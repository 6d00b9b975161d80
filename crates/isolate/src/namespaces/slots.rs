//! Allocation of an instance's slots.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::net::SLOTS_PER_INSTANCE;
use crate::{Error, Result};

#[derive(Debug)]
pub(super) struct Slots {
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    taken: Vec<bool>,
    /// The slot behind the one that was taken last. Slots are taken in turn, so that the kernel has deleted what a sandbox had before its
    /// slot is another's.
    next: usize,
}

impl Slots {
    pub(super) fn new(count: u32) -> Self {
        let taken = vec![false; count.min(SLOTS_PER_INSTANCE) as usize];
        Self { table: Mutex::new(Table { taken, next: 0 }) }
    }

    /// Takes a free slot, the next one after that taken last.
    pub(super) fn take(&self) -> Result<u32> {
        let mut table = self.table();
        let count = table.taken.len();
        let slot = (table.next..count).chain(0..table.next).find(|slot| !table.taken[*slot]);
        let slot = slot.ok_or(Error::NoSlot(count as u32))?;
        table.taken[slot] = true;
        table.next = slot + 1;
        Ok(slot as u32)
    }

    /// Takes the given slot for a sandbox that exists already; false when it is taken. A slot beyond the configured maximum,
    /// which was lowered, is accepted and not allocated again.
    pub(super) fn mark(&self, slot: u32) -> bool {
        match self.table().taken.get_mut(slot as usize) {
            Some(taken) => !std::mem::replace(taken, true),
            None => true,
        }
    }

    /// Takes the slots `kept` and releases all others.
    pub(super) fn keep_only(&self, kept: &[u32]) {
        for (slot, taken) in (0..).zip(self.table().taken.iter_mut()) {
            *taken = kept.contains(&slot);
        }
    }

    /// Number of slots that nobody has.
    pub(super) fn free(&self) -> usize {
        self.table().taken.iter().filter(|taken| !**taken).count()
    }

    pub(super) fn is_taken(&self, slot: u32) -> bool {
        self.table().taken.get(slot as usize).copied().unwrap_or(false)
    }

    /// Releases a slot; false when it was not taken. Its owner calls this once: a second time, the slot may be that of another sandbox.
    pub(super) fn release(&self, slot: u32) -> bool {
        self.table().taken.get_mut(slot as usize).is_none_or(|taken| std::mem::replace(taken, false))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
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

    #[test]
    fn a_slot_rests_until_all_others_have_been_taken() {
        let slots = Slots::new(3);
        assert_eq!(slots.take().unwrap(), 0);
        assert!(slots.release(0));
        assert_eq!(slots.take().unwrap(), 1);
        assert_eq!(slots.take().unwrap(), 2);
        assert_eq!(slots.take().unwrap(), 0);
    }
}
