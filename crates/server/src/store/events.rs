//! Events, and their deliveries to webhooks.

use jiff::Timestamp;
use sandcove_wire::api::event::SandboxEvent;
use sqlx::{Row, Sqlite, Transaction};
use uuid::Uuid;

use super::{Store, corrupt, json};
use crate::{Result, clock};

/// Maximum number of events kept of one team, whatever their age.
const MAX_EVENTS: i64 = 100_000;
/// Maximum number of deliveries that wait for one webhook; further events are not delivered to it.
const MAX_WAITING: i64 = 10_000;
const DAY_MICROS: i64 = 24 * 3600 * 1_000_000;

/// A query for events.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventQuery {
    /// Only events of this sandbox.
    pub(crate) sandbox: Option<String>,
    /// Only events of these types; all when empty.
    pub(crate) types: Vec<String>,
    /// Whether the oldest event comes first.
    pub(crate) ascending: bool,
    /// Events to skip.
    pub(crate) offset: i64,
    /// Maximum number of events.
    pub(crate) limit: i64,
}

impl Store {
    /// Inserts an event, with a delivery for every webhook that subscribes to its type.
    pub(crate) async fn insert_event(&self, event: &SandboxEvent) -> Result<()> {
        let transaction = self.write.begin().await?;
        self.commit_with(transaction, Some(event)).await
    }

    /// Commits a transaction together with the event of its change, so that a crash leaves both or neither.
    pub(super) async fn commit_with(
        &self,
        mut transaction: Transaction<'_, Sqlite>,
        event: Option<&SandboxEvent>,
    ) -> Result<()> {
        let Some(event) = event else { return Ok(transaction.commit().await?) };
        sqlx::query(
            "INSERT INTO events (id, team_id, sandbox_id, type, timestamp, event) VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(&event.id)
        .bind(&event.sandbox_team_id)
        .bind(&event.sandbox_id)
        .bind(&event.kind)
        .bind(event.timestamp.as_microsecond())
        .bind(json(event)?)
        .execute(&mut *transaction)
        .await?;
        // The list of types is JSON text, so a type in quotes is found exactly when it is in the list.
        let queued = sqlx::query(
            "INSERT INTO webhook_queue (webhook_id, event_id, attempt, due_at) \
             SELECT w.id, $1, 0, $2 FROM webhooks w WHERE w.team_id = $3 AND w.enabled AND w.events LIKE $4 \
             AND (SELECT COUNT(*) FROM webhook_queue q WHERE q.webhook_id = w.id) < $5",
        )
        .bind(&event.id)
        .bind(event.timestamp.as_microsecond())
        .bind(&event.sandbox_team_id)
        .bind(format!("%\"{}\"%", event.kind))
        .bind(MAX_WAITING)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        if queued.rows_affected() > 0 {
            self.new_deliveries.notify_one();
        }
        Ok(())
    }

    /// Events of a team.
    pub(crate) async fn events(&self, team: Uuid, query: &EventQuery) -> Result<Vec<SandboxEvent>> {
        let order = if query.ascending { "ASC" } else { "DESC" };
        let types = (0..query.types.len()).map(|n| format!("${}", n + 5)).collect::<Vec<_>>().join(", ");
        let of_types = if types.is_empty() { String::new() } else { format!("AND type IN ({types})") };
        let sql = format!(
            "SELECT id, event FROM events WHERE team_id = $1 AND ($2 IS NULL OR sandbox_id = $2) {of_types} \
             ORDER BY timestamp {order}, id {order} LIMIT $3 OFFSET $4"
        );
        let mut select = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(team.to_string())
            .bind(query.sandbox.clone())
            .bind(query.limit)
            .bind(query.offset);
        for kind in &query.types {
            select = select.bind(kind.clone());
        }
        let rows = select.fetch_all(&self.read).await?;
        rows.iter()
            .map(|row| {
                let id: String = row.try_get("id")?;
                serde_json::from_str(&row.try_get::<String, _>("event")?).map_err(corrupt("event", &id))
            })
            .collect()
    }

    /// Deletes events that are older than their team keeps them, and the oldest beyond the maximum number.
    pub(crate) async fn delete_old_events(&self) -> Result<()> {
        let now: Timestamp = clock::now();
        for team in self.teams().await? {
            let oldest = now.as_microsecond() - i64::from(team.events_ttl_days) * DAY_MICROS;
            sqlx::query(
                "DELETE FROM events WHERE team_id = $1 AND (timestamp < $2 OR timestamp < \
                 COALESCE((SELECT timestamp FROM events WHERE team_id = $1 ORDER BY timestamp DESC \
                 LIMIT 1 OFFSET $3), 0))",
            )
            .bind(team.id.to_string())
            .bind(oldest)
            .bind(MAX_EVENTS)
            .execute(&self.write)
            .await?;
        }
        Ok(())
    }
}
