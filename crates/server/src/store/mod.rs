//! The database: one SQLite file in WAL mode. The interface is in terms of `domain`; SQL stays in this module and is portable
//! to other databases (`$1` placeholders, no dialect), but for batches, which send several statements at once.

pub mod backup;
mod batch;
mod builds;
mod events;
mod idempotency;
mod keys;
mod known_keys;
mod layers;
mod migrations;
mod observed;
mod sandboxes;
mod secrets;
mod snapshots;
mod started;
mod step_cache;
mod tags;
mod team_metrics;
mod teams;
mod templates;
mod tokens;
mod volumes;
mod webhooks;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use sandcove_isolate::crash;
use sqlx::Connection;
use sqlx::migrate::MigrateError;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteSynchronous,
};
use tokio::sync::Notify;

pub(crate) use events::EventQuery;
pub use idempotency::IdempotencyStatus;
pub use keys::ApiKey;
use known_keys::KnownKeys;
pub(crate) use observed::Observed;
pub(crate) use step_cache::{CachedImage, CachedStep};
pub(crate) use team_metrics::{Activity, Peak};
pub use teams::FirstTeam;
pub use tokens::AccessToken;
pub(crate) use volumes::Inserted;
pub(crate) use webhooks::{AttemptQuery, DueDelivery};

use crate::{Error, Result};

/// A handle to the database; clones share it.
#[derive(Debug, Clone)]
pub struct Store {
    // SQLite has one writer at a time. One connection writes, so that writers queue here instead of retrying.
    write: SqlitePool,
    read: SqlitePool,
    known_keys: Arc<KnownKeys>,
    /// SQLite's write-ahead log.
    wal: PathBuf,
    /// Notified when a delivery was stored.
    new_deliveries: Arc<Notify>,
    /// Size of the events that were stored since old ones were last deleted.
    new_event_bytes: Arc<AtomicU64>,
}

impl Store {
    /// Opens the database at `path`, and creates or migrates it as needed. The file is readable by its owner only.
    pub async fn open(path: &Path) -> Result<Self> {
        restrict(path)?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .foreign_keys(true)
            .busy_timeout(Duration::from_secs(5));
        // A connection to a file does not go stale. To ask it before each use would wake its thread and this one once more.
        let pool = || SqlitePoolOptions::new().test_before_acquire(false);
        let write = pool()
            .max_connections(1)
            .after_release(|connection, _| Box::pin(is_between_transactions(connection)))
            .connect_with(options.clone())
            .await?;
        crash::point("store.opened");
        migrations::migrator().run(&write).await.map_err(|source| match source {
            // Migrations are never removed, so an unknown one is of a newer server.
            MigrateError::VersionMissing(step) => Error::NewerDatabase(step),
            source => Error::Migrate(source),
        })?;
        crash::point("store.migrated");
        let read = pool().max_connections(4).connect_with(options.read_only(true)).await?;
        let mut wal = path.as_os_str().to_owned();
        wal.push("-wal");
        Ok(Self {
            write,
            read,
            known_keys: Arc::new(KnownKeys::open(path)),
            wal: wal.into(),
            new_deliveries: Arc::default(),
            new_event_bytes: Arc::default(),
        })
    }

    /// Waits until a delivery may have been stored.
    pub(crate) async fn new_deliveries(&self) {
        self.new_deliveries.notified().await;
    }

    /// Syncs everything written so far to disk. Writes survive a crash of the server at once, and a crash of the host only
    /// after a sync.
    pub async fn flush(&self) -> Result<()> {
        let path = self.wal.clone();
        let synced = tokio::task::spawn_blocking(move || match std::fs::File::open(path) {
            Ok(wal) => wal.sync_data(),
            // Everything is in the main file, which SQLite synced before it deleted the log.
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(err) => Err(err),
        });
        synced
            .await
            .unwrap_or_else(|err| Err(std::io::Error::other(err)))
            .map_err(|err| sqlx::Error::Io(err).into())
    }

    /// Writes everything into the main file and closes the database.
    pub async fn close(&self) {
        self.read.close().await;
        if let Err(err) = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&self.write).await {
            tracing::warn!(error = %err, "failed to checkpoint the database");
        }
        self.write.close().await;
    }
}

/// Whether a connection may be used again. SQLite ends the transaction by itself when the disk is full. sqlx assumes that it
/// goes on, and would make all later transactions part of it: acknowledged, and never committed.
async fn is_between_transactions(connection: &mut SqliteConnection) -> sqlx::Result<bool> {
    if !connection.is_in_transaction() {
        return Ok(true);
    }
    // The ping comes after the rollback of a dropped transaction.
    connection.ping().await?;
    Ok(!connection.is_in_transaction())
}

/// Creates the file before SQLite does, readable by its owner only, because it holds tokens of sandboxes. SQLite gives its
/// log files the same mode.
fn restrict(path: &Path) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .map(drop)
        .map_err(|source| Error::DataDir { path: path.to_owned(), source })
}

/// The error for a stored value that cannot be read back.
fn corrupt<E>(what: &'static str, id: &str) -> impl FnOnce(E) -> Error
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    move |source| Error::Corrupt { what, id: id.to_owned(), source: source.into() }
}

/// The JSON text of a value, for its column.
fn json<T: serde::Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|_| Error::Internal("a value could not be written as JSON"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sandcove_wire::secret::Secret;

    use super::*;

    #[tokio::test]
    async fn a_database_of_a_newer_server_is_named_as_such() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sandcove.db");
        let store = Store::open(&path).await.unwrap();
        sqlx::query(
            "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
             VALUES (9999, 'later', TRUE, x'00', 0)",
        )
        .execute(&store.write)
        .await
        .unwrap();
        store.close().await;
        let error = Store::open(&path).await.map(drop).unwrap_err().to_string();
        assert!(error.contains("newer sandcove (migration 9999 is unknown)"), "{error}");
        assert!(error.contains(env!("CARGO_PKG_VERSION")), "{error}");
    }

    #[tokio::test]
    async fn a_key_is_known_when_its_use_cannot_be_stored() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("sandcove.db")).await.unwrap();
        let key = "e2b_0123456789abcdef0123456789abcdef01234567";
        store.ensure_default_team(Some(&Secret::new(key)), 1, Duration::from_secs(60)).await.unwrap();
        sqlx::query("PRAGMA query_only = TRUE").execute(&store.write).await.unwrap();
        assert!(store.team_of_key(key).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_full_disk_leaves_no_transaction_behind() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("sandcove.db")).await.unwrap();
        sqlx::query("CREATE TABLE scratch (content BLOB)").execute(&store.write).await.unwrap();
        let mut transaction = store.write.begin().await.unwrap();
        // Not one page more than there are.
        sqlx::query("PRAGMA max_page_count = 1").execute(&mut *transaction).await.unwrap();
        let full =
            sqlx::query("INSERT INTO scratch VALUES (zeroblob(10000000))").execute(&mut *transaction).await;
        assert!(matches!(Error::from(full.unwrap_err()), Error::StoreFull(_)));
        drop(transaction);
        assert!(!store.write.acquire().await.unwrap().is_in_transaction());
    }
}
