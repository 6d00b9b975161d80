//! Builds that teams ask for: from the request to a build that is ready or has failed (contract: templates, sections 5 and 7).
//! The statuses follow each other in one direction: `waiting`, `building`, then `ready` or `error`.

use sandcove_wire::api::template::BuildStatus;
use sandcove_wire::id::TemplateId;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, Sqlite, Transaction};
use uuid::Uuid;

use super::tags::set_tag;
use super::templates::{build_status, is_snapshot, prune};
use super::{Store, corrupt, json};
use crate::domain::build::{
    BegunBuild, BuildReason, BuildRow, BuildSpec, InsertedBuild, NewBuild, UnfinishedBuild,
};
use crate::domain::limits::{BUILD_WAIT, BUILDS, TEMPLATES};
use crate::domain::team::Team;
use crate::domain::template::TemplateRecord;
use crate::{Error, Result, clock, random};

/// Time for which an unfinished build counts, microseconds.
const DAY: i64 = 24 * 3600 * 1_000_000;

const NEVER_STARTED: &str = "build is in waiting state for too long";
const REPLACED: &str = "build was cancelled because it was superseded by a newer one";
const CANCELLED: &str = "build was cancelled";

const ROW: &str = "SELECT b.id, b.status, b.record, b.tags, b.reason, b.created_at, t.team_id \
     FROM template_builds b JOIN templates t ON t.id = b.template_id";

impl Store {
    /// Inserts a build of the team's template of that name, which is created unless it exists. Builds of the same template
    /// and one of the same tags that were never started fail.
    ///
    /// # Errors
    /// [`Error::NameTaken`] when the name is that of a snapshot or the id of a template, [`Error::TooManyBuilds`] when the
    /// team has as many other unfinished builds as it may, and [`Error::TooManyOfTeam`] when it has as many templates.
    pub async fn insert_build(&self, team: &Team, new: &NewBuild) -> Result<InsertedBuild> {
        let now = clock::now().as_microsecond();
        let mut transaction = self.write.begin().await?;
        expire(&mut transaction, now).await?;
        let (template, public) = match own_template(&mut transaction, team, &new.name).await? {
            Some(found) => found,
            None => (insert_template(&mut transaction, team, &new.name, now).await?, false),
        };
        let mut others = unfinished(&mut transaction, team).await?;
        others.retain(|other| other.template != template || !overlap(&other.tags, &new.tags));
        if others.len() >= BUILDS as usize {
            return Err(Error::TooManyBuilds(BUILDS));
        }
        let superseded =
            supersede(&mut transaction, &template, &new.tags, BuildStatus::Waiting, REPLACED, now).await?;
        let build = Uuid::new_v4();
        sqlx::query(
            "INSERT INTO template_builds (id, template_id, status, record, tags, created_at, updated_at) \
             VALUES ($1, $2, 'waiting', $3, $4, $5, $5)",
        )
        .bind(build.to_string())
        .bind(template.as_str())
        .bind(json(&unfinished_record(&template, build, new))?)
        .bind(json(&new.tags)?)
        .bind(now)
        .execute(&mut *transaction)
        .await?;
        prune(&mut transaction, &template).await?;
        transaction.commit().await?;
        let names = vec![format!("{}/{}", team.slug, new.name)];
        Ok(InsertedBuild { template_id: template, build_id: build, public, names, superseded })
    }

