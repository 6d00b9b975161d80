//! Connections that only read. A pool of sqlx asks a connection whether it is alive each time it is given back, which wakes the
//! connection's thread once more, and it hands out the one that has waited longest, whose pages and statements are the coldest. A connection to
//! a file does not go stale.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt, TryFutureExt, TryStreamExt};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteQueryResult, SqliteRow, SqliteStatement, SqliteTypeInfo,
};
use sqlx::{ConnectOptions, Connection, Either, Execute, Executor, Result, SqlStr, Sqlite};
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard, Semaphore, SemaphorePermit};

/// Number of connections: reads at the same time.
const CONNECTIONS: usize = 4;

/// The connections. A query takes one until its last row is there.
#[derive(Debug, Clone)]
pub(super) struct Readers(Arc<Connections>);

#[derive(Debug)]
struct Connections {
    /// `None` once it was closed.
    all: Vec<Mutex<Option<SqliteConnection>>>,
    free: Semaphore,
}

/// A connection in use. It is free before its permit is.
struct Taken<'a>(
    MappedMutexGuard<'a, SqliteConnection>,
    #[expect(unused, reason = "held")] SemaphorePermit<'a>,
);

impl Readers {
    /// Opens the connections.
    pub(super) async fn open(options: &SqliteConnectOptions) -> Result<Self> {
        let mut all = Vec::with_capacity(CONNECTIONS);
        for _ in 0..CONNECTIONS {
            all.push(Mutex::new(Some(options.connect().await?)));
        }
        Ok(Self(Arc::new(Connections { all, free: Semaphore::new(CONNECTIONS) })))
    }

    /// Closes the connections, each once it is not in use any more.
    pub(super) async fn close(&self) {
        self.0.free.close();
        for connection in &self.0.all {
            if let Some(connection) = connection.lock().await.take()
                && let Err(error) = connection.close().await
            {
                tracing::warn!(%error, "failed to close a connection to the database");
            }
        }
    }
}

impl Connections {
    /// Waits for a connection that is not in use, and takes the first, which was used last.
    async fn take(&self) -> Result<Taken<'_>> {
        let permit = self.free.acquire().await.map_err(|_| sqlx::Error::PoolClosed)?;
        let free = self.all.iter().find_map(|connection| connection.try_lock().ok());
        let free = free.and_then(|free| MutexGuard::try_map(free, Option::as_mut).ok());
        Ok(Taken(free.ok_or(sqlx::Error::PoolClosed)?, permit))
    }
}

impl<'p> Executor<'p> for &'_ Readers {
    type Database = Sqlite;

    fn fetch_many<'e, 'q: 'e, E>(
        self,
        query: E,
    ) -> BoxStream<'e, Result<Either<SqliteQueryResult, SqliteRow>>>
    where
        E: 'q + Execute<'q, Sqlite>,
    {
        let connections = self.0.clone();
        let steps = async move {
            let mut taken = connections.take().await?;
            let steps: Vec<_> = taken.0.fetch_many(query).try_collect().await?;
            Ok(stream::iter(steps).map(Ok))
        };
        steps.try_flatten_stream().boxed()
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<SqliteRow>>>
    where
        E: 'q + Execute<'q, Sqlite>,
    {
        let connections = self.0.clone();
        async move { connections.take().await?.0.fetch_optional(query).await }.boxed()
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [SqliteTypeInfo],
    ) -> BoxFuture<'e, Result<SqliteStatement>>
    where
        'p: 'e,
    {
        let connections = self.0.clone();
        async move { connections.take().await?.0.prepare_with(sql, parameters).await }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn readers(directory: &tempfile::TempDir) -> Readers {
        let options =
            SqliteConnectOptions::new().filename(directory.path().join("db")).create_if_missing(true);
        Readers::open(&options).await.unwrap()
    }

    #[tokio::test]
    async fn more_reads_than_connections_wait_for_each_other() {
        let directory = tempfile::tempdir().unwrap();
        let readers = readers(&directory).await;
        let reads = (0..50_i64).map(|number| {
            let readers = readers.clone();
            async move {
                sqlx::query_scalar::<_, i64>("SELECT $1").bind(number).fetch_one(&readers).await.unwrap()
            }
        });
        assert_eq!(futures_util::future::join_all(reads).await, (0..50).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_read_that_is_given_up_leaves_a_connection_that_works() {
        let directory = tempfile::tempdir().unwrap();
        let readers = readers(&directory).await;
        let count =
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) SELECT i FROM n";
        for _ in 0..20 {
            let read = sqlx::query(count).fetch_all(&readers);
            assert!(tokio::time::timeout(std::time::Duration::from_micros(300), read).await.is_err());
            let rows = sqlx::query("SELECT 7").fetch_all(&readers).await.unwrap();
            assert_eq!(rows.len(), 1);
        }
    }

    #[tokio::test]
    async fn nothing_is_read_once_they_are_closed() {
        let directory = tempfile::tempdir().unwrap();
        let readers = readers(&directory).await;
        readers.close().await;
        let refused = sqlx::query("SELECT 1").fetch_one(&readers).await;
        assert!(matches!(refused, Err(sqlx::Error::PoolClosed)));
    }
}
