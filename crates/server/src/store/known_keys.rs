//! The API keys that were used in the last second, with their teams: a busy client's calls need not ask SQLite for the key each time.
//!
//! Other processes change keys while the server runs (`sandcove keys`). So a file beside the database holds a stamp, which whoever changes
//! teams or keys replaces afterwards, and a key is known only for as long as the stamp is the one from before its row was read.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::domain::team::Team;

/// Time for which a key is known. It bounds how long a revoked key works whose revoker was killed between database and stamp.
pub(super) const TTL: Duration = Duration::from_secs(1);

/// The end of the file's name, after the name of the database.
const SUFFIX: &str = "-keys";

/// Number of keys that are known at once.
const MAX_KNOWN: usize = 1024;

/// The content of the file, and when it was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stamp {
    /// A random number; all zeros before the first change.
    value: [u8; 16],
    read_at: Instant,
}

/// Keys that were found in the database a moment ago.
#[derive(Debug)]
pub(super) struct KnownKeys {
    /// The file with the stamp; `None` if it could not be opened, and no key is known then.
    stamp: Option<File>,
    /// Keys by their hash.
    keys: Mutex<HashMap<String, KnownKey>>,
}

#[derive(Debug)]
struct KnownKey {
    stamp: Stamp,
    team: Team,
    id: Uuid,
}

impl KnownKeys {
    /// Opens the stamp of a database.
    pub(super) fn open(database: &Path) -> Self {
        let mut path = database.as_os_str().to_owned();
        path.push(SUFFIX);
        let opened =
            File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        if let Err(error) = &opened {
            tracing::warn!(?path, %error, "every call reads its API key from the database");
        }
        Self { stamp: opened.ok(), keys: Mutex::default() }
    }

    /// The team and the id of a key, if they are known.
    pub(super) fn get(&self, hash: &str) -> Option<(Team, Uuid)> {
        let stamp = self.stamp()?;
        let keys = self.lock();
        let known = keys.get(hash)?;
        let is_current = known.stamp.value == stamp.value && known.stamp.read_at.elapsed() < TTL;
        is_current.then(|| (known.team.clone(), known.id))
    }

    /// The stamp, for [`Self::put`]; `None` if it cannot be read, and no key is known then.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        let mut stamp = Stamp { value: Default::default(), read_at: Instant::now() };
        self.stamp.as_ref()?.read_at(&mut stamp.value, 0).ok().map(|_| stamp)
    }

    /// Notes a key. `stamp` is from before its row was read: the row may be older than a change since.
    pub(super) fn put(&self, stamp: Option<Stamp>, hash: String, team: &Team, id: Uuid) {
        let Some(stamp) = stamp else { return };
        let mut keys = self.lock();
        if keys.len() >= MAX_KNOWN {
            keys.clear();
        }
        keys.insert(hash, KnownKey { stamp, team: team.clone(), id });
    }

    /// Forgets all keys, in all processes, after teams or keys changed.
    pub(super) fn forget(&self) {
        let Some(file) = &self.stamp else { return };
        if let Err(error) = file.write_all_at(Uuid::new_v4().as_bytes(), 0) {
            tracing::warn!(%error, "a change of teams or keys is seen after a second only");
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, KnownKey>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
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
    async fn changes_of_another_process_are_seen_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let store = store_with_key(directory.path()).await;
        let other = Store::open(&directory.path().join("sandcove.db")).await.unwrap();
        let (team, id) = store.team_of_key(KEY).await.unwrap().unwrap();
        assert!(other.delete_key(&team, id).await.unwrap());
        assert!(store.team_of_key(KEY).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_row_read_before_a_change_is_not_known() {
        let directory = tempfile::tempdir().unwrap();
        let store = store_with_key(directory.path()).await;
        let (team, known) = (store.default_team().await.unwrap(), &store.known_keys);
        let stamp = known.stamp();
        known.forget();
        known.put(stamp, KEY.to_owned(), &team, team.id);
        assert!(known.get(KEY).is_none());
        known.put(known.stamp(), KEY.to_owned(), &team, team.id);
        assert!(known.get(KEY).is_some());
    }
}
