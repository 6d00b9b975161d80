//! Webhooks, their queued deliveries, and the attempts to deliver.

use jiff::Timestamp;
use sandcove_wire::api::event::{Attempt, SandboxEvent};
use sandcove_wire::secret::Secret;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::{Store, corrupt, json};
use crate::domain::limits::{
    ATTEMPT_BODY_BYTES, EVENT_ATTEMPTS, WAITING_DELIVERIES, WEBHOOK_ATTEMPTS, WEBHOOKS, json_prefix,
};
use crate::domain::webhook::{MAX_RETRIES, Webhook};
use crate::{Error, Result, clock};

/// A delivery that is due.
#[derive(Debug, Clone)]
pub(crate) struct DueDelivery {
    pub(crate) webhook: Webhook,
    pub(crate) event: SandboxEvent,
    /// Number of attempts before this one.
    pub(crate) attempt: i64,
}

/// A query for attempts.
#[derive(Debug, Clone, Default)]
pub(crate) struct AttemptQuery {
    pub(crate) start: Option<Timestamp>,
    pub(crate) end: Option<Timestamp>,
    pub(crate) is_success: Option<bool>,
    pub(crate) kind: Option<String>,
    pub(crate) ascending: bool,
    pub(crate) offset: i64,
    /// Maximum number of events, each with all its attempts.
    pub(crate) limit: i64,
}

/// Attempts within an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct AttemptCounts {
    /// Start of the interval.
    pub(crate) began: Timestamp,
    pub(crate) total: i64,
    pub(crate) failed: i64,
    /// Minimum duration, milliseconds.
    pub(crate) minimum: i64,
    /// Sum of all durations, milliseconds.
    pub(crate) sum: i64,
    /// Maximum duration, milliseconds.
    pub(crate) maximum: i64,
}

const COLUMNS: &str = "w.id, w.team_id, w.name, w.url, w.enabled, w.events, w.secret, w.created_at";

