//! Sandboxes that are gone, for as long as not all that was seen of them is stored. While nothing can be stored they pile up,
//! so that there is a bound to what they hold.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is kept of them, oldest first.
#[derive(Debug)]
pub(super) struct Departed<T>(Mutex<VecDeque<Arc<T>>>);

impl<T> Default for Departed<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Departed<T> {
    /// Adds one that has just gone.
    pub(super) fn add(&self, gone: Arc<T>) {
        self.lock().push_back(gone);
    }

    /// All of them, oldest first.
    pub(super) fn all(&self) -> Vec<Arc<T>> {
        self.lock().iter().cloned().collect()
    }

    /// Forgets those that are stored.
    pub(super) fn forget(&self, stored: &[Arc<T>]) {
        self.lock().retain(|gone| !stored.iter().any(|one| Arc::ptr_eq(one, gone)));
    }

    /// Forgets the oldest until all others together weigh no more than `most`; how many those were.
    pub(super) fn shed(&self, most: usize, weight: impl Fn(&T) -> usize) -> usize {
        let mut departed = self.lock();
        let mut total = 0;
        let kept = departed.iter().rev().take_while(|gone| {
            total += weight(gone);
            total <= most
        });
        let surplus = departed.len() - kept.count();
        departed.drain(..surplus);
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
        let departed = Departed::default();
        let weight = |weight: &usize| *weight;
        [50, 10, 20, 30].into_iter().for_each(|weight| departed.add(Arc::new(weight)));
        assert_eq!(departed.shed(110, weight), 0);
        assert_eq!(departed.shed(59, weight), 2);
        assert_eq!(departed.all(), [20, 30].map(Arc::new));
        // However much goes, what is held is bounded.
        for gone in 0..1000 {
            departed.add(Arc::new(gone % 7));
            departed.shed(100, weight);
            assert!(departed.all().iter().map(|weight| **weight).sum::<usize>() <= 100);
        }
    }

    #[test]
    fn only_what_is_stored_is_forgotten() {
        let departed = Departed::default();
        departed.add(Arc::new(1));
        let stored = departed.all();
        departed.add(Arc::new(1));
        departed.forget(&stored);
        assert_eq!(departed.all(), [Arc::new(1)]);
    }
}
