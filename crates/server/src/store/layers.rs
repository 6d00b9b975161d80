//! The template layers that are in use.

use std::collections::HashSet;

use jiff::Timestamp;
use sqlx::Row;
use uuid::Uuid;

use super::{Store, corrupt, json};
use crate::domain::template::TemplateRecord;
use crate::{Result, clock};

impl Store {
    /// Deletes the builds of the server's own templates that no tag names and no sandbox was made from, and returns the
    /// layers of all remaining builds. `None` when the build of a sandbox is unknown, and with it the layers in use. Must
    /// be called before sandboxes are created.
    pub async fn layers_in_use(&self) -> Result<Option<HashSet<String>>> {
        let sandboxes = self.sandboxes().await?;
        let of_sandboxes: HashSet<Uuid> = sandboxes
            .iter()
            // The record of every other sandbox names its layers.
            .filter(|sandbox| sandbox.details.build.record().is_none())
            .map(|sandbox| sandbox.details.build.id())
            .collect();
        let mut transaction = self.write.begin().await?;
        let rows = sqlx::query(
            "SELECT b.id, b.record, t.team_id IS NULL AND NOT EXISTS \
             (SELECT 1 FROM template_tags g WHERE g.build_id = b.id) AS is_old \
             FROM template_builds b JOIN templates t ON t.id = b.template_id",
        )
        .fetch_all(&mut *transaction)
        .await?;
        let mut known = HashSet::new();
        let mut layers: HashSet<String> = sandboxes
            .iter()
            .filter_map(|sandbox| sandbox.details.build.record())
            .flat_map(|build| build.layers.clone())
            .collect();
        layers.extend(self.cached_layers(None).await?);
        for row in &rows {
            let id: String = row.try_get("id")?;
            let build = Uuid::parse_str(&id).map_err(corrupt("template build", &id))?;
            if row.try_get("is_old")? && !of_sandboxes.contains(&build) {
                sqlx::query("DELETE FROM template_builds WHERE id = $1")
                    .bind(&id)
                    .execute(&mut *transaction)
                    .await?;
                continue;
            }
            let record: TemplateRecord = serde_json::from_str(&row.try_get::<String, _>("record")?)
                .map_err(corrupt("template build", &id))?;
            known.insert(build);
            layers.extend(record.layers);
        }
        transaction.commit().await?;
        Ok(of_sandboxes.is_subset(&known).then_some(layers))
    }

    /// Counts the layer of an image for a team, with its size, bytes; 0 if that is not known. Returns whether it did not count before.
    pub(crate) async fn count_image_layer(&self, team: Uuid, layer: &str, size_bytes: u64) -> Result<bool> {
        let mut transaction = self.write.begin().await?;
        let counted = sqlx::query("SELECT 1 FROM image_layers WHERE team_id = $1 AND layer = $2")
            .bind(team.to_string())
            .bind(layer)
            .fetch_optional(&mut *transaction)
            .await?;
        sqlx::query(
            "INSERT INTO image_layers (team_id, layer, size_bytes, used_at) VALUES ($1, $2, $3, $4) ON CONFLICT (team_id, layer) \
             DO UPDATE SET size_bytes = MAX(size_bytes, excluded.size_bytes), used_at = excluded.used_at",
        )
        .bind(team.to_string())
        .bind(layer)
        .bind(i64::try_from(size_bytes).unwrap_or(i64::MAX))
        .bind(clock::now().as_microsecond())
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(counted.is_none())
    }

    /// Counts the layer of an image no longer for a team.
    pub(crate) async fn forget_image_layer(&self, team: Uuid, layer: &str) -> Result<()> {
        sqlx::query("DELETE FROM image_layers WHERE team_id = $1 AND layer = $2")
            .bind(team.to_string())
            .bind(layer)
            .execute(&self.write)
            .await?;
        Ok(())
    }