impl Store {
    /// Inserts or updates a webhook. The queued deliveries of a disabled one are deleted.
    ///
    /// # Errors
    /// When it would be a new one, and the team is at its limit.
    pub(crate) async fn put_webhook(&self, webhook: &Webhook) -> Result<()> {
        let mut transaction = self.write.begin().await?;
        let put = sqlx::query(
            "INSERT INTO webhooks (id, team_id, name, url, enabled, events, secret, created_at) \
             SELECT $1, $2, $3, $4, $5, $6, $7, $8 WHERE EXISTS (SELECT 1 FROM webhooks WHERE id = $1) \
             OR (SELECT COUNT(*) FROM webhooks WHERE team_id = $2) < $9 \
             ON CONFLICT (id) DO UPDATE SET name = excluded.name, \
             url = excluded.url, enabled = excluded.enabled, events = excluded.events, secret = excluded.secret",
        )
        .bind(webhook.id.to_string())
        .bind(webhook.team.to_string())
        .bind(&webhook.name)
        .bind(&webhook.url)
        .bind(webhook.enabled)
        .bind(json(&webhook.events)?)
        .bind(webhook.secret.expose())
        .bind(webhook.created_at.as_microsecond())
        .bind(WEBHOOKS as i64)
        .execute(&mut *transaction)
        .await?;
        if put.rows_affected() == 0 {
            return Err(Error::TooManyOfTeam { max: WEBHOOKS, what: "webhooks" });
        }
        if !webhook.enabled {
            sqlx::query("DELETE FROM webhook_queue WHERE webhook_id = $1")
                .bind(webhook.id.to_string())
                .execute(&mut *transaction)
                .await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    /// Deletes the oldest attempts of the team's webhooks beyond the maximum number, of which each has an equal part.
    pub(super) async fn delete_old_attempts(&self, team: Uuid) -> Result<()> {
        let webhooks = self.webhooks(team).await?;
        let each = WEBHOOK_ATTEMPTS / i64::try_from(webhooks.len()).unwrap_or(i64::MAX).max(1);
        for webhook in webhooks {
            sqlx::query(
                "DELETE FROM webhook_attempts WHERE webhook_id = $1 AND timestamp < COALESCE((SELECT timestamp \
                 FROM webhook_attempts WHERE webhook_id = $1 ORDER BY timestamp DESC LIMIT 1 OFFSET $2), 0)",
            )
            .bind(webhook.id.to_string())
            .bind(each - 1)
            .execute(&self.write)
            .await?;
        }
        Ok(())
    }

    /// The webhooks of a team, oldest first.
    pub(crate) async fn webhooks(&self, team: Uuid) -> Result<Vec<Webhook>> {
        let sql =
            format!("SELECT {COLUMNS} FROM webhooks w WHERE w.team_id = $1 ORDER BY w.created_at, w.id");
        let rows = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(team.to_string()).fetch_all(&self.read).await?;
        rows.iter().map(webhook).collect()
    }

    /// Deletes a webhook with its deliveries; false when the team has no such webhook.
    pub(crate) async fn delete_webhook(&self, team: Uuid, id: Uuid) -> Result<bool> {
        let done = sqlx::query("DELETE FROM webhooks WHERE id = $1 AND team_id = $2")
            .bind(id.to_string())
            .bind(team.to_string())
            .execute(&self.write)
            .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Webhooks with deliveries that are due at `now`.
    pub(crate) async fn webhooks_due(&self, now: Timestamp) -> Result<Vec<Uuid>> {
        let rows = sqlx::query("SELECT DISTINCT webhook_id FROM webhook_queue WHERE due_at <= $1")
            .bind(now.as_microsecond())
            .fetch_all(&self.read)
            .await?;
        rows.iter()
            .map(|row| {
                let id: String = row.try_get("webhook_id")?;
                Uuid::parse_str(&id).map_err(corrupt("webhook", &id))
            })
            .collect()
    }

    /// The next delivery to a webhook, if it is due at `now`.
    pub(crate) async fn next_due(&self, id: Uuid, now: Timestamp) -> Result<Option<DueDelivery>> {
        let sql = format!(
            "SELECT {COLUMNS}, q.attempt, e.event FROM webhook_queue q JOIN webhooks w ON w.id = q.webhook_id \
             JOIN events e ON e.id = q.event_id WHERE q.webhook_id = $1 AND q.due_at <= $2 \
             ORDER BY q.due_at, e.timestamp LIMIT 1"
        );
        let row = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(id.to_string())
            .bind(now.as_microsecond())
            .fetch_optional(&self.write)
            .await?;
        let Some(row) = row else { return Ok(None) };
        let event: String = row.try_get("event")?;
        Ok(Some(DueDelivery {
            webhook: webhook(&row)?,
            event: serde_json::from_str(&event).map_err(corrupt("event of webhook", &id.to_string()))?,
            attempt: row.try_get("attempt")?,
        }))
    }

    /// Stores an attempt, and the time of the next one, if there is to be one.
    pub(crate) async fn finish_attempt(&self, attempt: &Attempt, again: Option<Timestamp>) -> Result<()> {
        let mut transaction = self.write.begin().await?;
        match again {
            Some(due) => sqlx::query(
                "UPDATE webhook_queue SET attempt = attempt + 1, due_at = $3 WHERE webhook_id = $1 AND event_id = $2",
            )
            .bind(&attempt.webhook_id)
            .bind(&attempt.event_id)
            .bind(due.as_microsecond()),
            None => sqlx::query("DELETE FROM webhook_queue WHERE webhook_id = $1 AND event_id = $2")
                .bind(&attempt.webhook_id)
                .bind(&attempt.event_id),
        }
        .execute(&mut *transaction)
        .await?;
        let details = json(&kept(attempt))?;
        let bytes = details.len();
        // Nothing is stored for a webhook or an event that was deleted meanwhile.
        sqlx::query(
            "INSERT INTO webhook_attempts (id, webhook_id, event_id, type, is_success, duration_ms, timestamp, attempt) \
             SELECT $1, $2, $3, $4, $5, $6, $7, $8 WHERE EXISTS (SELECT 1 FROM webhooks WHERE id = $2) \
             AND EXISTS (SELECT 1 FROM events WHERE id = $3)",
        )
        .bind(&attempt.id)
        .bind(&attempt.webhook_id)
        .bind(&attempt.event_id)
        .bind(&attempt.event_type)
        .bind(attempt.error_class.is_none())
        .bind(attempt.duration_ms)
        .bind(attempt.timestamp.as_microsecond())
        .bind(details)
        .execute(&mut *transaction)
        .await?;
        // An event can be delivered again and again.
        sqlx::query(
            "DELETE FROM webhook_attempts WHERE webhook_id = $1 AND event_id = $2 AND id NOT IN (SELECT id FROM \
             webhook_attempts WHERE webhook_id = $1 AND event_id = $2 ORDER BY timestamp DESC, rowid DESC LIMIT $3)",
        )
        .bind(&attempt.webhook_id)
        .bind(&attempt.event_id)
        .bind(EVENT_ATTEMPTS)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        self.note_stored(bytes).await;
        Ok(())
    }

    /// Attempts of a webhook, grouped by event and ordered by each event's first attempt; those of an event are in order.
    pub(crate) async fn attempts(&self, webhook: Uuid, query: &AttemptQuery) -> Result<Vec<Vec<Attempt>>> {
        let order = if query.ascending { "ASC" } else { "DESC" };
        let sql = format!(
            "SELECT f.event_id, f.first FROM (SELECT event_id, MIN(timestamp) AS first, MAX(is_success) AS done, \
             MIN(type) AS type FROM webhook_attempts WHERE webhook_id = $1 GROUP BY event_id) f \
             WHERE f.first >= $2 AND f.first <= $3 AND ($4 IS NULL OR f.done = $4) AND ($5 IS NULL OR f.type = $5) \
             ORDER BY f.first {order}, f.event_id {order} LIMIT $6 OFFSET $7"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(webhook.to_string())
            .bind(query.start.map_or(i64::MIN, Timestamp::as_microsecond))
            .bind(query.end.map_or(i64::MAX, Timestamp::as_microsecond))
            .bind(query.is_success)
            .bind(query.kind.clone())
            .bind(query.limit)
            .bind(query.offset)
            .fetch_all(&self.read)
            .await?;
        let mut events = Vec::with_capacity(rows.len());
        for row in &rows {
            let event: String = row.try_get("event_id")?;
            events.push(self.attempts_of(webhook, &event).await?);
        }
        Ok(events)
    }

    /// The newest attempts to deliver an event to a webhook, the oldest of them first.
    async fn attempts_of(&self, webhook: Uuid, event: &str) -> Result<Vec<Attempt>> {
        let rows = sqlx::query(
            "SELECT id, attempt FROM webhook_attempts WHERE webhook_id = $1 AND event_id = $2 \
             ORDER BY timestamp DESC, rowid DESC LIMIT $3",
        )
        .bind(webhook.to_string())
        .bind(event)
        .bind(EVENT_ATTEMPTS)
        .fetch_all(&self.read)
        .await?;
        let attempt = |row: &SqliteRow| {
            let id: String = row.try_get("id")?;
            serde_json::from_str(&row.try_get::<String, _>("attempt")?).map_err(corrupt("attempt", &id))
        };
        rows.iter().rev().map(attempt).collect()
    }

    /// Queues one more attempt of a delivery, which the id of an attempt or of the event names, and returns the attempts so
    /// far. A delivery that waits already is made now.
    ///
    /// # Errors
    /// If the webhook has no such delivery, or too many that wait.
    pub(crate) async fn redeliver(&self, webhook: Uuid, delivery: Uuid) -> Result<Vec<Attempt>> {
        let row = sqlx::query(
            "SELECT event_id FROM webhook_attempts WHERE webhook_id = $1 AND (id = $2 OR event_id = $2) LIMIT 1",
        )
        .bind(webhook.to_string())
        .bind(delivery.to_string())
        .fetch_optional(&self.read)
        .await?;
        let event: String = row.ok_or(Error::DeliveryNotFound(delivery))?.try_get("event_id")?;
        let queued = sqlx::query(
            "INSERT INTO webhook_queue (webhook_id, event_id, attempt, due_at) \
             SELECT w.id, e.id, $3, $4 FROM webhooks w, events e WHERE w.id = $1 AND w.enabled AND e.id = $2 AND \
             (SELECT COUNT(*) FROM webhook_queue q WHERE q.webhook_id = $1 AND q.event_id <> $2) < $5 \
             ON CONFLICT (webhook_id, event_id) DO UPDATE SET due_at = MIN(due_at, excluded.due_at)",
        )
        .bind(webhook.to_string())
        .bind(&event)
        .bind(MAX_RETRIES)
        .bind(clock::now().as_microsecond())
        .bind(WAITING_DELIVERIES)
        .execute(&self.write)
        .await?;
        if queued.rows_affected() == 0 {
            // Attempts may be kept for longer than the event that they were to deliver.
            let is_kept: bool = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM events WHERE id = $1)")
                .bind(&event)
                .fetch_one(&self.read)
                .await?;
            return Err(match is_kept {
                true => Error::TooManyDeliveries(WAITING_DELIVERIES),
                false => Error::DeliveryNotFound(delivery),
            });
        }
        self.new_deliveries.notify_one();
        self.attempts_of(webhook, &event).await
    }

    /// The number and durations of a webhook's attempts between two times, in intervals of `step_micros`, oldest first.
    pub(crate) async fn attempt_counts(
        &self,
        webhook: Uuid,
        (start, end): (Timestamp, Timestamp),
        step_micros: i64,
    ) -> Result<Vec<AttemptCounts>> {
        let rows = sqlx::query(
            "SELECT (timestamp / $4) * $4 AS began, COUNT(*) AS total, \
             SUM(CASE WHEN is_success THEN 0 ELSE 1 END) AS failed, MIN(duration_ms) AS minimum, \
             SUM(duration_ms) AS sum, MAX(duration_ms) AS maximum FROM webhook_attempts \
             WHERE webhook_id = $1 AND timestamp >= $2 AND timestamp <= $3 GROUP BY began ORDER BY began",
        )
        .bind(webhook.to_string())
        .bind(start.as_microsecond())
        .bind(end.as_microsecond())
        .bind(step_micros)
        .fetch_all(&self.read)
        .await?;
        let counts = |row: &SqliteRow| {
            Ok(AttemptCounts {
                began: clock::from_micros(row.try_get("began")?),
                total: row.try_get("total")?,
                failed: row.try_get("failed")?,
                minimum: row.try_get("minimum")?,
                sum: row.try_get("sum")?,
                maximum: row.try_get("maximum")?,
            })
        };
        rows.iter().map(counts).collect()
    }
}

fn webhook(row: &SqliteRow) -> Result<Webhook> {
    let id: String = row.try_get("id")?;
    let team: String = row.try_get("team_id")?;
    let events: String = row.try_get("events")?;
    Ok(Webhook {
        id: Uuid::parse_str(&id).map_err(corrupt("webhook", &id))?,
        team: Uuid::parse_str(&team).map_err(corrupt("webhook", &id))?,
        name: row.try_get("name")?,
        url: row.try_get("url")?,
        enabled: row.try_get("enabled")?,
        events: serde_json::from_str(&events).map_err(corrupt("webhook", &id))?,
        secret: Secret::new(row.try_get::<String, _>("secret")?),
        created_at: clock::from_micros(row.try_get("created_at")?),
    })
}

/// The part of an attempt that is stored: labels of a sandbox can make the body of a request long.
fn kept(attempt: &Attempt) -> Attempt {
    let mut kept = attempt.clone();
    if kept.request_body.len() > ATTEMPT_BODY_BYTES {
        let end = kept.request_body.floor_char_boundary(ATTEMPT_BODY_BYTES);
        kept.request_body.truncate(end);
        kept.request_body.push('…');
    }
    // Receivers choose the answer, and may answer with nothing but control characters.
    kept.response_body =
        attempt.response_body.as_deref().map(|body| json_prefix(body, ATTEMPT_BODY_BYTES).to_owned());
    kept
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn webhook(team: Uuid) -> Webhook {
        Webhook {
            id: Uuid::new_v4(),
            team,
            name: "hook".into(),
            url: "http://localhost/".into(),
            enabled: true,
            events: vec!["sandbox.lifecycle.created".into()],
            secret: Secret::new("secret"),
            created_at: clock::now(),
        }
    }

    fn event(team: Uuid) -> SandboxEvent {
        SandboxEvent {
            id: Uuid::new_v4().to_string(),
            version: "v2".into(),
            kind: "sandbox.lifecycle.created".into(),
            timestamp: clock::now(),
            event_category: "lifecycle".into(),
            event_label: "create".into(),
            event_data: None,
            sandbox_id: "i".into(),
            sandbox_execution_id: String::new(),
            sandbox_template_id: String::new(),
            sandbox_build_id: String::new(),
            sandbox_team_id: team.to_string(),
        }
    }

    #[tokio::test]
    async fn the_attempts_of_a_team_are_limited_and_each_webhook_has_an_equal_part() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("sandcove.db")).await.unwrap();
        let team = store.ensure_default_team(None, 1, Duration::from_secs(60)).await.unwrap().team.id;
        let (busy, quiet, event) = (webhook(team), webhook(team), event(team));
        store.insert_event(&event).await.unwrap();
        for (one, count) in [(&busy, WEBHOOK_ATTEMPTS), (&quiet, 3)] {
            store.put_webhook(one).await.unwrap();
            sqlx::query(
                "INSERT INTO webhook_attempts (id, webhook_id, event_id, type, is_success, duration_ms, timestamp, attempt) \
                 SELECT $1 || value, $1, $3, '', TRUE, 1, value, '{}' FROM (WITH RECURSIVE n (value) AS \
                 (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < $2) SELECT value FROM n)",
            )
            .bind(one.id.to_string())
            .bind(count)
            .bind(&event.id)
            .execute(&store.write)
            .await
            .unwrap();
        }
        store.delete_old_attempts(team).await.unwrap();
        let left = async |one: &Webhook| -> (i64, i64) {
            sqlx::query_as("SELECT COUNT(*), MIN(timestamp) FROM webhook_attempts WHERE webhook_id = $1")
                .bind(one.id.to_string())
                .fetch_one(&store.read)
                .await
                .unwrap()
        };
        assert_eq!(
            left(&busy).await,
            (WEBHOOK_ATTEMPTS / 2, WEBHOOK_ATTEMPTS / 2 + 1),
            "the newest are kept"
        );
        assert_eq!(left(&quiet).await, (3, 1));
    }

    #[tokio::test]
    async fn the_newest_attempts_of_an_event_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("sandcove.db")).await.unwrap();
        let team = store.ensure_default_team(None, 1, Duration::from_secs(60)).await.unwrap().team.id;
        let webhook = webhook(team);
        store.put_webhook(&webhook).await.unwrap();
        let event = event(team);
        store.insert_event(&event).await.unwrap();
        let attempt = |n: i64| Attempt {
            id: Uuid::new_v4().to_string(),
            team_id: team.to_string(),
            webhook_id: webhook.id.to_string(),
            event_id: event.id.clone(),
            sandbox_id: "i".into(),
            event_type: event.kind.clone(),
            status: "success".into(),
            duration_ms: n,
            request_headers: String::new(),
            request_body: String::new(),
            request_url: String::new(),
            response_body: Some("\u{1}".repeat(4096)),
            response_headers: None,
            response_http_status_code: Some(200),
            error_class: None,
            error_message: None,
            timestamp: clock::now(),
        };
        for n in 0..EVENT_ATTEMPTS + 2 {
            store.finish_attempt(&attempt(n), None).await.unwrap();
        }
        let query = AttemptQuery { limit: 10, ..AttemptQuery::default() };
        let kept = store.attempts(webhook.id, &query).await.unwrap().remove(0);
        let numbers: Vec<_> = kept.iter().map(|attempt| attempt.duration_ms).collect();
        assert_eq!(numbers, (2..EVENT_ATTEMPTS + 2).collect::<Vec<_>>());
        let count: i64 =
            sqlx::query_scalar("SELECT COUNT(*) FROM webhook_attempts").fetch_one(&store.read).await.unwrap();
        assert_eq!(count, EVENT_ATTEMPTS);
        assert_eq!(kept[0].response_body.as_ref().unwrap().len(), ATTEMPT_BODY_BYTES / 6);
    }
}
