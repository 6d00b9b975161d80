//! Which create requests were made under which idempotency key (contract: control-plane, section 6.2).

use sandcove_wire::id::SandboxId;
use sqlx::Row;
use uuid::Uuid;

use super::{Store, corrupt};
use crate::{Result, clock};

/// How long a key is remembered.
const LIFETIME_MICROS: i64 = 24 * 3600 * 1_000_000;

/// What is known of a key when a request brings it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// Nothing: the request may go on, and the key is taken.
    First,
    /// The same request made this sandbox.
    Made(SandboxId),
    /// The same request was begun and has not ended.
    Unfinished,
    /// The key belongs to another request.
    OtherRequest,
}

impl Store {
    /// Takes `key` for a request with this fingerprint, or says what it was taken for.
    pub async fn begin_idempotent(&self, team: Uuid, key: &str, fingerprint: &str) -> Result<Begun> {
        let now = clock::now().as_microsecond();
        sqlx::query("DELETE FROM idempotency_keys WHERE created_at < $1")
            .bind(now - LIFETIME_MICROS)
            .execute(&self.write)
            .await?;
        let inserted = sqlx::query(
            "INSERT INTO idempotency_keys (team_id, key, fingerprint, created_at) VALUES ($1, $2, $3, $4) \
             ON CONFLICT (team_id, key) DO NOTHING",
        )
        .bind(team.to_string())
        .bind(key)
        .bind(fingerprint)
        .bind(now)
        .execute(&self.write)
        .await?;
        if inserted.rows_affected() == 1 {
            return Ok(Begun::First);
        }
        let row = sqlx::query(
            "SELECT fingerprint, sandbox_id FROM idempotency_keys WHERE team_id = $1 AND key = $2",
        )
        .bind(team.to_string())
        .bind(key)
        .fetch_one(&self.write)
        .await?;
        if row.try_get::<String, _>("fingerprint")? != fingerprint {
            return Ok(Begun::OtherRequest);
        }
        match row.try_get::<Option<String>, _>("sandbox_id")? {
            Some(id) => Ok(Begun::Made(id.parse().map_err(corrupt("idempotency key", key))?)),
            None => Ok(Begun::Unfinished),
        }
    }

    /// Writes down what the request made.
    pub async fn finish_idempotent(&self, team: Uuid, key: &str, sandbox: &SandboxId) -> Result<()> {
        sqlx::query("UPDATE idempotency_keys SET sandbox_id = $1 WHERE team_id = $2 AND key = $3")
            .bind(sandbox.as_str())
            .bind(team.to_string())
            .bind(key)
            .execute(&self.write)
            .await?;
        Ok(())
    }

    /// Gives the key back: the request made nothing.
    pub async fn abandon_idempotent(&self, team: Uuid, key: &str) -> Result<()> {
        sqlx::query("DELETE FROM idempotency_keys WHERE team_id = $1 AND key = $2 AND sandbox_id IS NULL")
            .bind(team.to_string())
            .bind(key)
            .execute(&self.write)
            .await?;
        Ok(())
    }
}
