//! Snapshots: templates of a team whose builds are the files of a sandbox. The host side keeps the files, under the id of the
//! build.

use std::collections::HashSet;

use sandcove_wire::id::TemplateId;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, Sqlite, Transaction};
use uuid::Uuid;

use super::tags::set_tag;
use super::templates::is_snapshot;
use super::{Store, corrupt, json};
use crate::domain::snapshot::Snapshot;
use crate::domain::team::Team;
use crate::domain::template::TemplateRecord;
use crate::{Error, Result, clock};

/// Counts the tags of a team's snapshots.
const COUNT: &str = "SELECT COUNT(*) AS n FROM templates t JOIN template_tags g ON g.template_id = t.id \
     JOIN template_builds b ON b.id = g.build_id WHERE t.team_id = $1 AND b.is_snapshot";

impl Store {
    /// Inserts a snapshot under `tag`. When the team has a snapshot of that name, the record gets its template id. Returns the
    /// builds that no tag names any more, whose rows are deleted.
    ///
    /// # Errors
    /// When the name is that of a template that is not a snapshot, or the team is at its limit of snapshots.
    pub(crate) async fn insert_snapshot(
        &self,
        team: &Team,
        record: &mut TemplateRecord,
        tag: &str,
    ) -> Result<Vec<Uuid>> {
        let now = clock::now().as_microsecond();
        let mut transaction = self.write.begin().await?;
        let existing = sqlx::query("SELECT id FROM templates WHERE team_id = $1 AND name = $2")
            .bind(team.id.to_string())
            .bind(&record.name)
            .fetch_optional(&mut *transaction)
            .await?;
        match existing {
            Some(row) => {
                let id: String = row.try_get("id")?;
                if !is_snapshot(&mut transaction, &id).await? {
                    return Err(Error::Refused(format!("'{}' is the name of a template", record.name)));
                }
                record.template_id = id.parse().map_err(corrupt("template", &id))?;
                sqlx::query("UPDATE templates SET updated_at = $1 WHERE id = $2")
                    .bind(now)
                    .bind(&id)
                    .execute(&mut *transaction)
                    .await?;
            }
            None => {
                let name = if record.name.is_empty() { record.template_id.as_str() } else { &record.name };
                sqlx::query(
                    "INSERT INTO templates (id, team_id, name, public, created_at, updated_at) \
                     VALUES ($1, $2, $3, FALSE, $4, $4)",
                )
                .bind(record.template_id.as_str())
                .bind(team.id.to_string())
                .bind(name)
                .bind(now)
                .execute(&mut *transaction)
                .await?;
            }
        }
        sqlx::query(
            "INSERT INTO template_builds (id, template_id, status, record, is_snapshot, created_at, updated_at, finished_at) \
             VALUES ($1, $2, 'ready', $3, TRUE, $4, $4, $4)",
        )
        .bind(record.build_id.to_string())
        .bind(record.template_id.as_str())
        .bind(json(record)?)
        .bind(now)
        .execute(&mut *transaction)
        .await?;
        set_tag(&mut transaction, &record.template_id, tag, record.build_id, now).await?;
        let dropped = drop_untagged(&mut transaction, &record.template_id).await?;
        let max = team.quota.snapshots;
        let count: i64 =
            sqlx::query(COUNT).bind(team.id.to_string()).fetch_one(&mut *transaction).await?.try_get("n")?;
        if count > i64::from(max) {
            return Err(Error::TooManyOfTeam { max: max as usize, what: "snapshots" });
        }
        transaction.commit().await?;
        Ok(dropped)
    }

    /// The number of a team's snapshots; each tag is one.
    pub(crate) async fn count_snapshots(&self, team: &Team) -> Result<i64> {
        let row = sqlx::query(COUNT).bind(team.id.to_string()).fetch_one(&self.read).await?;
        Ok(row.try_get("n")?)
    }

    /// Size of the memory that a team's snapshots and templates keep, bytes.
    pub(crate) async fn snapshot_memory(&self, team: &Team) -> Result<u64> {
        let row = sqlx::query(
            "WITH records AS (SELECT b.record FROM templates t JOIN template_builds b ON b.template_id = t.id WHERE t.team_id = $1), \
             started AS (SELECT DISTINCT json_extract(record, '$.started.snapshot'), \
             json_extract(record, '$.started.memory_bytes') AS bytes FROM records) \
             SELECT (SELECT COALESCE(SUM(json_extract(record, '$.memory_bytes')), 0) FROM records) \
             + (SELECT COALESCE(SUM(bytes), 0) FROM started) AS bytes",
        )
        .bind(team.id.to_string())
        .fetch_one(&self.read)
        .await?;
        let bytes: i64 = row.try_get("bytes")?;
        Ok(u64::try_from(bytes).unwrap_or_default())
    }

