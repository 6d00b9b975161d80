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
