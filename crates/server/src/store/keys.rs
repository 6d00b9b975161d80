//! API keys. Only their SHA-256 is stored; keys are long and random, so a slow hash would add nothing.

use std::fmt::Write;

use jiff::Timestamp;
use sandcove_wire::api::team::KeyMask;
use sandcove_wire::secret::Secret;
use serde::Serialize;
use sha2::{Digest, Sha256};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::{Store, corrupt, json};
use crate::domain::limits::{API_KEYS, ISSUED_KEYS};
use crate::domain::team::Team;
use crate::{Error, Result, clock, random};

/// Name of the keys that are shown with the list of teams.
const ISSUED: &str = "issued with the list of teams";

/// The record of an API key, without the key.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiKey {
    /// The id, which is not secret.
    pub id: Uuid,
    /// The name.
    pub name: String,
    /// The part of the key that may be shown.
    pub mask: KeyMask,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the last use, to the second.
    pub last_used_at: Option<Timestamp>,
}

impl ApiKey {
    fn new(name: &str, secret: &Secret) -> Self {
        Self {
            id: Uuid::new_v4(),
            name: name.to_owned(),
            mask: mask("e2b_", secret.expose()),
            created_at: clock::now(),
            last_used_at: None,
        }
    }
}

impl Store {
    /// Creates a key for `team`. The key can be shown now and never again.
    ///
    /// # Errors
    /// When the team is at its limit of keys.
    pub async fn create_key(&self, team: &Team, name: &str) -> Result<(ApiKey, Secret)> {
        let secret = random::api_key();
        let key = ApiKey::new(name, &secret);
        let done = sqlx::query(
            "INSERT INTO api_keys (id, team_id, name, hash, mask, created_at) SELECT $1, $2, $3, $4, $5, $6 \
             WHERE (SELECT COUNT(*) FROM api_keys WHERE team_id = $2) < $7",
        )
        .bind(key.id.to_string())
        .bind(team.id.to_string())
        .bind(&key.name)
        .bind(hash(secret.expose()))
        .bind(json(&key.mask)?)
        .bind(key.created_at.as_microsecond())
        .bind(API_KEYS as i64)
        .execute(&self.write)
        .await?;
        match done.rows_affected() {
            0 => Err(Error::TooManyOfTeam { max: API_KEYS, what: "API keys" }),
            _ => Ok((key, secret)),
        }
    }

    /// Creates a key that is shown with the list of teams, and deletes those of its kind beyond the maximum number: first those
    /// that were never used, then those used least recently.
    pub(crate) async fn issue_key(&self, team: &Team) -> Result<(ApiKey, Secret)> {
        sqlx::query(
            "DELETE FROM api_keys WHERE team_id = $1 AND name = $2 AND id NOT IN (SELECT id FROM api_keys \
             WHERE team_id = $1 AND name = $2 \
             ORDER BY last_used_at IS NULL, COALESCE(last_used_at, created_at) DESC LIMIT $3)",
        )
        .bind(team.id.to_string())
        .bind(ISSUED)
        .bind(ISSUED_KEYS - 1)
        .execute(&self.write)
        .await?;
        self.known_keys.forget();
        self.create_key(team, ISSUED).await
    }

    /// Adds `secret` as a key of `team`. A second call with the same key changes nothing.
    pub async fn add_key(&self, team: &Team, name: &str, secret: &Secret) -> Result<()> {
        self.insert_key(team, &ApiKey::new(name, secret), secret).await
    }

    async fn insert_key(&self, team: &Team, key: &ApiKey, secret: &Secret) -> Result<()> {
        sqlx::query(
            "INSERT INTO api_keys (id, team_id, name, hash, mask, created_at) VALUES ($1, $2, $3, $4, $5, $6) \
             ON CONFLICT (hash) DO NOTHING",
        )
        .bind(key.id.to_string())
        .bind(team.id.to_string())
        .bind(&key.name)
        .bind(hash(secret.expose()))
        .bind(json(&key.mask)?)
        .bind(key.created_at.as_microsecond())
        .execute(&self.write)
        .await?;
        // Nobody can ask for the secret again.
        self.flush().await
    }

    /// The keys of a team, oldest first.
    pub async fn keys(&self, team: &Team) -> Result<Vec<ApiKey>> {
        let rows = sqlx::query(
            "SELECT id, name, mask, created_at, last_used_at FROM api_keys WHERE team_id = $1 \
             ORDER BY created_at, id",
        )
        .bind(team.id.to_string())
        .fetch_all(&self.read)
        .await?;
        rows.iter().map(key).collect()
    }

    /// The id of a key, if the team has it.
    pub async fn key_id(&self, team: &Team, secret: &Secret) -> Result<Option<Uuid>> {
        let row = sqlx::query("SELECT id FROM api_keys WHERE hash = $1 AND team_id = $2")
            .bind(hash(secret.expose()))
            .bind(team.id.to_string())
            .fetch_optional(&self.read)
            .await?;
        row.as_ref().map(id).transpose()
    }

    /// Renames a key; false when the team has no such key.
    pub async fn rename_key(&self, team: &Team, id: Uuid, name: &str) -> Result<bool> {
        let done = sqlx::query("UPDATE api_keys SET name = $1 WHERE id = $2 AND team_id = $3")
            .bind(name)
            .bind(id.to_string())
            .bind(team.id.to_string())
            .execute(&self.write)
            .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Whether a text is an API key or an access token of this server.
    pub(crate) async fn is_credential(&self, secret: &str) -> Result<bool> {
        let hash = hash(secret);
        let sql =
            "SELECT 1 FROM api_keys WHERE hash = $1 UNION ALL SELECT 1 FROM access_tokens WHERE hash = $1";
        Ok(sqlx::query(sql).bind(hash).fetch_optional(&self.read).await?.is_some())
    }

    /// Revokes a key at once; false when the team has no such key.
    pub async fn delete_key(&self, team: &Team, id: Uuid) -> Result<bool> {
        let done = sqlx::query("DELETE FROM api_keys WHERE id = $1 AND team_id = $2")
            .bind(id.to_string())
            .bind(team.id.to_string())
            .execute(&self.write)
            .await?;
        self.known_keys.forget();
        Ok(done.rows_affected() > 0)
    }
}

fn id(row: &SqliteRow) -> Result<Uuid> {
    let id: String = row.try_get("id")?;
    Uuid::parse_str(&id).map_err(corrupt("API key", &id))
}

fn key(row: &SqliteRow) -> Result<ApiKey> {
    let id = id(row)?;
    let mask: String = row.try_get("mask")?;
    Ok(ApiKey {
        id,
        name: row.try_get("name")?,
        mask: serde_json::from_str(&mask).map_err(corrupt("API key", &id.to_string()))?,
        created_at: clock::from_micros(row.try_get("created_at")?),
        last_used_at: row.try_get::<Option<i64>, _>("last_used_at")?.map(clock::from_micros),
    })
}

pub(super) fn hash(key: &str) -> String {
    Sha256::digest(key.as_bytes()).iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The part that may be shown of a key or token that begins with `prefix`.
pub(super) fn mask(prefix: &str, secret: &str) -> KeyMask {
    let value = secret.strip_prefix(prefix).unwrap_or(secret);
    let tail: Vec<char> = value.chars().rev().take(4).collect();
    KeyMask {
        prefix: prefix.to_owned(),
        value_length: value.chars().count(),
        masked_value_prefix: value.chars().take(2).collect(),
        masked_value_suffix: tail.into_iter().rev().collect(),
    }
}
