//! Sandboxes that are gone, until everything observed of them is stored. They pile up while nothing can be stored, so what
//! they hold has a bound.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Sandboxes that are gone, oldest first.
#[derive(Debug)]
pub(super) struct Removed<T>(Mutex<VecDeque<Arc<T>>>);

impl<T> Default for Removed<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Removed<T> {
    /// Adds a sandbox that was removed just now.
    pub(super) fn add(&self, gone: Arc<T>) {
        self.lock().push_back(gone);
    }

    /// Every removed sandbox, oldest first.
    pub(super) fn all(&self) -> Vec<Arc<T>> {
        self.lock().iter().cloned().collect()
    }

    /// Forgets sandboxes of which everything is stored.
    pub(super) fn forget(&self, stored: &[Arc<T>]) {
        self.lock().retain(|gone| !stored.iter().any(|one| Arc::ptr_eq(one, gone)));
    }

    /// Forgets the oldest until all others together weigh no more than `max`; returns how many were forgotten.
    pub(super) fn shed(&self, max: usize, weight: impl Fn(&T) -> usize) -> usize {
        let mut removed = self.lock();
        let mut total = 0;
        let kept = removed.iter().rev().take_while(|gone| {
            total += weight(gone);
            total <= max
        });
        let surplus = removed.len() - kept.count();
        removed.drain(..surplus);
        surplus
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_when_it_is_too_much() {
        let removed = Removed::default();
        let weight = |weight: &usize| *weight;
        [50, 10, 20, 30].into_iter().for_each(|weight| removed.add(Arc::new(weight)));
        assert_eq!(removed.shed(110, weight), 0);
        assert_eq!(removed.shed(59, weight), 2);
        assert_eq!(removed.all(), [20, 30].map(Arc::new));
        // However much goes, what is held is bounded.
        for gone in 0..1000 {
            removed.add(Arc::new(gone % 7));
            removed.shed(100, weight);
            assert!(removed.all().iter().map(|weight| **weight).sum::<usize>() <= 100);
        }
    }

    #[test]
    fn only_what_is_stored_is_forgotten() {
        let removed = Removed::default();
        removed.add(Arc::new(1));
        let stored = removed.all();
        removed.add(Arc::new(1));
        removed.forget(&stored);
        assert_eq!(removed.all(), [Arc::new(1)]);
    }
}
