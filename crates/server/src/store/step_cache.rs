//! The cache of build steps, and what references of images meant. A snapshot may be in several rows: a step that changes no
//! files shares that of the step before it.

use std::collections::{BTreeMap, HashSet};

use jiff::Timestamp;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, Sqlite, Transaction};
use uuid::Uuid;

use super::{Store, corrupt, json};
use crate::domain::context::Context;
use crate::{Result, clock};

/// Maximum number of steps of a team in the cache. Each has all variables of its build.
const MAX_STEPS: i64 = 5000;

/// The result of a step, for a build to go on with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CachedStep {
    /// Key of the step.
    pub key: String,
    /// Snapshot with the files after the step; none when they are those of the base.
    pub snapshot: Option<String>,
    /// Layers below the files, topmost first.
    pub layers: Vec<String>,
    /// Context after the step.
    pub context: Context,
}

/// An image as it was when its reference was last looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CachedImage {
    /// Layer with the files of the image.
    pub layer: String,
    /// Variables of the image.
    pub env: BTreeMap<String, String>,
}

impl Store {
    /// The step with this key, which counts as used now.
    pub(crate) async fn cached_step(&self, team: Uuid, key: &str) -> Result<Option<CachedStep>> {
        let row = sqlx::query(
            "UPDATE step_cache SET used_at = $3 WHERE team_id = $1 AND key = $2 \
             RETURNING key, snapshot, layers, context",
        )
        .bind(team.to_string())
        .bind(key)
        .bind(clock::now().as_microsecond())
        .fetch_optional(&self.write)
        .await?;
        row.as_ref().map(step).transpose()
    }

    /// Inserts a step, or replaces the one with its key. Returns the snapshots that no row names any more, which is that of
    /// the step itself if the team has as many steps as it may: another build runs it again.
    pub(crate) async fn insert_step(&self, team: Uuid, step: &CachedStep) -> Result<Vec<String>> {
        let mut transaction = self.write.begin().await?;
        let replaced =
            sqlx::query("DELETE FROM step_cache WHERE team_id = $1 AND key = $2 RETURNING snapshot")
                .bind(team.to_string())
                .bind(&step.key)
                .fetch_all(&mut *transaction)
                .await?;
        sqlx::query(
            "INSERT INTO step_cache (team_id, key, snapshot, layers, context, used_at) SELECT $1, $2, $3, $4, $5, $6 \
             WHERE (SELECT COUNT(*) FROM step_cache WHERE team_id = $1) < $7",
        )
        .bind(team.to_string())
        .bind(&step.key)
        .bind(&step.snapshot)
        .bind(json(&step.layers)?)
        .bind(json(&step.context)?)
        .bind(clock::now().as_microsecond())
        .bind(MAX_STEPS)
        .execute(&mut *transaction)
        .await?;
        let mut snapshots = snapshots(&replaced)?;
        snapshots.extend(step.snapshot.clone());
        let unnamed = unnamed(&mut transaction, snapshots).await?;
        transaction.commit().await?;
        Ok(unnamed)
    }

    /// Deletes every step whose files are a snapshot.
    pub(crate) async fn forget_snapshot(&self, snapshot: &str) -> Result<()> {
        sqlx::query("DELETE FROM step_cache WHERE snapshot = $1").bind(snapshot).execute(&self.write).await?;
        Ok(())
    }

    /// Deletes the steps and images, of one team or of all, that were last used before `time`, but for steps whose snapshots are among
    /// `kept`. Returns the snapshots that no row names any more.
    pub(crate) async fn expire_steps(
        &self,
        team: Option<Uuid>,
        time: Timestamp,
        kept: &HashSet<String>,
    ) -> Result<Vec<String>> {
        let team = team.map(|team| team.to_string());
        let mut transaction = self.write.begin().await?;
        let expired = sqlx::query(
            "DELETE FROM step_cache WHERE used_at < $1 AND ($2 IS NULL OR team_id = $2) \
             AND (snapshot IS NULL OR snapshot NOT IN (SELECT value FROM json_each($3))) RETURNING snapshot",
        )
        .bind(time.as_microsecond())
        .bind(&team)
        .bind(json(kept)?)
        .fetch_all(&mut *transaction)
        .await?;
        sqlx::query("DELETE FROM image_cache WHERE used_at < $1 AND ($2 IS NULL OR team_id = $2)")
            .bind(time.as_microsecond())
            .bind(&team)
            .execute(&mut *transaction)
            .await?;
        let unnamed = unnamed(&mut transaction, snapshots(&expired)?).await?;
        transaction.commit().await?;
        Ok(unnamed)
    }

