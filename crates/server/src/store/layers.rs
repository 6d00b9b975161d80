//! The template layers that are in use.

use std::collections::HashSet;

use sqlx::Row;
use uuid::Uuid;

use super::{Store, corrupt};
use crate::Result;
use crate::domain::template::TemplateRecord;

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

    /// Stores the size of the layer of an image, bytes; 0 if it is not known.
    pub(crate) async fn insert_image_layer(&self, layer: &str, size_bytes: u64) -> Result<()> {
        sqlx::query(
            "INSERT INTO image_layers (layer, size_bytes) VALUES ($1, $2) \
             ON CONFLICT (layer) DO UPDATE SET size_bytes = MAX(size_bytes, excluded.size_bytes)",
        )
        .bind(layer)
        .bind(i64::try_from(size_bytes).unwrap_or(i64::MAX))
        .execute(&self.write)
        .await?;
        Ok(())
    }

    /// Deletes the size of a layer that is gone.
    pub(crate) async fn delete_image_layer(&self, layer: &str) -> Result<()> {
        sqlx::query("DELETE FROM image_layers WHERE layer = $1").bind(layer).execute(&self.write).await?;
        Ok(())
    }

    /// The bytes of the layers of images that a team's templates, sandboxes, cached steps and cached images are on, and of the layer `also`. Each
    /// counts once, and whole, however many teams have it.
    pub(crate) async fn image_bytes(&self, team: Uuid, also: Option<&str>) -> Result<u64> {
        let row = sqlx::query(
            "SELECT COALESCE(SUM(size_bytes), 0) AS bytes FROM image_layers WHERE layer = $2 OR layer IN (\
             SELECT layer FROM image_cache WHERE team_id = $1 \
             UNION SELECT l.value FROM step_cache s, json_each(s.layers) l \
             WHERE s.team_id = $1 AND s.layers LIKE '%\"oci-%' \
             UNION SELECT l.value FROM templates t JOIN template_builds b ON b.template_id = t.id, \
             json_each(b.record, '$.layers') l WHERE t.team_id = $1 AND b.record LIKE '%\"oci-%' \
             UNION SELECT l.value FROM sandboxes x, json_each(x.details, '$.build.layers') l \
             WHERE x.team_id = $1 AND x.details LIKE '%\"oci-%')",
        )
        .bind(team.to_string())
        .bind(also)
        .fetch_one(&self.read)
        .await?;
        let bytes: i64 = row.try_get("bytes")?;
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
    async fn each_layer_of_an_image_counts_once_for_every_team_that_has_it() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("sandcove.db")).await.unwrap();
        let team = store.ensure_default_team(None, 10, Duration::from_secs(60)).await.unwrap().team.id;
        store.insert_image_layer("oci-1", 100).await.unwrap();
        store.insert_image_layer("oci-1", 0).await.unwrap();
        store.insert_image_layer("oci-2", 20).await.unwrap();
        assert_eq!(store.image_bytes(team, None).await.unwrap(), 0);
        assert_eq!(store.image_bytes(team, Some("oci-2")).await.unwrap(), 20);
        let image = CachedImage { layer: "oci-1".to_owned(), env: BTreeMap::new() };
        store.insert_image(team, "one", &image).await.unwrap();
        store.insert_image(team, "two", &image).await.unwrap();
        let step = CachedStep {
            key: "a".to_owned(),
            snapshot: None,
            layers: vec!["oci-2".to_owned(), "oci-1".to_owned()],
            context: Context::of_user("user"),
        };
        assert_eq!(store.image_bytes(team, Some("oci-1")).await.unwrap(), 100);
        store.insert_step(team, &step).await.unwrap();
        assert_eq!(store.image_bytes(team, Some("oci-1")).await.unwrap(), 120);
        assert_eq!(store.image_bytes(Uuid::new_v4(), None).await.unwrap(), 0);
        store.delete_image_layer("oci-1").await.unwrap();
        assert_eq!(store.image_bytes(team, None).await.unwrap(), 20);
    }
}
