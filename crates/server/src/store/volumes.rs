//! Volumes, and the secret that their tokens are made with.

use sandcove_wire::secret::Secret;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::{Store, corrupt};
use crate::domain::team::Team;
use crate::domain::volume::Volume;
use crate::{Result, clock, random};

/// The outcome of an attempt to insert a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inserted {
    /// The row was inserted.
    New,
    /// The team has a row of that name.
    Exists,
    /// The team is at its limit of volumes.
    TooMany,
}

impl Store {
    /// Inserts a volume.
    pub(crate) async fn insert_volume(&self, team: &Team, volume: &Volume) -> Result<Inserted> {
        let done = sqlx::query(
            "INSERT INTO volumes (id, team_id, name, created_at) SELECT $1, $2, $3, $4 \
             WHERE (SELECT COUNT(*) FROM volumes WHERE team_id = $2) < $5 ON CONFLICT (team_id, name) DO NOTHING",
        )
        .bind(volume.id.to_string())
        .bind(team.id.to_string())
        .bind(&volume.name)
        .bind(clock::now().as_microsecond())
        .bind(i64::from(team.quota.volumes))
        .execute(&self.write)
        .await?;
        if done.rows_affected() > 0 {
            return Ok(Inserted::New);
        }
        let volumes = self.volumes(team).await?;
        let exists = volumes.iter().any(|other| other.name == volume.name);
        Ok(if exists { Inserted::Exists } else { Inserted::TooMany })
    }

    /// The volumes of a team, oldest first.
    pub(crate) async fn volumes(&self, team: &Team) -> Result<Vec<Volume>> {
        let rows = sqlx::query("SELECT id, name FROM volumes WHERE team_id = $1 ORDER BY created_at, id")
            .bind(team.id.to_string())
            .fetch_all(&self.read)
            .await?;
        rows.iter().map(volume).collect()
    }

    /// Every volume of every team.
    pub(crate) async fn all_volumes(&self) -> Result<Vec<Volume>> {
        let rows = sqlx::query("SELECT id, name FROM volumes").fetch_all(&self.read).await?;
        rows.iter().map(volume).collect()
    }

    /// The number of a team's volumes.
    pub(crate) async fn count_volumes(&self, team: &Team) -> Result<i64> {
        let row = sqlx::query("SELECT COUNT(*) AS n FROM volumes WHERE team_id = $1")
            .bind(team.id.to_string())
            .fetch_one(&self.read)
            .await?;
        Ok(row.try_get("n")?)
    }

    /// The team that has the volume with this id.
    pub(crate) async fn team_of_volume(&self, id: Uuid) -> Result<Option<Uuid>> {
        let row = sqlx::query("SELECT team_id FROM volumes WHERE id = $1")
            .bind(id.to_string())
            .fetch_optional(&self.read)
            .await?;
        row.map(|row| {
            let team: String = row.try_get("team_id")?;
            Uuid::parse_str(&team).map_err(corrupt("team", &team))
        })
        .transpose()
    }

    /// Deletes a volume; false when the team has no such volume.
    pub(crate) async fn delete_volume(&self, team: &Team, id: Uuid) -> Result<bool> {
        let done = sqlx::query("DELETE FROM volumes WHERE id = $1 AND team_id = $2")
            .bind(id.to_string())
            .bind(team.id.to_string())
            .execute(&self.write)
            .await?;
        Ok(done.rows_affected() > 0)
    }

    /// The server's secret of that name, created at first use.
    pub(crate) async fn server_secret(&self, name: &str) -> Result<Secret> {
        sqlx::query(
            "INSERT INTO server_secrets (name, secret) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING",
        )
        .bind(name)
        .bind(random::token().expose())
        .execute(&self.write)
        .await?;
        let row = sqlx::query("SELECT secret FROM server_secrets WHERE name = $1")
            .bind(name)
            .fetch_one(&self.write)
            .await?;
        Ok(Secret::new(row.try_get::<String, _>("secret")?))
    }
}

fn volume(row: &SqliteRow) -> Result<Volume> {
    let id: String = row.try_get("id")?;
    Ok(Volume { id: Uuid::parse_str(&id).map_err(corrupt("volume", &id))?, name: row.try_get("name")? })
}
