//! Layers and snapshots that builds and exports in progress use, whether or not a row of the database names them. What is noted here is
//! not deleted by schedule.
//!
//! A build looks something up and notes it while it has a [`Look`]. The collector waits until nobody looks something up, and nobody does
//! while it deletes. So it deletes nothing between the two, and never waits for a whole build.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The names that are in use.
#[derive(Debug, Default)]
pub(super) struct InUse {
    /// Read while something is looked up and noted; written while something is deleted.
    looking: RwLock<()>,
    /// Number of users of each name.
    names: Mutex<HashMap<String, usize>>,
}

/// Layers and snapshots that one build or export uses. Dropping it gives them up.
#[derive(Debug)]
pub(super) struct Uses {
    in_use: Arc<InUse>,
    names: Mutex<HashSet<String>>,
}

/// A look at rows and layers that are not deleted meanwhile.
#[derive(Debug)]
#[must_use]
pub(super) struct Look<'a> {
    uses: &'a Uses,
    _looking: RwLockReadGuard<'a, ()>,
}

/// The right to delete: nobody looks anything up while it exists.
#[derive(Debug)]
pub(super) struct Deleting<'a> {
    in_use: &'a InUse,
    _looking: RwLockWriteGuard<'a, ()>,
}

impl InUse {
    /// The uses of a new build or export.
    pub(super) fn uses(self: &Arc<Self>) -> Uses {
        Uses { in_use: self.clone(), names: Mutex::default() }
    }

    /// Waits until nobody looks anything up, which takes as long as some requests of the database.
    pub(super) async fn deleting(&self) -> Deleting<'_> {
        Deleting { in_use: self, _looking: self.looking.write().await }
    }

    fn names(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deleting<'_> {
    /// Names of the layers and snapshots in use.
    pub(super) fn in_use(&self) -> HashSet<String> {
        self.in_use.names().keys().cloned().collect()
    }
}

impl Uses {
    /// Waits for the end of a deletion, if there is one.
    pub(super) async fn look(&self) -> Look<'_> {
        Look { uses: self, _looking: self.in_use.looking.read().await }
    }

    /// Notes layers and snapshots that cannot be deleted at this moment: they are leased, or no row has ever named them.
    pub(super) fn keep<'n>(&self, names: impl IntoIterator<Item = &'n str>) {
        let mut own = self.own();
        for name in names {
            // A layer may be named with a directory of it.
            let name = name.split('/').next().unwrap_or(name);
            if own.insert(name.to_owned()) {
                *self.in_use.names().entry(name.to_owned()).or_default() += 1;
            }
        }
    }

    fn own(&self) -> MutexGuard<'_, HashSet<String>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Look<'_> {
    /// Notes layers and snapshots that were found.
    pub(super) fn keep<'n>(&self, names: impl IntoIterator<Item = &'n str>) {
        self.uses.keep(names);
    }
}

impl Drop for Uses {
    fn drop(&mut self) {
        let own = std::mem::take(&mut *self.own());
        let mut names = self.in_use.names();
        for name in own {
            if let Some(users) = names.get_mut(&name) {
                *users -= 1;
                if *users == 0 {
                    names.remove(&name);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    async fn names(in_use: &InUse) -> Vec<String> {
        let mut names: Vec<_> = in_use.deleting().await.in_use().into_iter().collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn a_name_is_in_use_until_its_last_user_is_gone() {
        let in_use = Arc::new(InUse::default());
        let (first, second) = (in_use.uses(), in_use.uses());
        first.keep(["t-1/upper", "oci-1", "t-1/upper"]);
        second.look().await.keep(["t-1", "s-1"]);
        assert_eq!(names(&in_use).await, ["oci-1", "s-1", "t-1"]);
        drop(first);
        assert_eq!(names(&in_use).await, ["s-1", "t-1"]);
        drop(second);
        assert_eq!(names(&in_use).await, [""; 0]);
    }

    #[tokio::test]
    async fn nothing_is_deleted_between_a_look_and_its_note() {
        let in_use = Arc::new(InUse::default());
        let uses = in_use.uses();
        let look = uses.look().await;
        assert!(in_use.deleting().now_or_never().is_none());
        look.keep(["t-1"]);
        drop(look);
        let deleting = in_use.deleting().await;
        assert!(uses.look().now_or_never().is_none());
        assert_eq!(deleting.in_use(), HashSet::from(["t-1".to_owned()]));
        drop(deleting);
        assert!(uses.look().now_or_never().is_some(), "a build that is in progress looks again");
    }
}
