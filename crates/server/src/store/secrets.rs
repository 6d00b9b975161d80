//! Secrets, with their values sealed.

use std::collections::BTreeMap;

use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::{Store, corrupt};
use crate::domain::secret::SecretRecord;
use crate::domain::team::Team;
use crate::{Result, clock};

impl Store {
    /// Inserts a secret; false when the team has one of that name, or `max` of them.
    pub(crate) async fn insert_secret(&self, secret: &SecretRecord, max: i64) -> Result<bool> {
        let done = sqlx::query(
            "INSERT INTO secrets (id, team_id, name, sealed, version, metadata, created_at, updated_at) \
             SELECT $1, $2, $3, $4, $5, $6, $7, $8 WHERE (SELECT COUNT(*) FROM secrets WHERE team_id = $2) < $9 \
             ON CONFLICT (team_id, name) DO NOTHING",
        )
        .bind(&secret.id)
        .bind(secret.team.to_string())
        .bind(&secret.name)
        .bind(&secret.sealed)
        .bind(secret.version)
        .bind(json(&secret.metadata))
        .bind(secret.created_at.as_microsecond())
        .bind(secret.updated_at.as_microsecond())
        .bind(max)
        .execute(&self.write)
        .await?;
        Ok(done.rows_affected() > 0)
    }

    /// The secrets of a team.
    pub(crate) async fn secrets(&self, team: &Team) -> Result<Vec<SecretRecord>> {
        let rows = sqlx::query("SELECT * FROM secrets WHERE team_id = $1")
            .bind(team.id.to_string())
            .fetch_all(&self.read)
            .await?;
        rows.iter().map(secret).collect()
    }

    /// The secrets of all teams.
    pub(crate) async fn all_secrets(&self) -> Result<Vec<SecretRecord>> {
        let rows = sqlx::query("SELECT * FROM secrets").fetch_all(&self.read).await?;
        rows.iter().map(secret).collect()
    }

    /// A secret of a team, by id or name.
    pub(crate) async fn secret(&self, team: Uuid, reference: &str) -> Result<Option<SecretRecord>> {
        let row = sqlx::query("SELECT * FROM secrets WHERE team_id = $1 AND (id = $2 OR name = $2)")
            .bind(team.to_string())
            .bind(reference)
            .fetch_optional(&self.write)
            .await?;
        row.as_ref().map(secret).transpose()
    }

    /// Gives a secret another value and labels; false when it was changed or deleted since it was read.
    pub(crate) async fn update_secret(
        &self,
        read: &SecretRecord,
        sealed: &str,
        metadata: &BTreeMap<String, String>,
    ) -> Result<bool> {
        let done = sqlx::query(
            "UPDATE secrets SET sealed = $3, metadata = $4, version = version + 1, updated_at = $5 \
             WHERE id = $1 AND version = $2",
        )
        .bind(&read.id)
        .bind(read.version)
        .bind(sealed)
        .bind(json(metadata))
        .bind(clock::now().as_microsecond())
        .execute(&self.write)
        .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Replaces how a value is sealed, unless there is another one by now.
    pub(crate) async fn reseal_secret(&self, read: &SecretRecord, sealed: &str) -> Result<()> {
        sqlx::query("UPDATE secrets SET sealed = $3 WHERE id = $1 AND version = $2")
            .bind(&read.id)
            .bind(read.version)
            .bind(sealed)
            .execute(&self.write)
            .await?;
        Ok(())
    }

    /// Deletes a secret; false when the team has no such secret.
    pub(crate) async fn delete_secret(&self, team: &Team, reference: &str) -> Result<bool> {
        let done = sqlx::query("DELETE FROM secrets WHERE team_id = $1 AND (id = $2 OR name = $2)")
            .bind(team.id.to_string())
            .bind(reference)
            .execute(&self.write)
            .await?;
        Ok(done.rows_affected() > 0)
    }
}

fn json(metadata: &BTreeMap<String, String>) -> String {
    // A map of texts is always JSON.
    serde_json::to_string(metadata).unwrap_or_else(|_| "{}".to_owned())
}

fn secret(row: &SqliteRow) -> Result<SecretRecord> {
    let id: String = row.try_get("id")?;
    let team: String = row.try_get("team_id")?;
    let time = |column: &str| -> Result<jiff::Timestamp> {
        jiff::Timestamp::from_microsecond(row.try_get(column)?).map_err(corrupt("secret", &id))
    };
    Ok(SecretRecord {
        team: Uuid::parse_str(&team).map_err(corrupt("secret", &id))?,
        name: row.try_get("name")?,
        sealed: row.try_get("sealed")?,
        version: row.try_get("version")?,
        metadata: serde_json::from_str(row.try_get("metadata")?).map_err(corrupt("secret", &id))?,
        created_at: time("created_at")?,
        updated_at: time("updated_at")?,
        id,
    })
}
