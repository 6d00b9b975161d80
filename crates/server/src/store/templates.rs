//! Templates, their builds and tags.

use sandcove_wire::api::template::BuildStatus;
use sandcove_wire::id::TemplateId;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::{Store, corrupt, json};
use crate::domain::reference::Reference;
use crate::domain::team::Team;
use crate::domain::template::{BuildEntry, TagEntry, Template, TemplateRecord};
use crate::{Result, clock};

const TEMPLATE: &str = "SELECT t.id, t.team_id, t.public, t.spawn_count, t.last_spawned_at, t.created_at, \
     t.updated_at, b.status, b.record, \
     (SELECT COUNT(*) FROM template_builds c WHERE c.template_id = t.id) AS build_count \
     FROM templates t JOIN template_tags g ON g.template_id = t.id JOIN template_builds b ON b.id = g.build_id";

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
        sqlx::query(
            "INSERT INTO template_tags (template_id, tag, build_id, created_at) VALUES ($1, 'default', $2, $3) \
             ON CONFLICT (template_id, tag) DO UPDATE SET build_id = excluded.build_id, \
             created_at = excluded.created_at WHERE template_tags.build_id <> excluded.build_id",
        )
        .bind(record.template_id.as_str())
        .bind(record.build_id.to_string())
        .bind(now)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(())
    }

    /// The template id of a reference: the team's own template, then the server's, then by id. With a namespace, only that
    /// namespace is searched.
    pub(crate) async fn template_id(&self, team: &Team, reference: &Reference) -> Result<Option<TemplateId>> {
        let query = match reference.namespace() {
            Some(namespace) => sqlx::query(
                "SELECT t.id FROM templates t JOIN teams o ON o.id = t.team_id \
                 WHERE o.slug = $1 AND t.name = $2",
            )
            .bind(namespace)
            .bind(reference.alias()),
            None => sqlx::query(
                "SELECT id FROM templates WHERE (name = $2 AND (team_id = $1 OR team_id IS NULL)) OR id = $2 \
                 ORDER BY CASE WHEN name <> $2 THEN 2 WHEN team_id IS NULL THEN 1 ELSE 0 END LIMIT 1",
            )
            .bind(team.id.to_string())
            .bind(reference.alias()),
        };
        let Some(row) = query.fetch_optional(&self.read).await? else { return Ok(None) };
        let id: String = row.try_get("id")?;
        id.parse().map(Some).map_err(corrupt("template", &id))
    }

    pub(crate) async fn template(&self, id: &TemplateId, tag: &str) -> Result<Option<Template>> {
        let sql = format!("{TEMPLATE} WHERE t.id = $1 AND g.tag = $2");
        let row = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(id.as_str())
            .bind(tag)
            .fetch_optional(&self.read)
            .await?;
        row.as_ref().map(template).transpose()
    }

    pub(crate) async fn templates(&self, team: &Team) -> Result<Vec<Template>> {
        let sql = format!(
            "{TEMPLATE} WHERE g.tag = 'default' AND (t.team_id = $1 OR t.team_id IS NULL) \
             ORDER BY t.created_at DESC, t.id"
        );
        let rows =
            sqlx::query(sqlx::AssertSqlSafe(sql)).bind(team.id.to_string()).fetch_all(&self.read).await?;
        rows.iter().map(template).collect()
    }

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

    pub(crate) async fn template_tags(&self, id: &TemplateId) -> Result<Vec<TagEntry>> {
        let rows = sqlx::query(
            "SELECT tag, build_id, created_at FROM template_tags WHERE template_id = $1 \
             ORDER BY created_at DESC, tag",
        )
        .bind(id.as_str())
        .fetch_all(&self.read)
        .await?;
        rows.iter().map(tag).collect()
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

fn template(row: &SqliteRow) -> Result<Template> {
    let id: String = row.try_get("id")?;
    let team: Option<String> = row.try_get("team_id")?;
    Ok(Template {
        build: record(row, &id)?,
        status: status(row, &id)?,
        team: team.map(|team| Uuid::parse_str(&team).map_err(corrupt("template", &id))).transpose()?,
        public: row.try_get("public")?,
        spawn_count: row.try_get("spawn_count")?,
        last_spawned_at: row.try_get::<Option<i64>, _>("last_spawned_at")?.map(clock::from_micros),
        build_count: row.try_get("build_count")?,
        created_at: clock::from_micros(row.try_get("created_at")?),
        updated_at: clock::from_micros(row.try_get("updated_at")?),
    })
}

fn build(row: &SqliteRow) -> Result<BuildEntry> {
    let id: String = row.try_get("id")?;
    Ok(BuildEntry {
        record: record(row, &id)?,
        status: status(row, &id)?,
        created_at: clock::from_micros(row.try_get("created_at")?),
        updated_at: clock::from_micros(row.try_get("updated_at")?),
        finished_at: row.try_get::<Option<i64>, _>("finished_at")?.map(clock::from_micros),
    })
}

fn tag(row: &SqliteRow) -> Result<TagEntry> {
    let build_id: String = row.try_get("build_id")?;
    Ok(TagEntry {
        tag: row.try_get("tag")?,
        build_id: Uuid::parse_str(&build_id).map_err(corrupt("tag", &build_id))?,
        created_at: clock::from_micros(row.try_get("created_at")?),
    })
}

fn record(row: &SqliteRow, id: &str) -> Result<TemplateRecord> {
    serde_json::from_str(&row.try_get::<String, _>("record")?).map_err(corrupt("template build", id))
}

fn status(row: &SqliteRow, id: &str) -> Result<BuildStatus> {
    match row.try_get::<String, _>("status")?.as_str() {
        "waiting" => Ok(BuildStatus::Waiting),
        "building" => Ok(BuildStatus::Building),
        "ready" => Ok(BuildStatus::Ready),
        "error" => Ok(BuildStatus::Error),
        other => Err(corrupt("template build", id)(format!("unknown status {other}"))),
    }
}
