//! Events, and their deliveries to webhooks.

use std::sync::atomic::Ordering;

use jiff::Timestamp;
use sandcove_wire::api::event::SandboxEvent;
use sqlx::Row;
use uuid::Uuid;

use super::batch::{self, Batch};
use super::{Store, corrupt, json};
use crate::domain::limits::{EVENT_BYTES, EVENTS, WAITING_DELIVERIES};
use crate::{Result, clock};

/// Bytes of new events after which old ones are deleted at once.
const DELETE_AFTER_BYTES: u64 = 16 << 20;
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
        self.execute_with(batch::begin(), Some(event)).await
    }

    /// Executes a batch together with the event of its change, so that a crash leaves both or neither.
    pub(super) async fn execute_with(&self, mut batch: Batch, event: Option<&SandboxEvent>) -> Result<()> {
        let Some(event) = event else { return self.execute(batch).await.map(drop) };
        let text = json(event)?;
        let bytes = text.len();
        batch.push("; INSERT INTO events (id, team_id, sandbox_id, type, timestamp, event, bytes) VALUES (");
        let mut values = batch.separated(", ");
        values.push_bind(&event.id);
        values.push_bind(&event.sandbox_team_id);
        values.push_bind(&event.sandbox_id);
        values.push_bind(&event.kind);
        values.push_bind(event.timestamp.as_microsecond());
        values.push_bind(text);
        values.push_bind(i64::try_from(bytes).unwrap_or(i64::MAX));
        batch.push("); INSERT INTO webhook_queue (webhook_id, event_id, attempt, due_at) SELECT w.id, ");
        batch.push_bind(&event.id).push(", 0, ").push_bind(event.timestamp.as_microsecond());
        batch.push(" FROM webhooks w WHERE w.team_id = ").push_bind(&event.sandbox_team_id);
        // The list of types is JSON text, so a type in quotes is found exactly when it is in the list.
        // SQLite would prepare the statement again for each pattern that is a parameter by itself.
        batch.push(" AND w.enabled AND w.events LIKE '%\"' || ").push_bind(&event.kind).push(" || '\"%'");
        batch.push(" AND (SELECT COUNT(*) FROM webhook_queue q WHERE q.webhook_id = w.id) < ");
        batch.push_bind(WAITING_DELIVERIES);
        let affected = self.execute(batch).await?;
        if affected.last().is_some_and(|queued| *queued > 0) {
            self.new_deliveries.notify_one();
        }
        self.note_stored(bytes).await;
        Ok(())
    }

    /// Counts bytes of events and attempts. Whoever makes much of them waits until the oldest are deleted.
    pub(super) async fn note_stored(&self, bytes: usize) {
        let new = self.new_event_bytes.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        if new >= DELETE_AFTER_BYTES {
            self.new_event_bytes.store(0, Ordering::Relaxed);
            if let Err(err) = self.delete_old_events().await {
                tracing::warn!(error = ?err, "old events were not removed");
            }
        }
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

    /// Deletes events that are older than their team keeps them, and the oldest beyond the maximum number and size. With an
    /// event go its deliveries; the oldest attempts beyond the maximum number go too.
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
            .bind(EVENTS)
            .execute(&self.write)
            .await?;
            self.delete_oversize_events(team.id, EVENT_BYTES).await?;
            self.delete_old_attempts(team.id).await?;
        }
        Ok(())
    }

    /// Deletes the oldest events of a team beyond `max` bytes.
    async fn delete_oversize_events(&self, team: Uuid, max: i64) -> Result<()> {
        sqlx::query(
            "DELETE FROM events WHERE team_id = $1 AND timestamp <= COALESCE((SELECT MAX(timestamp) FROM \
             (SELECT timestamp, SUM(bytes) OVER (ORDER BY timestamp DESC) AS total FROM events \
             WHERE team_id = $1) AS sized WHERE total > $2), 0)",
        )
        .bind(team.to_string())
        .bind(max)
        .execute(&self.write)
        .await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::domain::event::LifecycleEvent;

    #[tokio::test]
    async fn the_newest_events_of_a_team_are_kept_up_to_a_size() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("sandcove.db")).await.unwrap();
        let team = store.ensure_default_team(None, 1, Duration::from_secs(60)).await.unwrap().team.id;
        let mut bytes = Vec::new();
        for n in 0..6 {
            let event = SandboxEvent {
                id: Uuid::new_v4().to_string(),
                version: "v2".into(),
                kind: LifecycleEvent::CREATED.into(),
                timestamp: clock::now(),
                event_category: "lifecycle".into(),
                event_label: "create".into(),
                event_data: Some(serde_json::json!({ "sandbox_metadata": "x".repeat(1000) })),
                sandbox_id: format!("i{n}"),
                sandbox_execution_id: String::new(),
                sandbox_template_id: String::new(),
                sandbox_build_id: String::new(),
                sandbox_team_id: team.to_string(),
            };
            bytes.push(i64::try_from(json(&event).unwrap().len()).unwrap());
            store.insert_event(&event).await.unwrap();
        }
        let kept = async || {
            let query = EventQuery { ascending: true, limit: 100, ..EventQuery::default() };
            let events = store.events(team, &query).await.unwrap();
            events.into_iter().map(|event| event.sandbox_id).collect::<Vec<_>>()
        };
        let three: i64 = bytes[3..].iter().sum();
        store.delete_oversize_events(Uuid::new_v4(), 0).await.unwrap();
        assert_eq!(kept().await.len(), 6, "another team's");
        store.delete_oversize_events(team, three).await.unwrap();
        assert_eq!(kept().await, ["i3", "i4", "i5"]);
        store.delete_oversize_events(team, three - 1).await.unwrap();
        assert_eq!(kept().await, ["i4", "i5"]);
    }
}
