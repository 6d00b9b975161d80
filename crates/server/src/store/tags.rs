//! Tags of templates, and the builds they have named (contract: templates, section 16).

use sandcove_wire::id::TemplateId;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, Sqlite, Transaction};
use uuid::Uuid;

use super::{Store, corrupt};
use crate::domain::limits::{TAG_ASSIGNMENTS, TAGS};
use crate::domain::template::{TagAssignment, TagEntry};
use crate::{Error, Result, clock};

impl Store {
    /// The tags of a template, newest first.
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

    /// Gives a ready build of a template these tags; those that name another build are moved.
    ///
    /// # Errors
    /// [`Error::BuildNotFound`] when the build is gone, and [`Error::TooManyOfTeam`] when the template would have more tags
    /// than it may.
    pub(crate) async fn assign_tags(
        &self,
        template: &TemplateId,
        build: Uuid,
        tags: &[String],
    ) -> Result<()> {
        let now = clock::now().as_microsecond();
        let mut transaction = self.write.begin().await?;
        sqlx::query("SELECT 1 FROM template_builds WHERE id = $1 AND template_id = $2 AND status = 'ready'")
            .bind(build.to_string())
            .bind(template.as_str())
            .fetch_optional(&mut *transaction)
            .await?
            .ok_or(Error::BuildNotFound(build))?;
        for tag in tags {
            set_tag(&mut transaction, template, tag, build, now).await?;
        }
        let row = sqlx::query("SELECT COUNT(*) AS n FROM template_tags WHERE template_id = $1")
            .bind(template.as_str())
            .fetch_one(&mut *transaction)
            .await?;
        if usize::try_from(row.try_get::<i64, _>("n")?).is_ok_and(|count| count > TAGS) {
            return Err(Error::TooManyTags(TAGS));
        }
        touch(&mut transaction, template, now).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Removes tags of a template, with their history. Builds stay.
    pub(crate) async fn remove_tags(&self, template: &TemplateId, tags: &[String]) -> Result<()> {
        let mut transaction = self.write.begin().await?;
        for tag in tags {
            for table in ["template_tags", "template_tag_assignments"] {
                let sql = format!("DELETE FROM {table} WHERE template_id = $1 AND tag = $2");
                sqlx::query(sqlx::AssertSqlSafe(sql))
                    .bind(template.as_str())
                    .bind(tag)
                    .execute(&mut *transaction)
                    .await?;
            }
        }
        touch(&mut transaction, template, clock::now().as_microsecond()).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Every build that the tags of a template name or have named, newest assignment first.
    pub(crate) async fn tag_assignments(&self, template: &TemplateId) -> Result<Vec<TagAssignment>> {
        let rows = sqlx::query(
            "SELECT a.tag, a.build_id, a.created_at, b.created_at AS build_created_at, b.finished_at \
             FROM template_tag_assignments a JOIN template_builds b ON b.id = a.build_id \
             WHERE a.template_id = $1 ORDER BY a.created_at DESC, a.tag",
        )
        .bind(template.as_str())
        .fetch_all(&self.read)
        .await?;
        rows.iter().map(assignment).collect()
    }
}

/// Points a tag of a template to a build, and remembers that it did. Nothing changes when it points there already.
pub(super) async fn set_tag(
    transaction: &mut Transaction<'_, Sqlite>,
    template: &TemplateId,
    tag: &str,
    build: Uuid,
    now: i64,
) -> Result<()> {
    let done = sqlx::query(
        "INSERT INTO template_tags (template_id, tag, build_id, created_at) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (template_id, tag) DO UPDATE SET build_id = excluded.build_id, \
         created_at = excluded.created_at WHERE template_tags.build_id <> excluded.build_id",
    )
    .bind(template.as_str())
    .bind(tag)
    .bind(build.to_string())
    .bind(now)
    .execute(&mut **transaction)
    .await?;
    if done.rows_affected() == 0 {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO template_tag_assignments (template_id, tag, build_id, created_at) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (template_id, tag, created_at) DO UPDATE SET build_id = excluded.build_id",
    )
    .bind(template.as_str())
    .bind(tag)
    .bind(build.to_string())
    .bind(now)
    .execute(&mut **transaction)
    .await?;
    sqlx::query(
        "DELETE FROM template_tag_assignments WHERE template_id = $1 AND tag = $2 AND created_at < \
         (SELECT MIN(a.created_at) FROM (SELECT created_at FROM template_tag_assignments \
         WHERE template_id = $1 AND tag = $2 ORDER BY created_at DESC LIMIT $3) a)",
    )
    .bind(template.as_str())
    .bind(tag)
    .bind(TAG_ASSIGNMENTS)
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

async fn touch(transaction: &mut Transaction<'_, Sqlite>, template: &TemplateId, now: i64) -> Result<()> {
    sqlx::query("UPDATE templates SET updated_at = $1 WHERE id = $2")
        .bind(now)
        .bind(template.as_str())
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

fn tag(row: &SqliteRow) -> Result<TagEntry> {
    Ok(TagEntry {
        tag: row.try_get("tag")?,
        build_id: build_id(row)?,
        created_at: clock::from_micros(row.try_get("created_at")?),
    })
}

fn assignment(row: &SqliteRow) -> Result<TagAssignment> {
    Ok(TagAssignment {
        tag: row.try_get("tag")?,
        build_id: build_id(row)?,
        assigned_at: clock::from_micros(row.try_get("created_at")?),
        build_created_at: clock::from_micros(row.try_get("build_created_at")?),
        build_finished_at: row.try_get::<Option<i64>, _>("finished_at")?.map(clock::from_micros),
    })
}

fn build_id(row: &SqliteRow) -> Result<Uuid> {
    let id: String = row.try_get("build_id")?;
    Uuid::parse_str(&id).map_err(corrupt("tag", &id))
}
