//! The API keys that were used in the last second, with their teams: a busy client's calls need not ask SQLite for the key each time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::domain::team::Team;

/// Time for which a key is known. Changes are seen at once; the time bounds one that SQLite completed after its caller had left.
pub(super) const TTL: Duration = Duration::from_secs(1);

/// Number of keys that are known at once.
const MAX_KNOWN: usize = 1024;

/// Keys that were found in the database a moment ago.
#[derive(Debug, Default)]
pub(super) struct KnownKeys(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Number of changes to teams and keys so far.
    changes: u64,
    /// Keys by their hash.
    keys: HashMap<String, (Instant, Team, Uuid)>,
}

impl KnownKeys {
    /// The team and the id of a key, if they are known.
    pub(super) fn get(&self, hash: &str) -> Option<(Team, Uuid)> {
        let known = self.lock();
        let (found_at, team, id) = known.keys.get(hash)?;
        (found_at.elapsed() < TTL).then(|| (team.clone(), *id))
    }

    /// Number of changes to teams and keys so far, for [`Self::put`].
    pub(super) fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// Notes a key that was read, unless something changed since `changes` were counted: the row may be older than the change.
    pub(super) fn put(&self, changes: u64, hash: String, team: &Team, id: Uuid) {
        let mut known = self.lock();
        if known.changes != changes {
            return;
        }
        if known.keys.len() >= MAX_KNOWN {
            known.keys.clear();
        }
        known.keys.insert(hash, (Instant::now(), team.clone(), id));
    }

    /// Forgets all keys, after teams or keys changed.
    pub(super) fn forget(&self) {
        let mut known = self.lock();
        known.changes += 1;
        known.keys.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sandcove_wire::secret::Secret;

    use super::super::Store;
    use super::*;
    use crate::domain::team::Standing;

    const KEY: &str = "e2b_0123456789abcdef0123456789abcdef01234567";

    async fn store_with_key(directory: &Path) -> Store {
        let store = Store::open(&directory.join("sandcove.db")).await.unwrap();
        store.ensure_default_team(Some(&Secret::new(KEY)), 1, TTL).await.unwrap();
        store
    }

    #[tokio::test]
    async fn a_key_in_use_is_not_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let store = store_with_key(directory.path()).await;
        let first = store.team_of_key(KEY).await.unwrap().unwrap();
        store.read.close().await;
        assert_eq!(store.team_of_key(KEY).await.unwrap().unwrap().1, first.1);
        store.known_keys.forget();
        assert!(store.team_of_key(KEY).await.is_err());
    }

    #[tokio::test]
    async fn changes_are_seen_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let store = store_with_key(directory.path()).await;
        let (mut team, id) = store.team_of_key(KEY).await.unwrap().unwrap();
        team.standing = Standing::Banned;
        store.update_team(&team).await.unwrap();
        assert_eq!(store.team_of_key(KEY).await.unwrap().unwrap().0.standing, Standing::Banned);
        assert!(store.delete_key(&team, id).await.unwrap());
        assert!(store.team_of_key(KEY).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_row_read_before_a_change_is_not_kept() {
        let directory = tempfile::tempdir().unwrap();
        let store = store_with_key(directory.path()).await;
        let team = store.default_team().await.unwrap();
        let known = KnownKeys::default();
        let changes = known.changes();
        known.forget();
        known.put(changes, KEY.to_owned(), &team, team.id);
        assert!(known.get(KEY).is_none());
        known.put(known.changes(), KEY.to_owned(), &team, team.id);
        assert!(known.get(KEY).is_some());
    }
}
