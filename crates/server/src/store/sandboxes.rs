//! Sandboxes that exist: running or paused; a removed one has no row. A change is stored together with its event, if it has
//! one.

use sandcove_wire::api::event::SandboxEvent;
use sandcove_wire::id::SandboxId;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::idempotency::finish_idempotent;
use super::{Store, batch, corrupt, json};
use crate::domain::lifecycle::{Keep, Session};
use crate::domain::sandbox::{Details, Settings, Stored, StoredState};
use crate::{Result, clock};

impl Store {
    /// Inserts a new sandbox, with its event, and as the outcome of the request that has claimed `key`.
    pub(crate) async fn insert_sandbox(
        &self,
        sandbox: &Stored,
        event: &SandboxEvent,
        key: Option<&str>,
    ) -> Result<()> {
        let Details { id, team, .. } = &sandbox.details;
        let mut batch = batch::begin();
        batch.push(
            "; INSERT INTO sandboxes (id, team_id, state, started_at, end_at, details, settings) VALUES (",
        );
        let mut values = batch.separated(", ");
        values.push_bind(id.as_str());
        values.push_bind(team.to_string());
        values.push_bind(state_text(sandbox.state));
        values.push_bind(sandbox.session.started_at.as_microsecond());
        values.push_bind(sandbox.session.end_at.as_microsecond());
        values.push_bind(json(&sandbox.details)?);
        values.push_bind(json(&sandbox.settings)?);
        batch.push(")");
        if let Some(key) = key {
            finish_idempotent(&mut batch, *team, key, id);
        }
        self.execute_with(batch, Some(event)).await
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
        let mut batch = batch::begin();
        batch.push("; UPDATE sandboxes SET state = ").push_bind(state_text(state));
        batch.push(", started_at = ").push_bind(session.started_at.as_microsecond());
        batch.push(", end_at = ").push_bind(session.end_at.as_microsecond());
        batch.push(", settings = ").push_bind(json(settings)?);
        batch.push(" WHERE id = ").push_bind(id.as_str());
        self.execute_with(batch, event).await
    }

    /// Deletes a sandbox.
    pub(crate) async fn delete_sandbox(&self, id: &SandboxId, event: &SandboxEvent) -> Result<()> {
        let mut batch = batch::begin();
        batch.push("; DELETE FROM sandboxes WHERE id = ").push_bind(id.as_str());
        self.execute_with(batch, Some(event)).await
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