    /// Teams that have steps or images in the cache.
    pub(crate) async fn teams_with_caches(&self) -> Result<Vec<Uuid>> {
        let rows = sqlx::query("SELECT team_id FROM step_cache UNION SELECT team_id FROM image_cache")
            .fetch_all(&self.read)
            .await?;
        let id = |row: &SqliteRow| {
            let id: String = row.try_get("team_id")?;
            Uuid::parse_str(&id).map_err(corrupt("team", &id))
        };
        rows.iter().map(id).collect()
    }

    /// Names of the snapshots of all teams' steps.
    pub(crate) async fn step_snapshots(&self) -> Result<HashSet<String>> {
        let rows = sqlx::query("SELECT DISTINCT snapshot FROM step_cache WHERE snapshot IS NOT NULL")
            .fetch_all(&self.read)
            .await?;
        rows.iter().map(|row| Ok(row.try_get("snapshot")?)).collect()
    }

    /// Names of the snapshots of a team's steps.
    pub(crate) async fn step_snapshots_of(&self, team: Uuid) -> Result<Vec<String>> {
        let rows = sqlx::query(
            "SELECT DISTINCT snapshot FROM step_cache WHERE snapshot IS NOT NULL AND team_id = $1 ORDER BY snapshot",
        )
        .bind(team.to_string())
        .fetch_all(&self.read)
        .await?;
        rows.iter().map(|row| Ok(row.try_get("snapshot")?)).collect()
    }

    /// Layers that steps and images in the cache need, without those of the team `except`.
    pub(crate) async fn cached_layers(&self, except: Option<Uuid>) -> Result<HashSet<String>> {
        let except = except.map(|team| team.to_string()).unwrap_or_default();
        let rows = sqlx::query("SELECT DISTINCT layers FROM step_cache WHERE team_id != $1")
            .bind(&except)
            .fetch_all(&self.read)
            .await?;
        let mut layers = HashSet::new();
        for row in &rows {
            let text: String = row.try_get("layers")?;
            let named: Vec<String> = serde_json::from_str(&text).map_err(corrupt("build step", &text))?;
            layers.extend(named);
        }
        let rows = sqlx::query("SELECT DISTINCT layer FROM image_cache WHERE team_id != $1")
            .bind(&except)
            .fetch_all(&self.read)
            .await?;
        for row in &rows {
            layers.insert(row.try_get("layer")?);
        }
        Ok(layers)
    }

    /// The image that a reference meant for the team when it was last looked up.
    pub(crate) async fn cached_image(&self, team: Uuid, reference: &str) -> Result<Option<CachedImage>> {
        let row = sqlx::query("SELECT layer, env FROM image_cache WHERE team_id = $1 AND reference = $2")
            .bind(team.to_string())
            .bind(reference)
            .fetch_optional(&self.read)
            .await?;
        let Some(row) = row else { return Ok(None) };
        let env: String = row.try_get("env")?;
        let env = serde_json::from_str(&env).map_err(corrupt("image", reference))?;
        Ok(Some(CachedImage { layer: row.try_get("layer")?, env }))
    }

    /// Stores what a reference of an image means for the team now.
    pub(crate) async fn insert_image(&self, team: Uuid, reference: &str, image: &CachedImage) -> Result<()> {
        sqlx::query(
            "INSERT INTO image_cache (team_id, reference, layer, env, used_at) VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT (team_id, reference) DO UPDATE SET layer = excluded.layer, env = excluded.env, \
             used_at = excluded.used_at",
        )
        .bind(team.to_string())
        .bind(reference)
        .bind(&image.layer)
        .bind(json(&image.env)?)
        .bind(clock::now().as_microsecond())
        .execute(&self.write)
        .await?;
        Ok(())
    }
}

/// The snapshots that rows name.
fn snapshots(rows: &[SqliteRow]) -> Result<HashSet<String>> {
    rows.iter().filter_map(|row| row.try_get("snapshot").transpose()).map(|name| Ok(name?)).collect()
}

/// Names of the given snapshots that no row has.
async fn unnamed(
    transaction: &mut Transaction<'_, Sqlite>,
    snapshots: HashSet<String>,
) -> Result<Vec<String>> {
    let mut unnamed = Vec::new();
    for snapshot in snapshots {
        let other = sqlx::query("SELECT 1 FROM step_cache WHERE snapshot = $1 LIMIT 1")
            .bind(&snapshot)
            .fetch_optional(&mut **transaction)
            .await?;
        if other.is_none() {
            unnamed.push(snapshot);
        }
    }
    Ok(unnamed)
}

