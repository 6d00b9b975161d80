//! The activity of teams over time.

use std::collections::HashMap;

use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::{Store, corrupt};
use crate::Result;
use crate::domain::event::LifecycleEvent;

/// The activity of a team at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Activity {
    /// Time, Unix seconds.
    pub(crate) timestamp: i64,
    /// Maximum number of sandboxes that ran at once.
    pub(crate) concurrent: i64,
    /// Sandboxes that were started.
    pub(crate) starts: i64,
}

/// Quantity of which the most is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peak {
    /// Sandboxes that ran at once.
    Concurrent,
    /// Sandboxes that were started.
    Starts,
}

impl Store {
    /// Row of the newest event.
    pub(crate) async fn newest_event(&self) -> Result<i64> {
        Ok(sqlx::query_scalar("SELECT COALESCE(MAX(rowid), 0) FROM events").fetch_one(&self.read).await?)
    }

    /// Sandboxes started by team, from the events in the rows after `after` and up to `newest`. Rows are in the order in which
    /// events were stored: by their timestamps, an event would be missed that is stored after its time was looked at.
    pub(crate) async fn starts_between(&self, after: i64, newest: i64) -> Result<HashMap<Uuid, i64>> {
        let rows = sqlx::query(
            "SELECT t.id, COALESCE(e.n, 0) AS n FROM teams t LEFT JOIN (SELECT team_id, COUNT(*) AS n FROM events \
             NOT INDEXED WHERE rowid > $1 AND rowid <= $2 AND type = $3 GROUP BY team_id) e ON e.team_id = t.id",
        )
        .bind(after)
        .bind(newest)
        .bind(LifecycleEvent::CREATED)
        .fetch_all(&self.read)
        .await?;
        rows.iter()
            .map(|row| {
                let id: String = row.try_get("id")?;
                Ok((Uuid::parse_str(&id).map_err(corrupt("team", &id))?, row.try_get("n")?))
            })
            .collect()
    }

    /// Inserts the activity of teams, and deletes rows older than `oldest` (Unix seconds).
    pub(crate) async fn insert_activity(&self, rows: &[(Uuid, Activity)], oldest: i64) -> Result<()> {
        let mut transaction = self.write.begin().await?;
        for (team, activity) in rows {
            sqlx::query(
                "INSERT INTO team_metrics (team_id, timestamp, concurrent, starts) VALUES ($1, $2, $3, $4) \
                 ON CONFLICT (team_id, timestamp) DO UPDATE SET concurrent = MAX(concurrent, excluded.concurrent), \
                 starts = starts + excluded.starts",
            )
            .bind(team.to_string())
            .bind(activity.timestamp)
            .bind(activity.concurrent)
            .bind(activity.starts)
            .execute(&mut *transaction)
            .await?;
        }
        sqlx::query("DELETE FROM team_metrics WHERE timestamp < $1")
            .bind(oldest)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(())
    }

    /// The first interval from `start` to `end` (Unix seconds) with the most of something.
    pub(crate) async fn peak(&self, team: Uuid, start: i64, end: i64, of: Peak) -> Result<Option<Activity>> {
        let sql = match of {
            Peak::Concurrent => {
                "SELECT timestamp AS began, concurrent, starts FROM team_metrics \
                 WHERE team_id = $1 AND timestamp >= $2 AND timestamp <= $3 ORDER BY concurrent DESC, began LIMIT 1"
            }
            Peak::Starts => {
                "SELECT timestamp AS began, concurrent, starts FROM team_metrics \
                 WHERE team_id = $1 AND timestamp >= $2 AND timestamp <= $3 ORDER BY starts DESC, began LIMIT 1"
            }
        };
        let row =
            sqlx::query(sql).bind(team.to_string()).bind(start).bind(end).fetch_optional(&self.read).await?;
        row.as_ref().map(activity).transpose()
    }

    /// The activity of a team from `start` to `end` (Unix seconds), in intervals of `step` seconds, oldest first.
    pub(crate) async fn activity(
        &self,
        team: Uuid,
        start: i64,
        end: i64,
        step: i64,
    ) -> Result<Vec<Activity>> {
        let rows = sqlx::query(
            "SELECT (timestamp / $4) * $4 AS began, MAX(concurrent) AS concurrent, SUM(starts) AS starts \
             FROM team_metrics WHERE team_id = $1 AND timestamp >= $2 AND timestamp <= $3 \
             GROUP BY began ORDER BY began",
        )
        .bind(team.to_string())
        .bind(start)
        .bind(end)
        .bind(step)
        .fetch_all(&self.read)
        .await?;
        rows.iter().map(activity).collect()
    }
}

fn activity(row: &SqliteRow) -> Result<Activity> {
    Ok(Activity {
        timestamp: row.try_get("began")?,
        concurrent: row.try_get("concurrent")?,
        starts: row.try_get("starts")?,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_peak_does_not_depend_on_the_time_around_it() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("sandcove.db")).await.unwrap();
        let team = store.ensure_default_team(None, 1, Duration::from_secs(60)).await.unwrap().team.id;
        let at = |timestamp, concurrent, starts| (team, Activity { timestamp, concurrent, starts });
        store
            .insert_activity(&[at(100, 1, 1), at(200, 2, 50), at(205, 9, 3), at(210, 9, 50)], 0)
            .await
            .unwrap();
        for (start, end) in [(200, 210), (0, 1000)] {
            let peak = async |of| store.peak(team, start, end, of).await.unwrap();
            assert_eq!(peak(Peak::Starts).await, Some(at(200, 2, 50).1));
            assert_eq!(peak(Peak::Concurrent).await, Some(at(205, 9, 3).1));
        }
        assert_eq!(store.peak(team, 300, 400, Peak::Starts).await.unwrap(), None);
    }
}
