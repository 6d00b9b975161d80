//! Templates and their builds.

use jiff::Timestamp;
use sandcove_wire::api::template::BuildStatus;
use sandcove_wire::id::TemplateId;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, Sqlite, Transaction};
use uuid::Uuid;

use super::tags::set_tag;
use super::{Store, corrupt, json};
use crate::domain::limits::{DELETED_TEMPLATES, UNTAGGED_BUILDS};
use crate::domain::reference::Reference;
use crate::domain::team::Team;
use crate::domain::template::{BuildEntry, ListedTemplate, Template, TemplateInfo, TemplateRecord};
use crate::{Error, Result, clock};

const INFO: &str = "SELECT t.id, t.name, t.team_id, o.slug, t.global_name, t.public, t.spawn_count, \
     t.last_spawned_at, t.created_at, t.updated_at, \
     (SELECT COUNT(*) FROM template_builds c WHERE c.template_id = t.id) AS build_count";
/// The newest build that was to get the tag `default`.
const NEWEST_STATUS: &str = "(SELECT n.status FROM template_builds n WHERE n.template_id = t.id \
     AND n.tags LIKE '%\"default\"%' ORDER BY n.created_at DESC, n.id LIMIT 1)";

impl Store {
    pub(crate) async fn upsert_builtin(&self, record: &TemplateRecord) -> Result<()> {
        let now = clock::now().as_microsecond();
        let mut transaction = self.write.begin().await?;
        sqlx::query(
            "INSERT INTO templates (id, name, public, created_at, updated_at) VALUES ($1, $2, TRUE, $3, $3) \
             ON CONFLICT (id) DO UPDATE SET name = excluded.name, updated_at = excluded.updated_at \
             WHERE NOT EXISTS (SELECT 1 FROM template_builds WHERE id = $4)",
        )
        .bind(record.template_id.as_str())
        .bind(&record.name)
        .bind(now)
        .bind(record.build_id.to_string())
        .execute(&mut *transaction)
        .await?;
        sqlx::query(
            "INSERT INTO template_builds (id, template_id, status, record, created_at, updated_at, finished_at) \
             VALUES ($1, $2, 'ready', $3, $4, $4, $4) ON CONFLICT (id) DO UPDATE SET record = excluded.record",
        )
        .bind(record.build_id.to_string())
        .bind(record.template_id.as_str())
        .bind(json(record)?)
        .bind(now)
        .execute(&mut *transaction)
        .await?;
        set_tag(&mut transaction, &record.template_id, Reference::DEFAULT_TAG, record.build_id, now).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// The template id of a reference: the team's own template, then the server's, then one that is public under that name,
    /// then by id. With a namespace, only that namespace is searched.
    pub(crate) async fn template_id(&self, team: &Team, reference: &Reference) -> Result<Option<TemplateId>> {
        let (ids, scope) = ids_of(team, reference);
        let row = sqlx::query(ids).bind(scope).bind(reference.alias()).fetch_optional(&self.read).await?;
        let Some(row) = row else { return Ok(None) };
        let id: String = row.try_get("id")?;
        id.parse().map(Some).map_err(corrupt("template", &id))
    }

    /// The id of one of the server's own templates.
    pub(crate) async fn builtin_id(&self, name: &str) -> Result<Option<TemplateId>> {
        let row = sqlx::query("SELECT id FROM templates WHERE name = $1 AND team_id IS NULL")
            .bind(name)
            .fetch_optional(&self.read)
            .await?;
        let Some(row) = row else { return Ok(None) };
        let id: String = row.try_get("id")?;
        id.parse().map(Some).map_err(corrupt("template", &id))
    }

    /// A template with the ready build that `tag` names, which may also be the id of a build.
    pub(crate) async fn template(&self, id: &TemplateId, tag: &str) -> Result<Option<Template>> {
        let sql = ready_build("$1", "$2", tag);
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(id.as_str()).bind(tag);
        query.fetch_optional(&self.read).await?.map(|row| template(&row)).transpose()
    }

    /// The template and ready build that a reference names; a private template of another team is found too.
    ///
    /// # Errors
    /// [`Error::TemplateNotFound`], and [`Error::TagNotFound`] when the template has no ready build under that tag.
    pub(crate) async fn resolve_template(&self, team: &Team, reference: &Reference) -> Result<Template> {
        let (ids, scope) = ids_of(team, reference);
        let tag = reference.tag();
        let sql = ready_build(&format!("({ids})"), "$3", tag);
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(scope).bind(reference.alias()).bind(tag);
        match query.fetch_optional(&self.read).await? {
            Some(row) => template(&row),
            None if self.template_id(team, reference).await?.is_none() => {
                Err(Error::TemplateNotFound(reference.to_string()))
            }
            None => Err(Error::TagNotFound { template: reference.without_tag(), tag: tag.to_owned() }),
        }
    }

    /// A template, with or without a build that is ready.
    pub(crate) async fn template_info(&self, id: &TemplateId) -> Result<Option<ListedTemplate>> {
        let mut templates = self.listed("t.id = $1", id.as_str()).await?;
        Ok(templates.pop())
    }

    /// The templates of a team and of the server, newest first; no snapshots.
    pub(crate) async fn templates(&self, team: &Team) -> Result<Vec<ListedTemplate>> {
        let mut templates =
            self.listed("(t.team_id = $1 OR t.team_id IS NULL)", &team.id.to_string()).await?;
        templates.retain(|template| !template.is_snapshot);
        Ok(templates)
    }

    async fn listed(&self, condition: &str, value: &str) -> Result<Vec<ListedTemplate>> {
        let sql = format!(
            "{INFO}, b.record, COALESCE({NEWEST_STATUS}, b.status, 'waiting') AS status, EXISTS \
             (SELECT 1 FROM template_builds s WHERE s.template_id = t.id AND s.is_snapshot) \
             AS is_snapshot FROM templates t LEFT JOIN teams o ON o.id = t.team_id \
             LEFT JOIN template_tags g ON g.template_id = t.id AND g.tag = 'default' \
             LEFT JOIN template_builds b ON b.id = g.build_id \
             WHERE {condition} AND t.deleted_at IS NULL ORDER BY t.created_at DESC, t.id"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(value).fetch_all(&self.read).await?;
        rows.iter().map(listed).collect()
    }

    /// The builds of a template, newest first.
    pub(crate) async fn template_builds(&self, id: &TemplateId) -> Result<Vec<BuildEntry>> {
        let rows = sqlx::query(
            "SELECT id, status, record, created_at, updated_at, finished_at FROM template_builds \
             WHERE template_id = $1 ORDER BY created_at DESC, id",
        )
        .bind(id.as_str())
        .fetch_all(&self.read)
        .await?;
        rows.iter().map(build).collect()
    }

    /// Makes a template public, or private, which also releases the name that it has in every team.
    pub(crate) async fn set_public(&self, id: &TemplateId, public: bool) -> Result<()> {
        sqlx::query(
            "UPDATE templates SET public = $1, global_name = CASE WHEN $1 THEN global_name END, updated_at = $2 \
             WHERE id = $3",
        )
        .bind(public)
        .bind(clock::now().as_microsecond())
        .bind(id.as_str())
        .execute(&self.write)
        .await?;
        Ok(())
    }

    /// Gives a template its own name in every team that has no template of that name. False when a template of the server,
    /// or another one, has that name everywhere.
    pub(crate) async fn claim_name(&self, id: &TemplateId) -> Result<bool> {
        let done = sqlx::query(
            "UPDATE templates SET global_name = name WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM templates o \
             WHERE o.id <> $1 AND ((o.team_id IS NULL AND o.name = templates.name) OR o.global_name = templates.name))",
        )
        .bind(id.as_str())
        .execute(&self.write)
        .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Deletes a template with its builds and tags. Returns these builds. Its name is free. If it had a build that is ready, its id is not the name of
    /// another template until [`Store::forget_deleted_templates`], or until the team has deleted a thousand more.
    pub(crate) async fn delete_template(&self, id: &TemplateId) -> Result<Vec<Uuid>> {
        let mut transaction = self.write.begin().await?;
        for table in ["template_tag_assignments", "template_tags"] {
            let sql = format!("DELETE FROM {table} WHERE template_id = $1");
            sqlx::query(sqlx::AssertSqlSafe(sql)).bind(id.as_str()).execute(&mut *transaction).await?;
        }
        let rows = sqlx::query("DELETE FROM template_builds WHERE template_id = $1 RETURNING id, status")
            .bind(id.as_str())
            .fetch_all(&mut *transaction)
            .await?;
        let (mut builds, mut was_ready) = (Vec::new(), false);
        for row in &rows {
            let build: String = row.try_get("id")?;
            was_ready |= build_status(row, &build)? == BuildStatus::Ready;
            builds.push(Uuid::parse_str(&build).map_err(corrupt("template build", &build))?);
        }
        if was_ready {
            sqlx::query(
                "UPDATE templates SET name = id, global_name = NULL, public = FALSE, deleted_at = $1, updated_at = $1 \
                 WHERE id = $2",
            )
            .bind(clock::now().as_microsecond())
            .bind(id.as_str())
            .execute(&mut *transaction)
            .await?;
            sqlx::query(
                "DELETE FROM templates WHERE id IN (SELECT d.id FROM templates d JOIN templates t ON t.team_id = d.team_id \
                 WHERE t.id = $1 AND d.deleted_at IS NOT NULL ORDER BY d.deleted_at DESC, d.id LIMIT 1000000 OFFSET $2)",
            )
            .bind(id.as_str())
            .bind(DELETED_TEMPLATES)
            .execute(&mut *transaction)
            .await?;
        } else {
            sqlx::query("DELETE FROM templates WHERE id = $1")
                .bind(id.as_str())
                .execute(&mut *transaction)
                .await?;
        }
        transaction.commit().await?;
        Ok(builds)
    }

    /// Deletes what is left of templates that were deleted before `time`.
    pub(crate) async fn forget_deleted_templates(&self, time: Timestamp) -> Result<()> {
        sqlx::query("DELETE FROM templates WHERE deleted_at < $1")
            .bind(time.as_microsecond())
            .execute(&self.write)
            .await?;
        Ok(())
    }

    /// Counts a sandbox that was made from a template.
    pub(crate) async fn count_spawn(&self, id: &TemplateId) -> Result<()> {
        sqlx::query("UPDATE templates SET spawn_count = spawn_count + 1, last_spawned_at = $1 WHERE id = $2")
            .bind(clock::now().as_microsecond())
            .bind(id.as_str())
            .execute(&self.write)
            .await?;
        Ok(())
    }
}

/// Whether the builds of a template are snapshots.
pub(super) async fn is_snapshot(transaction: &mut Transaction<'_, Sqlite>, template: &str) -> Result<bool> {
    let row = sqlx::query("SELECT id, record FROM template_builds WHERE template_id = $1 LIMIT 1")
        .bind(template)
        .fetch_optional(&mut **transaction)
        .await?;
    Ok(row.as_ref().map(|row| record(row, template)).transpose()?.is_some_and(|build| build.is_snapshot()))
}

/// Deletes the oldest finished builds of a template that no tag names, beyond the number that is kept.
pub(super) async fn prune(transaction: &mut Transaction<'_, Sqlite>, template: &TemplateId) -> Result<()> {
    sqlx::query(
        "DELETE FROM template_builds WHERE id IN (SELECT b.id FROM template_builds b WHERE b.template_id = $1 \
         AND b.status IN ('ready', 'error') AND NOT EXISTS (SELECT 1 FROM template_tags g WHERE g.build_id = b.id) \
         ORDER BY b.created_at DESC, b.id LIMIT 1000000 OFFSET $2)",
    )
    .bind(template.as_str())
    .bind(UNTAGGED_BUILDS)
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// A query for the ids of templates that a reference may name, the best one first, and what it takes before the alias: the namespace,
/// or the id of the team.
fn ids_of(team: &Team, reference: &Reference) -> (&'static str, String) {
    match reference.namespace() {
        Some(namespace) => (
            "SELECT t.id FROM templates t JOIN teams o ON o.id = t.team_id \
             WHERE o.slug = $1 AND t.name = $2 AND t.deleted_at IS NULL",
            namespace.to_owned(),
        ),
        None => (
            "SELECT id FROM templates WHERE ((name = $2 AND (team_id = $1 OR team_id IS NULL)) \
             OR global_name = $2 OR id = $2) AND deleted_at IS NULL \
             ORDER BY CASE WHEN name = $2 AND team_id = $1 THEN 0 WHEN name = $2 AND team_id IS NULL THEN 1 \
             WHEN global_name = $2 THEN 2 ELSE 3 END LIMIT 1",
            team.id.to_string(),
        ),
    }
}

/// A query for the template whose id is the SQL expression `id`, with its ready build of `tag`, which is bound to `parameter`.
fn ready_build(id: &str, parameter: &str, tag: &str) -> String {
    let build = match Uuid::parse_str(tag) {
        Ok(_) => parameter.to_owned(),
        Err(_) => format!(
            "(SELECT g.build_id FROM template_tags g WHERE g.template_id = t.id AND g.tag = {parameter})"
        ),
    };
    format!(
        "{INFO}, b.status, b.record FROM templates t LEFT JOIN teams o ON o.id = t.team_id \
         JOIN template_builds b ON b.template_id = t.id \
         WHERE t.id = {id} AND b.id = {build} AND b.status = 'ready' AND t.deleted_at IS NULL"
    )
}

fn template(row: &SqliteRow) -> Result<Template> {
    let info = info(row)?;
    Ok(Template { build: record(row, info.id.as_str())?, info })
}

fn info(row: &SqliteRow) -> Result<TemplateInfo> {
    let id: String = row.try_get("id")?;
    let team: Option<String> = row.try_get("team_id")?;
    let name: String = row.try_get("name")?;
    Ok(TemplateInfo {
        // A snapshot without a name has its id in that place.
        name: if name == id { String::new() } else { name },
        id: id.parse().map_err(corrupt("template", &id))?,
        team: team.map(|team| Uuid::parse_str(&team).map_err(corrupt("template", &id))).transpose()?,
        namespace: row.try_get("slug")?,
        global_name: row.try_get("global_name")?,
        public: row.try_get("public")?,
        spawn_count: row.try_get("spawn_count")?,
        last_spawned_at: row.try_get::<Option<i64>, _>("last_spawned_at")?.map(clock::from_micros),
        build_count: row.try_get("build_count")?,
        created_at: clock::from_micros(row.try_get("created_at")?),
        updated_at: clock::from_micros(row.try_get("updated_at")?),
    })
}

fn listed(row: &SqliteRow) -> Result<ListedTemplate> {
    let info = info(row)?;
    let build: Option<String> = row.try_get("record")?;
    let parse =
        |text: String| serde_json::from_str(&text).map_err(corrupt("template build", info.id.as_str()));
    Ok(ListedTemplate {
        build: build.map(parse).transpose()?,
        status: build_status(row, info.id.as_str())?,
        is_snapshot: row.try_get("is_snapshot")?,
        info,
    })
}

fn build(row: &SqliteRow) -> Result<BuildEntry> {
    let id: String = row.try_get("id")?;
    Ok(BuildEntry {
        record: record(row, &id)?,
        status: build_status(row, &id)?,
        created_at: clock::from_micros(row.try_get("created_at")?),
        updated_at: clock::from_micros(row.try_get("updated_at")?),
        finished_at: row.try_get::<Option<i64>, _>("finished_at")?.map(clock::from_micros),
    })
}

fn record(row: &SqliteRow, id: &str) -> Result<TemplateRecord> {
    serde_json::from_str(&row.try_get::<String, _>("record")?).map_err(corrupt("template build", id))
}

/// The status of a build.
pub(super) fn build_status(row: &SqliteRow, id: &str) -> Result<BuildStatus> {
    match row.try_get::<String, _>("status")?.as_str() {
        "waiting" => Ok(BuildStatus::Waiting),
        "building" => Ok(BuildStatus::Building),
        "ready" => Ok(BuildStatus::Ready),
        "error" => Ok(BuildStatus::Error),
        other => Err(corrupt("template build", id)(format!("unknown status {other}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::domain::build::NewBuild;

    #[tokio::test]
    async fn a_deleted_template_is_forgotten_after_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("sandcove.db")).await.unwrap();
        let team = store.ensure_default_team(None, 10, Duration::from_secs(60)).await.unwrap().team;
        let new = |name: &str| NewBuild {
            name: name.to_owned(),
            tags: vec!["default".to_owned()],
            cpu_count: 1,
            memory_mib: 512,
            disk_mib: 1024,
        };
        let built = store.insert_build(&team, &new("gone")).await.unwrap();
        let deleted = built.template_id;
        sqlx::query("UPDATE template_builds SET status = 'ready'").execute(&store.write).await.unwrap();
        let kept = store.insert_build(&team, &new("kept")).await.unwrap().template_id;
        store.delete_template(&deleted).await.unwrap();
        let as_name = async || store.insert_build(&team, &new(deleted.as_str())).await;
        store.forget_deleted_templates(clock::now() - Duration::from_secs(60)).await.unwrap();
        assert!(matches!(as_name().await, Err(Error::NameTaken(_))));
        store.forget_deleted_templates(clock::now() + Duration::from_secs(60)).await.unwrap();
        as_name().await.unwrap();
        assert!(store.template_info(&kept).await.unwrap().is_some());
        // Of those that were ready, the newest thousand are remembered.
        sqlx::query(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1005) \
             INSERT INTO templates (id, team_id, name, public, created_at, updated_at, deleted_at) \
             SELECT 'old' || i, $1, 'old' || i, FALSE, i, i, i FROM n",
        )
        .bind(team.id.to_string())
        .execute(&store.write)
        .await
        .unwrap();
        let last = store.insert_build(&team, &new("last")).await.unwrap().template_id;
        sqlx::query("UPDATE template_builds SET status = 'ready' WHERE template_id = $1")
            .bind(last.as_str())
            .execute(&store.write)
            .await
            .unwrap();
        store.delete_template(&last).await.unwrap();
        let remembered = "SELECT COUNT(*), MIN(deleted_at) FROM templates WHERE deleted_at IS NOT NULL";
        let remembered: (i64, i64) = sqlx::query_as(remembered).fetch_one(&store.read).await.unwrap();
        assert_eq!(remembered, (DELETED_TEMPLATES, 7));
        // One that was never ready is forgotten at once.
        assert_eq!(store.delete_template(&kept).await.unwrap().len(), 1);
        let rows = sqlx::query("SELECT 1 FROM templates WHERE id = $1").bind(kept.as_str());
        assert!(rows.fetch_optional(&store.read).await.unwrap().is_none());
    }
}
