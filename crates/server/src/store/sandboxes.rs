//! Sandboxes that exist: running or paused; a removed one has no row. A change is stored together with its event, if it has
//! one.

use sandcove_wire::api::event::SandboxEvent;
use sandcove_wire::id::SandboxId;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::{Store, corrupt, json};
use crate::domain::lifecycle::{Keep, Session};
use crate::domain::sandbox::{Settings, Stored, StoredState};
use crate::{Result, clock};

impl Store {
    /// Inserts a new sandbox.
    pub(crate) async fn insert_sandbox(&self, sandbox: &Stored, event: &SandboxEvent) -> Result<()> {
        let mut transaction = self.write.begin().await?;
        sqlx::query(
            "INSERT INTO sandboxes (id, team_id, state, started_at, end_at, details, settings) \
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
        )
        .bind(sandbox.details.id.as_str())
        .bind(sandbox.details.team.to_string())
        .bind(state_text(sandbox.state))
        .bind(sandbox.session.started_at.as_microsecond())
        .bind(sandbox.session.end_at.as_microsecond())
        .bind(json(&sandbox.details)?)
        .bind(json(&sandbox.settings)?)
        .execute(&mut *transaction)
        .await?;
        self.commit_with(transaction, Some(event)).await
    }

    /// Updates the state, session and settings of a sandbox.
    pub(crate) async fn update_sandbox(
        &self,
        id: &SandboxId,
        state: StoredState,
        session: &Session,
        settings: &Settings,
        event: Option<&SandboxEvent>,
    ) -> Result<()> {
        let mut transaction = self.write.begin().await?;
        sqlx::query(
            "UPDATE sandboxes SET state = $1, started_at = $2, end_at = $3, settings = $4 WHERE id = $5",
        )
        .bind(state_text(state))
        .bind(session.started_at.as_microsecond())
        .bind(session.end_at.as_microsecond())
        .bind(json(settings)?)
        .bind(id.as_str())
        .execute(&mut *transaction)
        .await?;
        self.commit_with(transaction, event).await
    }

    /// Deletes a sandbox.
    pub(crate) async fn delete_sandbox(&self, id: &SandboxId, event: &SandboxEvent) -> Result<()> {
        let mut transaction = self.write.begin().await?;
        sqlx::query("DELETE FROM sandboxes WHERE id = $1")
            .bind(id.as_str())
            .execute(&mut *transaction)
            .await?;
        self.commit_with(transaction, Some(event)).await
    }

    /// Every sandbox.
    pub async fn sandboxes(&self) -> Result<Vec<Stored>> {
        let rows = sqlx::query("SELECT id, state, started_at, end_at, details, settings FROM sandboxes")
            .fetch_all(&self.read)
            .await?;
        rows.iter().map(sandbox).collect()
    }
}

fn sandbox(row: &SqliteRow) -> Result<Stored> {
    let id: String = row.try_get("id")?;
    let state = match row.try_get::<String, _>("state")?.as_str() {
        "running" => StoredState::Running,
        "paused" => StoredState::Paused(Keep::Memory),
        "stored" => StoredState::Paused(Keep::Files),
        other => return Err(corrupt("sandbox", &id)(format!("unknown state {other}"))),
    };
    let details: String = row.try_get("details")?;
    let settings: String = row.try_get("settings")?;
    Ok(Stored {
        details: serde_json::from_str(&details).map_err(corrupt("sandbox", &id))?,
        settings: serde_json::from_str(&settings).map_err(corrupt("sandbox", &id))?,
        state,
        session: Session {
            started_at: clock::from_micros(row.try_get("started_at")?),
            end_at: clock::from_micros(row.try_get("end_at")?),
        },
    })
}

fn state_text(state: StoredState) -> &'static str {
    match state {
        StoredState::Running => "running",
        StoredState::Paused(Keep::Memory) => "paused",
        StoredState::Paused(Keep::Files) => "stored",
    }
}
