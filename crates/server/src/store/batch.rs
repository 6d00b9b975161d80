//! Statements that are executed as one transaction, in one turn of the database's thread. Each turn wakes that thread and then the caller, which
//! takes longer than the statements: the create of a sandbox would wait for half a dozen turns.

use std::future::ready;

use futures_util::TryStreamExt;
use sqlx::pool::PoolConnection;
use sqlx::{Executor, QueryBuilder, Sqlite};

use super::Store;
use crate::Result;

/// The statements of a transaction. Each begins with `; `.
pub(super) type Batch = QueryBuilder<Sqlite>;

/// An empty batch.
pub(super) fn begin() -> Batch {
    Batch::new("BEGIN IMMEDIATE")
}

/// The connection of a batch that may have begun and not ended. It is closed when this is dropped, and SQLite rolls the batch back.
struct Unfinished(Option<PoolConnection<Sqlite>>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(connection) = &mut self.0 {
            connection.close_on_drop();
        }
    }
}

impl Store {
    /// Executes all of a batch or nothing of it; returns the number of rows that each statement changed.
    pub(super) async fn execute(&self, mut batch: Batch) -> Result<Vec<u64>> {
        batch.push("; COMMIT");
        let mut unfinished = Unfinished(Some(self.write.acquire().await?));
        let Some(connection) = &mut unfinished.0 else { return Ok(Vec::new()) };
        let executed: sqlx::Result<Vec<u64>> = (&mut **connection)
            .fetch_many(batch.build())
            .try_filter_map(|step| ready(Ok(step.left().map(|done| done.rows_affected()))))
            .try_collect()
            .await;
        // Where it cannot be rolled back, SQLite has done so itself, as on a full disk; or it goes on, and later statements would be part of it.
        if executed.is_ok() || (&mut **connection).execute("ROLLBACK").await.is_ok() {
            unfinished.0.take();
        }
        let mut changed = executed?;
        // BEGIN and COMMIT repeat the number of the statement before.
        changed.pop();
        changed.drain(..1.min(changed.len()));
        Ok(changed)
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use futures_util::FutureExt;

    use super::*;
    use crate::Error;

    async fn scratch(directory: &tempfile::TempDir) -> Store {
        let store = Store::open(&directory.path().join("sandcove.db")).await.unwrap();
        sqlx::query("CREATE TABLE scratch (number INTEGER UNIQUE)").execute(&store.write).await.unwrap();
        store
    }

    fn inserting(numbers: &[i64]) -> Batch {
        let mut batch = begin();
        for number in numbers {
            batch.push("; INSERT INTO scratch VALUES (").push_bind(*number).push(")");
        }
        batch
    }

    async fn count(store: &Store) -> i64 {
        sqlx::query_scalar("SELECT COUNT(*) FROM scratch").fetch_one(&store.write).await.unwrap()
    }

    #[tokio::test]
    async fn each_statement_tells_how_many_rows_it_changed() {
        let directory = tempfile::tempdir().unwrap();
        let store = scratch(&directory).await;
        let mut batch = inserting(&[1, 2]);
        batch.push("; UPDATE scratch SET number = number + 10; DELETE FROM scratch WHERE number = 1");
        assert_eq!(store.execute(batch).await.unwrap(), [1, 1, 2, 0]);
        assert_eq!(store.execute(begin()).await.unwrap(), [0; 0]);
    }

    #[tokio::test]
    async fn a_statement_that_fails_leaves_nothing_of_its_batch() {
        let directory = tempfile::tempdir().unwrap();
        let store = scratch(&directory).await;
        store.execute(inserting(&[1])).await.unwrap();
        store.execute(inserting(&[2, 1, 3])).await.unwrap_err();
        assert_eq!(count(&store).await, 1);
        store.execute(inserting(&[2, 3])).await.unwrap();
        assert_eq!(count(&store).await, 3);
    }

    #[tokio::test]
    async fn a_full_disk_leaves_no_batch_behind() {
        let directory = tempfile::tempdir().unwrap();
        let store = scratch(&directory).await;
        // Not one page more than there are.
        sqlx::query("PRAGMA max_page_count = 1").execute(&store.write).await.unwrap();
        let mut batch = inserting(&[1]);
        batch.push("; CREATE TABLE large AS SELECT zeroblob(10000000)");
        assert!(matches!(store.execute(batch).await.unwrap_err(), Error::StoreFull(_)));
        assert_eq!(count(&store).await, 0);
        store.execute(inserting(&[2])).await.unwrap();
        assert_eq!(count(&store).await, 1);
    }

    #[tokio::test]
    async fn a_batch_that_is_not_waited_for_is_executed_or_not_but_not_in_part() {
        let directory = tempfile::tempdir().unwrap();
        let store = scratch(&directory).await;
        let mut executed = 0;
        for first in (0..200).step_by(2) {
            let mut execution = store.execute(inserting(&[first, first + 1])).boxed();
            for _ in 0..=first % 5 {
                let turn = execution.poll_unpin(&mut Context::from_waker(Waker::noop()));
                if matches!(turn, Poll::Ready(_)) {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(execution);
            let now = count(&store).await;
            assert!(now == executed || now == executed + 2, "{now} after {executed}");
            executed = now;
        }
        store.execute(inserting(&[1000])).await.unwrap();
        assert_eq!(count(&store).await, executed + 1);
    }
}