    /// Counts layers no longer for teams that have asked for them before `time` and have no template, sandbox, cached step or cached image on
    /// them, but for those in `kept`: they are on the disk for nobody else.
    pub(crate) async fn forget_image_layers(&self, time: Timestamp, kept: &HashSet<String>) -> Result<()> {
        sqlx::query(
            "DELETE FROM image_layers AS i WHERE used_at < $1 AND layer NOT IN (SELECT value FROM json_each($2)) \
             AND NOT EXISTS (SELECT 1 FROM image_cache c WHERE c.team_id = i.team_id AND c.layer = i.layer) \
             AND NOT EXISTS (SELECT 1 FROM step_cache s, json_each(s.layers) l \
             WHERE s.team_id = i.team_id AND l.value = i.layer) \
             AND NOT EXISTS (SELECT 1 FROM templates t JOIN template_builds b ON b.template_id = t.id, \
             json_each(b.record, '$.layers') l WHERE t.team_id = i.team_id AND l.value = i.layer) \
             AND NOT EXISTS (SELECT 1 FROM sandboxes x, json_each(x.details, '$.build.layers') l \
             WHERE x.team_id = i.team_id AND l.value = i.layer)",
        )
        .bind(time.as_microsecond())
        .bind(json(kept)?)
        .execute(&self.write)
        .await?;
        Ok(())
    }

    /// The bytes of the layers of images that count for a team: each once, and whole, however many teams have it.
    pub(crate) async fn image_bytes(&self, team: Uuid) -> Result<u64> {
        let bytes: i64 =
            sqlx::query_scalar("SELECT COALESCE(SUM(size_bytes), 0) FROM image_layers WHERE team_id = $1")
                .bind(team.to_string())
                .fetch_one(&self.read)
                .await?;
        Ok(u64::try_from(bytes).unwrap_or_default())
    }

    /// The layers of all sandboxes, templates, cached build steps and images, as they name them. Layers of sandboxes whose row
    /// does not have the whole record of their build are those of templates. What only the team `except` has cached is left out.
    pub(crate) async fn used_layers(&self, except: Option<Uuid>) -> Result<HashSet<String>> {
        let mut layers = self.cached_layers(except).await?;
        let sandboxes = self.sandboxes().await?;
        let records = sandboxes.iter().filter_map(|sandbox| sandbox.details.build.record());
        layers.extend(records.flat_map(|build| build.layers.clone()));
        let rows = sqlx::query("SELECT id, record FROM template_builds").fetch_all(&self.read).await?;
        for row in &rows {
            let id: String = row.try_get("id")?;
            let record: TemplateRecord = serde_json::from_str(&row.try_get::<String, _>("record")?)
                .map_err(corrupt("template build", &id))?;
            layers.extend(record.layers);
        }
        Ok(layers)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::domain::context::Context;
    use crate::store::{CachedImage, CachedStep};

    #[tokio::test]
    async fn a_layer_of_an_image_counts_until_the_team_needs_it_no_longer_and_others_do() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("sandcove.db")).await.unwrap();
        let team = store.ensure_default_team(None, 10, Duration::from_secs(60)).await.unwrap().team.id;
        assert!(store.count_image_layer(team, "oci-1", 100).await.unwrap());
        assert!(!store.count_image_layer(team, "oci-1", 0).await.unwrap(), "its size is known");
        assert!(store.count_image_layer(team, "oci-2", 20).await.unwrap());
        assert!(store.count_image_layer(team, "oci-3", 3).await.unwrap());
        assert_eq!(store.image_bytes(team).await.unwrap(), 123);
        assert_eq!(store.image_bytes(Uuid::new_v4()).await.unwrap(), 0);
        let image = CachedImage { layer: "oci-1".to_owned(), env: BTreeMap::new() };
        store.insert_image(team, "one", &image).await.unwrap();
        let step = CachedStep {
            key: "a".to_owned(),
            snapshot: None,
            layers: vec!["x/upper".to_owned(), "oci-2".to_owned()],
            context: Context::of_user("user"),
        };
        store.insert_step(team, &step).await.unwrap();
        let (none, all) = (HashSet::new(), HashSet::from(["oci-3".to_owned()]));
        let (now, later) = (clock::now() - Duration::from_secs(60), clock::now() + Duration::from_secs(60));
        for (time, kept, left) in [(now, &none, 123), (later, &all, 123), (later, &none, 120)] {
            store.forget_image_layers(time, kept).await.unwrap();
            assert_eq!(store.image_bytes(team).await.unwrap(), left);
        }
        store.forget_image_layer(team, "oci-1").await.unwrap();
        assert_eq!(store.image_bytes(team).await.unwrap(), 20);
    }
}
