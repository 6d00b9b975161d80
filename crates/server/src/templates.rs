//! Templates: registration of the server's own, and lookup by reference.

use sandcove_isolate::Backend;
use sandcove_wire::id::TemplateId;

use crate::domain::reference::Reference;
use crate::domain::team::Team;
use crate::domain::template::{BuildEntry, TagEntry, Template, TemplateRecord};
use crate::store::Store;
use crate::{Error, Result};

/// The templates of this server.
#[derive(Clone)]
pub struct Templates {
    store: Store,
    backend: Backend,
}

impl Templates {
    pub(crate) fn new(store: Store, backend: Backend) -> Self {
        Self { store, backend }
    }

    /// Registers one of the server's own templates, or a new build of it, under the tag `default`. Public, owned by no
    /// team. A second call with the same build changes nothing. From now on the backend keeps a pool of sandboxes of the
    /// template.
    pub async fn upsert_builtin(&self, record: TemplateRecord) -> Result<()> {
        self.store.upsert_builtin(&record).await?;
        self.backend.keep_ready(record.blueprint(&self.backend.layer_dir()));
        Ok(())
    }

    /// The template and build a reference names, for `team` (contract: control-plane, section 4.2). Private templates
    /// of others are not found.
    pub async fn resolve(&self, team: &Team, reference: &Reference) -> Result<Template> {
        let template = self.look_up(team, reference).await?;
        if template.is_usable_by(team) {
            Ok(template)
        } else {
            Err(Error::TemplateNotFound(reference.to_string()))
        }
    }

    /// Resolves like [`Templates::resolve`], but reports a private template of another team as forbidden.
    pub async fn resolve_or_forbid(&self, team: &Team, reference: &Reference) -> Result<Template> {
        let template = self.look_up(team, reference).await?;
        if template.is_usable_by(team) {
            Ok(template)
        } else {
            Err(Error::TemplateForbidden(reference.to_string()))
        }
    }

    async fn look_up(&self, team: &Team, reference: &Reference) -> Result<Template> {
        let missing = || Error::TemplateNotFound(reference.to_string());
        let id = self.store.template_id(team, reference).await?.ok_or_else(missing)?;
        let tag = reference.tag();
        self.store
            .template(&id, tag)
            .await?
            .ok_or_else(|| Error::TagNotFound { template: reference.without_tag(), tag: tag.to_owned() })
    }

    /// The template id of a reference, whatever its tag; `None` when the team may use no such template.
    pub async fn find_id(&self, team: &Team, reference: &Reference) -> Result<Option<TemplateId>> {
        self.store.template_id(team, reference).await
    }

    /// The team's own templates and the server's, newest first; no snapshots.
    pub async fn list(&self, team: &Team) -> Result<Vec<Template>> {
        let mut templates = self.store.templates(team).await?;
        templates.retain(|template| !template.build.is_snapshot());
        Ok(templates)
    }

    /// Every build of a template, newest first.
    pub async fn builds(&self, id: &TemplateId) -> Result<Vec<BuildEntry>> {
        self.store.template_builds(id).await
    }

    /// Every tag of a template, newest first.
    pub async fn tags(&self, id: &TemplateId) -> Result<Vec<TagEntry>> {
        self.store.template_tags(id).await
    }
}