    /// Changes a build of the team's template from waiting to building. Builds of the same template and one of the same tags
    /// that are in progress fail.
    ///
    /// # Errors
    /// [`Error::BuildNotFound`] when the template has no such build, and [`Error::Refused`] when it does not wait.
    pub async fn begin_build(
        &self,
        team: &Team,
        template: &TemplateId,
        build: Uuid,
        spec: &BuildSpec,
    ) -> Result<BegunBuild> {
        let now = clock::now().as_microsecond();
        let mut transaction = self.write.begin().await?;
        expire(&mut transaction, now).await?;
        let row = sqlx::query(
            "SELECT b.id, b.status, b.tags FROM template_builds b JOIN templates t ON t.id = b.template_id \
             WHERE b.id = $1 AND t.id = $2 AND t.team_id = $3 AND t.deleted_at IS NULL",
        )
        .bind(build.to_string())
        .bind(template.as_str())
        .bind(team.id.to_string())
        .fetch_optional(&mut *transaction)
        .await?
        .ok_or(Error::BuildNotFound(build))?;
        if build_status(&row, &build.to_string())? != BuildStatus::Waiting {
            return Err(Error::Refused("build is not in waiting state".into()));
        }
        let tags = tags(&row)?;
        let superseded =
            supersede(&mut transaction, template, &tags, BuildStatus::Building, CANCELLED, now).await?;
        sqlx::query(
            "UPDATE template_builds SET status = 'building', spec = $1, updated_at = $2 WHERE id = $3",
        )
        .bind(json(spec)?)
        .bind(now)
        .bind(build.to_string())
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(BegunBuild { superseded })
    }

    /// Makes a build ready, and gives it the tags that were asked for. False when the build is not in progress any more:
    /// cancelled, or deleted with its template.
    pub async fn finish_build(&self, build: Uuid, record: &TemplateRecord) -> Result<bool> {
        let now = clock::now().as_microsecond();
        let mut transaction = self.write.begin().await?;
        let row = sqlx::query(
            "UPDATE template_builds SET status = 'ready', record = $1, updated_at = $2, finished_at = $2 \
             WHERE id = $3 AND status = 'building' RETURNING id, template_id, tags",
        )
        .bind(json(record)?)
        .bind(now)
        .bind(build.to_string())
        .fetch_optional(&mut *transaction)
        .await?;
        let Some(row) = row else { return Ok(false) };
        let template = template_id(&row)?;
        for tag in tags(&row)? {
            set_tag(&mut transaction, &template, &tag, build, now).await?;
        }
        sqlx::query("UPDATE templates SET updated_at = $1 WHERE id = $2")
            .bind(now)
            .bind(template.as_str())
            .execute(&mut *transaction)
            .await?;
        prune(&mut transaction, &template).await?;
        transaction.commit().await?;
        // A client that sees the build ready may rely on it, also after a crash of the host.
        self.flush().await?;
        Ok(true)
    }

    /// The records of a template's builds that are ready.
    pub(crate) async fn ready_records(&self, template: &TemplateId) -> Result<Vec<TemplateRecord>> {
        let rows =
            sqlx::query("SELECT record FROM template_builds WHERE template_id = $1 AND status = 'ready'")
                .bind(template.as_str())
                .fetch_all(&self.read)
                .await?;
        let parse = |row: &SqliteRow| {
            let text: String = row.try_get("record")?;
            serde_json::from_str(&text).map_err(corrupt("template build", template.as_str()))
        };
        rows.iter().map(parse).collect()
    }