fn step(row: &SqliteRow) -> Result<CachedStep> {
    let key: String = row.try_get("key")?;
    let (layers, context): (String, String) = (row.try_get("layers")?, row.try_get("context")?);
    Ok(CachedStep {
        snapshot: row.try_get("snapshot")?,
        layers: serde_json::from_str(&layers).map_err(corrupt("build step", &key))?,
        context: serde_json::from_str(&context).map_err(corrupt("build step", &key))?,
        key,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn store(directory: &tempfile::TempDir) -> (Store, Uuid) {
        let store = Store::open(&directory.path().join("sandcove.db")).await.unwrap();
        let first = store.ensure_default_team(None, 10, Duration::from_secs(60)).await.unwrap();
        (store, first.team.id)
    }

    fn step(key: &str, snapshot: Option<&str>) -> CachedStep {
        CachedStep {
            key: key.to_owned(),
            snapshot: snapshot.map(str::to_owned),
            layers: vec!["base-1".to_owned()],
            context: Context::of_user("user"),
        }
    }

    #[tokio::test]
    async fn a_snapshot_stays_until_its_last_step_is_deleted() {
        let directory = tempfile::tempdir().unwrap();
        let (store, team) = store(&directory).await;
        assert!(store.insert_step(team, &step("a", Some("s-1"))).await.unwrap().is_empty());
        assert!(store.insert_step(team, &step("b", Some("s-1"))).await.unwrap().is_empty());
        assert!(store.insert_step(team, &step("c", None)).await.unwrap().is_empty());
        assert!(store.insert_step(team, &step("a", Some("s-2"))).await.unwrap().is_empty());
        assert_eq!(store.insert_step(team, &step("b", Some("s-2"))).await.unwrap(), ["s-1"]);
        assert_eq!(store.step_snapshots().await.unwrap(), HashSet::from(["s-2".to_owned()]));
        let later = clock::now() + Duration::from_secs(1);
        let (none, used) = (HashSet::new(), HashSet::from(["s-2".to_owned(), "t-1".to_owned()]));
        assert!(store.expire_steps(Some(Uuid::new_v4()), later, &none).await.unwrap().is_empty());
        assert!(store.expire_steps(None, later, &used).await.unwrap().is_empty());
        assert!(store.cached_step(team, "a").await.unwrap().is_some(), "its snapshot is in use");
        assert!(store.cached_step(team, "c").await.unwrap().is_none(), "it has no snapshot");
        let later = clock::now() + Duration::from_secs(1);
        assert_eq!(store.expire_steps(None, later, &none).await.unwrap(), ["s-2"]);
        assert!(store.cached_step(team, "a").await.unwrap().is_none());
    }

    #[tokio::test]
    async fn the_steps_of_a_team_are_limited() {
        let directory = tempfile::tempdir().unwrap();
        let (store, team) = store(&directory).await;
        store.insert_step(team, &step("a", Some("s-1"))).await.unwrap();
        sqlx::query(
            "INSERT INTO step_cache (team_id, key, layers, context, used_at) SELECT team_id, value, layers, context, used_at \
             FROM step_cache, (WITH RECURSIVE n (value) AS (SELECT 2 UNION ALL SELECT value + 1 FROM n WHERE value < $1) SELECT value FROM n)",
        )
        .bind(MAX_STEPS)
        .execute(&store.write)
        .await
        .unwrap();
        assert_eq!(store.insert_step(team, &step("b", Some("s-2"))).await.unwrap(), ["s-2"]);
        assert!(store.insert_step(team, &step("c", Some("s-1"))).await.unwrap().is_empty(), "another has it");
        assert!(store.insert_step(team, &step("a", Some("s-1"))).await.unwrap().is_empty());
        let cached = async |key| store.cached_step(team, key).await.unwrap().is_some();
        assert!(cached("a").await && !cached("b").await && !cached("c").await);
    }

    #[tokio::test]
    async fn steps_are_of_one_team() {
        let directory = tempfile::tempdir().unwrap();
        let (store, team) = store(&directory).await;
        store.insert_step(team, &step("a", Some("s-1"))).await.unwrap();
        assert_eq!(store.cached_step(team, "a").await.unwrap(), Some(step("a", Some("s-1"))));
        assert_eq!(store.cached_step(Uuid::new_v4(), "a").await.unwrap(), None);
    }

    #[tokio::test]
    async fn layers_of_steps_and_images_are_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let (store, team) = store(&directory).await;
        store.insert_step(team, &step("a", None)).await.unwrap();
        let env = BTreeMap::from([("PATH".to_owned(), "/bin".to_owned())]);
        let image = CachedImage { layer: "oci-1".to_owned(), env };
        store.insert_image(team, "alpine", &image).await.unwrap();
        store.insert_image(team, "alpine", &image).await.unwrap();
        assert_eq!(store.cached_image(team, "alpine").await.unwrap(), Some(image));
        assert!(store.cached_layers(Some(team)).await.unwrap().is_empty());
        let layers = store.cached_layers(None).await.unwrap();
        assert_eq!(layers, HashSet::from(["base-1".to_owned(), "oci-1".to_owned()]));
    }
}