    /// Deletes a snapshot, or one tag of it. Returns the builds that no tag names any more, or `None` when there is no such
    /// snapshot or tag.
    pub(crate) async fn delete_snapshot(
        &self,
        id: &TemplateId,
        tag: Option<&str>,
    ) -> Result<Option<Vec<Uuid>>> {
        let mut transaction = self.write.begin().await?;
        if !is_snapshot(&mut transaction, id.as_str()).await? {
            return Ok(None);
        }
        let deleted = match tag {
            Some(tag) => sqlx::query("DELETE FROM template_tags WHERE template_id = $1 AND tag = $2")
                .bind(id.as_str())
                .bind(tag),
            None => sqlx::query("DELETE FROM template_tags WHERE template_id = $1").bind(id.as_str()),
        }
        .execute(&mut *transaction)
        .await?;
        if deleted.rows_affected() == 0 {
            return Ok(None);
        }
        sqlx::query(
            "DELETE FROM template_tag_assignments WHERE template_id = $1 AND NOT EXISTS (SELECT 1 FROM template_tags g \
             WHERE g.template_id = $1 AND g.tag = template_tag_assignments.tag)",
        )
        .bind(id.as_str())
        .execute(&mut *transaction)
        .await?;
        let dropped = drop_untagged(&mut transaction, id).await?;
        sqlx::query(
            "DELETE FROM templates WHERE id = $1 \
             AND NOT EXISTS (SELECT 1 FROM template_builds b WHERE b.template_id = $1)",
        )
        .bind(id.as_str())
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(Some(dropped))
    }

    /// The team's snapshots, one for each tag.
    pub(crate) async fn snapshots(&self, team: &Team) -> Result<Vec<Snapshot>> {
        let rows = sqlx::query(
            "SELECT g.tag, g.created_at, b.id, b.record FROM templates t \
             JOIN template_tags g ON g.template_id = t.id JOIN template_builds b ON b.id = g.build_id \
             WHERE t.team_id = $1",
        )
        .bind(team.id.to_string())
        .fetch_all(&self.read)
        .await?;
        Ok(rows.iter().map(snapshot).collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }

    /// The builds of every team's snapshots, which are also the names of their files.
    pub(crate) async fn snapshot_builds(&self) -> Result<HashSet<Uuid>> {
        let rows = sqlx::query("SELECT id, record FROM template_builds").fetch_all(&self.read).await?;
        let builds = rows.iter().map(record).collect::<Result<Vec<_>>>()?;
        Ok(builds.into_iter().filter(TemplateRecord::is_snapshot).map(|build| build.build_id).collect())
    }

    /// A build of any template.
    pub(crate) async fn build(&self, id: Uuid) -> Result<Option<TemplateRecord>> {
        let row = sqlx::query("SELECT id, record FROM template_builds WHERE id = $1")
            .bind(id.to_string())
            .fetch_optional(&self.read)
            .await?;
        row.as_ref().map(record).transpose()
    }
}

async fn drop_untagged(
    transaction: &mut Transaction<'_, Sqlite>,
    template: &TemplateId,
) -> Result<Vec<Uuid>> {
    let rows = sqlx::query(
        "DELETE FROM template_builds WHERE template_id = $1 \
         AND NOT EXISTS (SELECT 1 FROM template_tags g WHERE g.build_id = template_builds.id) RETURNING id",
    )
    .bind(template.as_str())
    .fetch_all(&mut **transaction)
    .await?;
    rows.iter().map(id).collect()
}

fn snapshot(row: &SqliteRow) -> Result<Option<Snapshot>> {
    let build = record(row)?;
    let tag = row.try_get("tag")?;
    let created_at = clock::from_micros(row.try_get("created_at")?);
    Ok(build.snapshot_of.map(|sandbox| Snapshot {
        template_id: build.template_id,
        name: Some(build.name).filter(|name| !name.is_empty()),
        tag,
        sandbox,
        created_at,
        memory_bytes: build.memory_bytes,
    }))
}

fn record(row: &SqliteRow) -> Result<TemplateRecord> {
    let id: String = row.try_get("id")?;
    serde_json::from_str(&row.try_get::<String, _>("record")?).map_err(corrupt("template build", &id))
}

fn id(row: &SqliteRow) -> Result<Uuid> {
    let id: String = row.try_get("id")?;
    Uuid::parse_str(&id).map_err(corrupt("template build", &id))
}
