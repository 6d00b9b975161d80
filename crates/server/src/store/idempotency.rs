//! Idempotency keys of create requests (contract: control-plane, section 6.2).

use sandcove_wire::id::SandboxId;
use sqlx::Row;
use uuid::Uuid;

use super::batch::Batch;
use super::{Store, corrupt};
use crate::domain::limits::IDEMPOTENCY_KEYS;
use crate::{Result, clock};

/// Time for which a key is kept.
const LIFETIME_MICROS: i64 = 24 * 3600 * 1_000_000;

/// The status of an idempotency key when a request brings it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdempotencyStatus {
    /// The key was free and now belongs to the request, which may go on.
    Claimed,
    /// An equal request has created this sandbox.
    Completed(SandboxId),
    /// An equal request has begun and not ended.
    Unfinished,
    /// The key belongs to another request.
    OtherRequest,
}

impl Store {
    /// Claims `key` for a request with this fingerprint, or returns the status of the earlier claim.
    pub async fn begin_idempotent(
        &self,
        team: Uuid,
        key: &str,
        fingerprint: &str,
    ) -> Result<IdempotencyStatus> {
        let now = clock::now().as_microsecond();
        let claimed = sqlx::query(
            "INSERT INTO idempotency_keys (team_id, key, fingerprint, created_at) VALUES ($1, $2, $3, $4) \
             ON CONFLICT (team_id, key) DO UPDATE SET fingerprint = $3, sandbox_id = NULL, created_at = $4 \
             WHERE created_at < $5",
        )
        .bind(team.to_string())
        .bind(key)
        .bind(fingerprint)
        .bind(now)
        .bind(now - LIFETIME_MICROS)
        .execute(&self.write)
        .await?;
        if claimed.rows_affected() == 1 {
            return Ok(IdempotencyStatus::Claimed);
        }
        let row = sqlx::query(
            "SELECT fingerprint, sandbox_id FROM idempotency_keys WHERE team_id = $1 AND key = $2",
        )
        .bind(team.to_string())
        .bind(key)
        .fetch_one(&self.write)
        .await?;
        if row.try_get::<String, _>("fingerprint")? != fingerprint {
            return Ok(IdempotencyStatus::OtherRequest);
        }
        match row.try_get::<Option<String>, _>("sandbox_id")? {
            Some(id) => {
                Ok(IdempotencyStatus::Completed(id.parse().map_err(corrupt("idempotency key", key))?))
            }
            None => Ok(IdempotencyStatus::Unfinished),
        }
    }

    /// Deletes the keys of a team that are too old, and the oldest beyond those that are kept.
    pub(crate) async fn delete_old_keys(&self, team: Uuid) -> Result<()> {
        self.delete_keys(team, clock::now().as_microsecond() - LIFETIME_MICROS, IDEMPOTENCY_KEYS).await
    }

    /// Deletes the keys of a team that were claimed before a time, and the oldest beyond `max`.
    async fn delete_keys(&self, team: Uuid, before: i64, max: i64) -> Result<()> {
        sqlx::query(
            "DELETE FROM idempotency_keys WHERE team_id = $1 AND created_at < $2 OR team_id = $1 AND created_at < COALESCE(\
             (SELECT created_at FROM idempotency_keys WHERE team_id = $1 ORDER BY created_at DESC LIMIT 1 OFFSET $3), 0)",
        )
        .bind(team.to_string())
        .bind(before)
        .bind(max - 1)
        .execute(&self.write)
        .await?;
        Ok(())
    }

    /// Releases the key of a request that has created nothing.
    pub async fn abandon_idempotent(&self, team: Uuid, key: &str) -> Result<()> {
        sqlx::query("DELETE FROM idempotency_keys WHERE team_id = $1 AND key = $2 AND sandbox_id IS NULL")
            .bind(team.to_string())
            .bind(key)
            .execute(&self.write)
            .await?;
        Ok(())
    }
}

/// Stores the sandbox that the request with a key has created.
pub(super) fn finish_idempotent(batch: &mut Batch, team: Uuid, key: &str, sandbox: &SandboxId) {
    batch.push("; UPDATE idempotency_keys SET sandbox_id = ").push_bind(sandbox.as_str());
    batch.push(" WHERE team_id = ").push_bind(team.to_string());
    batch.push(" AND key = ").push_bind(key);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn the_newest_keys_of_a_team_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("sandcove.db")).await.unwrap();
        let team = store.ensure_default_team(None, 1, Duration::from_secs(60)).await.unwrap().team.id;
        for key in ["a", "b", "c"] {
            store.begin_idempotent(team, key, "f").await.unwrap();
        }
        store.delete_keys(team, 0, 2).await.unwrap();
        assert_eq!(store.begin_idempotent(team, "c", "f").await.unwrap(), IdempotencyStatus::Unfinished);
        assert_eq!(store.begin_idempotent(team, "b", "f").await.unwrap(), IdempotencyStatus::Unfinished);
        assert_eq!(store.begin_idempotent(team, "a", "f").await.unwrap(), IdempotencyStatus::Claimed);
        store.delete_keys(team, i64::MAX, 10).await.unwrap();
        assert_eq!(store.begin_idempotent(team, "c", "f").await.unwrap(), IdempotencyStatus::Claimed);
    }

    #[tokio::test]
    async fn a_key_that_is_too_old_is_free_although_its_row_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("sandcove.db")).await.unwrap();
        let team = store.ensure_default_team(None, 1, Duration::from_secs(60)).await.unwrap().team.id;
        store.begin_idempotent(team, "a", "f").await.unwrap();
        assert_eq!(store.begin_idempotent(team, "a", "g").await.unwrap(), IdempotencyStatus::OtherRequest);
        sqlx::query(
            "UPDATE idempotency_keys SET created_at = created_at - $1, sandbox_id = 'i0123456789abcdefghij'",
        )
        .bind(LIFETIME_MICROS)
        .execute(&store.write)
        .await
        .unwrap();
        assert_eq!(store.begin_idempotent(team, "a", "g").await.unwrap(), IdempotencyStatus::Claimed);
        assert_eq!(store.begin_idempotent(team, "a", "g").await.unwrap(), IdempotencyStatus::Unfinished);
    }
}
