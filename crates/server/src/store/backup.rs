//! The database in backups: a copy of it, and what it names on the host.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection, Row};
use uuid::Uuid;

use super::{Store, corrupt, migrations};
use crate::Result;
use crate::domain::lifecycle::Keep;
use crate::domain::sandbox::StoredState;
use crate::domain::team::Team;
use crate::domain::template::TemplateRecord;

/// Objects on the host that a database names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// Sandboxes by id.
    pub sandboxes: BTreeMap<String, NamedSandbox>,
    /// Snapshots by the name of their files.
    pub snapshots: BTreeMap<String, NamedSnapshot>,
    /// Ids of volumes.
    pub volumes: BTreeSet<String>,
    /// Layers of sandboxes and templates.
    pub layers: BTreeSet<String>,
}

/// A sandbox of a database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedSandbox {
    /// Whether it is running.
    pub is_running: bool,
    /// Whether its memory is on disk.
    pub is_parked: bool,
}

/// A snapshot of a database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedSnapshot {
    /// Whether it has memory.
    pub has_memory: bool,
    /// Account of its team.
    pub account: Option<u64>,
}

/// Number of the last migration that this version knows.
pub fn schema() -> i64 {
    migrations::last()
}

/// Writes the database `from`, which a server may be using, to `to`, which does not exist. The copy is of one moment.
///
/// # Errors
/// When the database cannot be read, or the copy not be written.
pub async fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut connection = read_only(from).await?;
    // SQLite writes what a transaction of its own sees, the log included; writers go on meanwhile.
    let to = to.to_string_lossy().into_owned();
    sqlx::query("VACUUM INTO $1").bind(to).execute(&mut connection).await?;
    connection.close().await.map_err(Into::into)
}

/// A text for each sandbox of the database at `path`, which changes whenever its row does. The database is not migrated.
///
/// # Errors
/// When the database cannot be read.
pub async fn sandbox_states(path: &Path) -> Result<BTreeMap<String, String>> {
    let mut connection = read_only(path).await?;
    let rows = sqlx::query("SELECT id, state || ' ' || started_at || ' ' || settings AS text FROM sandboxes")
        .fetch_all(&mut connection)
        .await?;
    connection.close().await?;
    rows.iter().map(|row| Ok((row.try_get("id")?, row.try_get("text")?))).collect()
}

async fn read_only(path: &Path) -> Result<SqliteConnection> {
    Ok(SqliteConnectOptions::new().filename(path).read_only(true).connect().await?)
}

impl Store {
    /// Everything that the database names on the host, but for what is cached for builds.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn named(&self) -> Result<Named> {
        let mut named = Named::default();
        for sandbox in self.sandboxes().await? {
            let is_parked = matches!(sandbox.state, StoredState::Paused(Keep::Memory))
                && sandbox.settings.parked.is_some();
            let is_running = sandbox.state == StoredState::Running;
            named.sandboxes.insert(sandbox.details.id.to_string(), NamedSandbox { is_running, is_parked });
        }
        let rows = sqlx::query(
            "SELECT b.id, b.record, t.team_id FROM template_builds b JOIN templates t ON t.id = b.template_id",
        )
        .fetch_all(&self.read)
        .await?;
        for row in &rows {
            let id: String = row.try_get("id")?;
            let record: TemplateRecord = serde_json::from_str(&row.try_get::<String, _>("record")?)
                .map_err(corrupt("template build", &id))?;
            if let Some(started) = &record.started {
                // The state after a start command, which belongs to no team.
                let snapshot = NamedSnapshot { has_memory: true, account: None };
                named.snapshots.insert(started.snapshot.clone(), snapshot);
            }
            if record.is_snapshot() {
                let team: Option<String> = row.try_get("team_id")?;
                let account = team.and_then(|team| Uuid::parse_str(&team).ok()).map(Team::account_of);
                let has_memory = record.memory_bytes.is_some();
                named.snapshots.insert(record.build_id.to_string(), NamedSnapshot { has_memory, account });
            }
        }
        named.volumes = self.all_volumes().await?.into_iter().map(|volume| volume.id.to_string()).collect();
        // Layers are named with the directory of their files.
        let layer = |name: String| name.split('/').next().unwrap_or_default().to_owned();
        named.layers = self.used_layers(None).await?.into_iter().map(layer).collect();
        Ok(named)
    }

    /// Makes a copy of a database one that a backup has: without what is cached for builds, and with the sandboxes that were running as
    /// paused with their files.
    ///
    /// # Errors
    /// When the database cannot be changed.
    pub async fn become_backup(&self) -> Result<()> {
        for statement in [
            "DELETE FROM step_cache",
            "DELETE FROM image_cache",
            "UPDATE sandboxes SET state = 'stored' WHERE state = 'running'",
        ] {
            sqlx::query(statement).execute(&self.write).await?;
        }
        Ok(())
    }
}