    /// Makes a build that is in progress fail. False when it is not in progress any more.
    pub async fn fail_build(&self, build: Uuid, reason: &BuildReason) -> Result<bool> {
        let done = sqlx::query(
            "UPDATE template_builds SET status = 'error', reason = $1, updated_at = $2, finished_at = $2 \
             WHERE id = $3 AND status = 'building'",
        )
        .bind(json(reason)?)
        .bind(clock::now().as_microsecond())
        .bind(build.to_string())
        .execute(&self.write)
        .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Makes every unfinished build of a team fail, for this reason, and returns them.
    pub(crate) async fn cancel_builds(&self, team: &Team, why: &str) -> Result<Vec<Uuid>> {
        let rows = sqlx::query(
            "UPDATE template_builds SET status = 'error', reason = $1, updated_at = $2, finished_at = $2 \
             WHERE status IN ('waiting', 'building') AND template_id IN (SELECT id FROM templates WHERE team_id = $3) \
             RETURNING id",
        )
        .bind(json(&reason(why))?)
        .bind(clock::now().as_microsecond())
        .bind(team.id.to_string())
        .fetch_all(&self.write)
        .await?;
        rows.iter().map(build_id).collect()
    }

    /// Makes builds fail that have waited for their start for too long.
    pub(crate) async fn expire_builds(&self) -> Result<()> {
        let mut transaction = self.write.begin().await?;
        expire(&mut transaction, clock::now().as_microsecond()).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// The builds of every team that are in progress, oldest first.
    pub(crate) async fn unfinished_builds(&self) -> Result<Vec<UnfinishedBuild>> {
        let rows = sqlx::query(
            "SELECT b.id, b.spec, t.team_id FROM template_builds b JOIN templates t ON t.id = b.template_id \
             WHERE b.status = 'building' ORDER BY b.updated_at, b.id",
        )
        .fetch_all(&self.read)
        .await?;
        let mut builds = Vec::new();
        for row in &rows {
            let build = build_id(row)?;
            let id = build.to_string();
            let (Some(team), Some(spec)) = (team_id(row, &id)?, parsed(row, "spec", &id)?) else { continue };
            let Some(team) = self.team(team).await? else { continue };
            builds.push(UnfinishedBuild { team, build, spec });
        }
        Ok(builds)
    }

    /// Returns how often a build has begun.
    pub(crate) async fn beginnings(&self, build: Uuid) -> Result<i64> {
        let sql = "SELECT begun FROM template_builds WHERE id = $1";
        let row = sqlx::query(sql).bind(build.to_string()).fetch_optional(&self.read).await?;
        row.map_or(Ok(0), |row| Ok(row.try_get("begun")?))
    }

    /// Counts that a build begins, with 1, or that it has ended with a server that was stopped, with -1.
    pub(crate) async fn count_beginning(&self, build: Uuid, change: i64) -> Result<()> {
        let sql = "UPDATE template_builds SET begun = MAX(begun + $2, 0) WHERE id = $1";
        sqlx::query(sql).bind(build.to_string()).bind(change).execute(&self.write).await?;
        Ok(())
    }

    /// A build of any template, in any status.
    pub async fn build_row(&self, build: Uuid) -> Result<Option<BuildRow>> {
        let sql = format!("{ROW} WHERE b.id = $1");
        let row =
            sqlx::query(sqlx::AssertSqlSafe(sql)).bind(build.to_string()).fetch_optional(&self.read).await?;
        row.as_ref().map(build_row).transpose()
    }
}

/// An unfinished build of a team.
struct Unfinished {
    template: TemplateId,
    tags: Vec<String>,
}

/// Makes builds fail that were not started in time.
async fn expire(transaction: &mut Transaction<'_, Sqlite>, now: i64) -> Result<()> {
    sqlx::query(
        "UPDATE template_builds SET status = 'error', reason = $1, updated_at = $2, finished_at = $2 \
         WHERE status = 'waiting' AND created_at < $3",
    )
    .bind(json(&reason(NEVER_STARTED))?)
    .bind(now)
    .bind(now - BUILD_WAIT)
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// The team's template of that name, and whether it is public.
async fn own_template(
    transaction: &mut Transaction<'_, Sqlite>,
    team: &Team,
    name: &str,
) -> Result<Option<(TemplateId, bool)>> {
    let row = sqlx::query(
        "SELECT id AS template_id, public FROM templates \
         WHERE team_id = $1 AND name = $2 AND id <> $2 AND deleted_at IS NULL",
    )
    .bind(team.id.to_string())
    .bind(name)
    .fetch_optional(&mut **transaction)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let id = template_id(&row)?;
    if is_snapshot(transaction, id.as_str()).await? {
        return Err(Error::NameTaken(name.to_owned()));
    }
    Ok(Some((id, row.try_get("public")?)))
}

async fn insert_template(
    transaction: &mut Transaction<'_, Sqlite>,
    team: &Team,
    name: &str,
    now: i64,
) -> Result<TemplateId> {
    let is_an_id = sqlx::query("SELECT 1 FROM templates WHERE id = $1")
        .bind(name)
        .fetch_optional(&mut **transaction)
        .await?
        .is_some();
    if is_an_id {
        return Err(Error::NameTaken(name.to_owned()));
    }
    let row = sqlx::query(
        "SELECT COUNT(*) AS n FROM templates t WHERE t.team_id = $1 AND t.deleted_at IS NULL AND NOT EXISTS \
         (SELECT 1 FROM template_builds b WHERE b.template_id = t.id AND b.is_snapshot)",
    )
    .bind(team.id.to_string())
    .fetch_one(&mut **transaction)
    .await?;
    if usize::try_from(row.try_get::<i64, _>("n")?).is_ok_and(|count| count >= TEMPLATES) {
        return Err(Error::TooManyOfTeam { max: TEMPLATES, what: "templates" });
    }
    let id = random::template_id();
    sqlx::query(
        "INSERT INTO templates (id, team_id, name, public, created_at, updated_at) \
         VALUES ($1, $2, $3, FALSE, $4, $4)",
    )
    .bind(id.as_str())
    .bind(team.id.to_string())
    .bind(name)
    .bind(now)
    .execute(&mut **transaction)
    .await?;
    Ok(id)
}

/// The unfinished builds of a team that were asked for within a day.
async fn unfinished(transaction: &mut Transaction<'_, Sqlite>, team: &Team) -> Result<Vec<Unfinished>> {
    let rows = sqlx::query(
        "SELECT b.id, b.template_id, b.tags FROM template_builds b JOIN templates t ON t.id = b.template_id \
         WHERE t.team_id = $1 AND b.status IN ('waiting', 'building') AND b.created_at > $2",
    )
    .bind(team.id.to_string())
    .bind(clock::now().as_microsecond() - DAY)
    .fetch_all(&mut **transaction)
    .await?;
    rows.iter().map(|row| Ok(Unfinished { template: template_id(row)?, tags: tags(row)? })).collect()
}

/// Makes the builds of a template fail that have this status and one of these tags.
async fn supersede(
    transaction: &mut Transaction<'_, Sqlite>,
    template: &TemplateId,
    wanted: &[String],
    status: BuildStatus,
    why: &str,
    now: i64,
) -> Result<Vec<Uuid>> {
    let status = match status {
        BuildStatus::Waiting => "waiting",
        BuildStatus::Building => "building",
        BuildStatus::Ready | BuildStatus::Error => return Ok(Vec::new()),
    };
    let rows = sqlx::query("SELECT id, tags FROM template_builds WHERE template_id = $1 AND status = $2")
        .bind(template.as_str())
        .bind(status)
        .fetch_all(&mut **transaction)
        .await?;
    let mut superseded = Vec::new();
    for row in &rows {
        if overlap(&tags(row)?, wanted) {
            let build = build_id(row)?;
            sqlx::query(
                "UPDATE template_builds SET status = 'error', reason = $1, updated_at = $2, finished_at = $2 \
                 WHERE id = $3",
            )
            .bind(json(&reason(why))?)
            .bind(now)
            .bind(build.to_string())
            .execute(&mut **transaction)
            .await?;
            superseded.push(build);
        }
    }
    Ok(superseded)
}

fn overlap(tags: &[String], wanted: &[String]) -> bool {
    tags.iter().any(|tag| wanted.contains(tag))
}

fn reason(message: &str) -> BuildReason {
    BuildReason { message: message.to_owned(), step: None }
}

/// The record of a build that is not ready: its name and resources.
fn unfinished_record(template: &TemplateId, build: Uuid, new: &NewBuild) -> TemplateRecord {
    TemplateRecord {
        template_id: template.clone(),
        build_id: build,
        name: new.name.clone(),
        layers: Vec::new(),
        services: Vec::new(),
        env: std::collections::BTreeMap::new(),
        default_user: String::new(),
        default_workdir: None,
        build_env: std::collections::BTreeMap::new(),
        cpu_count: new.cpu_count,
        memory_mib: new.memory_mib,
        disk_mib: new.disk_mib,
        envd_version: String::new(),
        start_cmd: None,
        ready_cmd: None,
        snapshot_of: None,
        memory_bytes: None,
        started: None,
    }
}

fn build_row(row: &SqliteRow) -> Result<BuildRow> {
    let id: String = row.try_get("id")?;
    let record: TemplateRecord =
        serde_json::from_str(&row.try_get::<String, _>("record")?).map_err(corrupt("template build", &id))?;
    Ok(BuildRow {
        build: build_id(row)?,
        template: record.template_id,
        team: team_id(row, &id)?,
        name: record.name,
        status: build_status(row, &id)?,
        reason: parsed(row, "reason", &id)?,
        tags: tags(row)?,
        cpu_count: record.cpu_count,
        memory_mib: record.memory_mib,
        disk_mib: record.disk_mib,
        created_at: clock::from_micros(row.try_get("created_at")?),
    })
}

/// The team that owns the template of a build; none for the server's own.
fn team_id(row: &SqliteRow, id: &str) -> Result<Option<Uuid>> {
    let team: Option<String> = row.try_get("team_id")?;
    team.map(|team| Uuid::parse_str(&team).map_err(corrupt("template build", id))).transpose()
}

/// The value of a JSON column.
fn parsed<T: serde::de::DeserializeOwned>(row: &SqliteRow, column: &str, id: &str) -> Result<Option<T>> {
    let text: Option<String> = row.try_get(column)?;
    text.map(|text| serde_json::from_str(&text).map_err(corrupt("template build", id))).transpose()
}

fn tags(row: &SqliteRow) -> Result<Vec<String>> {
    let id: String = row.try_get("id")?;
    serde_json::from_str(&row.try_get::<String, _>("tags")?).map_err(corrupt("template build", &id))
}

fn build_id(row: &SqliteRow) -> Result<Uuid> {
    let id: String = row.try_get("id")?;
    Uuid::parse_str(&id).map_err(corrupt("template build", &id))
}

fn template_id(row: &SqliteRow) -> Result<TemplateId> {
    let id: String = row.try_get("template_id")?;
    id.parse().map_err(corrupt("template", &id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::build::BuildBase;

    #[tokio::test]
    async fn the_instructions_of_a_build_are_kept_until_it_ends() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("sandcove.db")).await.unwrap();
        let team =
            store.ensure_default_team(None, 10, std::time::Duration::from_secs(60)).await.unwrap().team;
        let new = |name: &str| NewBuild {
            name: name.to_owned(),
            tags: vec!["default".to_owned()],
            cpu_count: 1,
            memory_mib: 512,
            disk_mib: 1024,
        };
        let spec = BuildSpec {
            from: BuildBase::Template("base".to_owned()),
            steps: Vec::new(),
            start_cmd: None,
            ready_cmd: None,
            force: false,
        };
        let begin = async |name: &str| {
            let InsertedBuild { template_id, build_id, .. } =
                store.insert_build(&team, &new(name)).await.unwrap();
            store.begin_build(&team, &template_id, build_id, &spec).await.unwrap();
            (template_id, build_id)
        };
        let (ready, superseded, failed) = (begin("a").await, begin("b").await, begin("c").await);
        let kept = async || {
            let sql = "SELECT COUNT(*) AS n FROM template_builds WHERE spec IS NOT NULL";
            let row = sqlx::query(sql).fetch_one(&store.read).await.unwrap();
            row.try_get::<i64, _>("n").unwrap()
        };
        assert_eq!(kept().await, 3);
        assert_eq!(store.unfinished_builds().await.unwrap()[0].spec, spec);
        assert!(store.finish_build(ready.1, &unfinished_record(&ready.0, ready.1, &new("a"))).await.unwrap());
        assert!(store.fail_build(failed.1, &reason("it failed")).await.unwrap());
        assert_eq!(kept().await, 1);
        let again = begin("b").await;
        assert_ne!(again.1, superseded.1);
        assert_eq!(kept().await, 1);
        store.cancel_builds(&team, "cancelled").await.unwrap();
        assert_eq!(kept().await, 0);
    }
}
