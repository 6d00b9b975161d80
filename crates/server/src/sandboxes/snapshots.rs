//! Snapshots and forks (contract: control-plane, section 7): what a running sandbox wrote, for others to begin with. Memory
//! is in neither; what begins with them starts cold.

use futures_util::future::join_all;
use jiff::Timestamp;
use sandcove_isolate::{Files, crash};
use sandcove_wire::id::{SandboxId, TemplateId};
use uuid::Uuid;

use super::create::{CreatePlan, Token};
use super::record::View;
use super::registry::{Registry, Shared};
use super::request::Request;
use crate::teams::Team;
use crate::templates::{Reference, TemplateRecord};
use crate::{Error, Result, random};

/// A snapshot, as one of its tags names it.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Stable over snapshots of the same name.
    pub template_id: TemplateId,
    /// Without namespace; none when it was not given one.
    pub name: Option<String>,
    /// The tag.
    pub tag: String,
    /// What it was taken of.
    pub sandbox: SandboxId,
    /// When.
    pub created_at: Timestamp,
}

impl Snapshot {
    /// What sandboxes are made from it with.
    pub fn id(&self, team: &Team) -> String {
        match &self.name {
            Some(name) => format!("{}/{name}:{}", team.slug, self.tag),
            None => format!("{}:{}", self.template_id, self.tag),
        }
    }

    /// Its name with namespace, if it has one; the tag only when it is not the one that goes without saying.
    pub fn names(&self, team: &Team) -> Vec<String> {
        let name = self.name.as_ref().map(|name| format!("{}/{name}", team.slug));
        let tagged =
            |name| if self.tag == Reference::DEFAULT_TAG { name } else { format!("{name}:{}", self.tag) };
        name.map(tagged).into_iter().collect()
    }
}

impl Registry {
    /// Keeps what the team's sandbox has written, under `name` if there is one. It is made to the end even if the caller
    /// stops waiting.
    pub async fn snapshot(&self, team: &Team, id: &SandboxId, name: Option<Reference>) -> Result<Snapshot> {
        if let Some(namespace) = name.as_ref().and_then(Reference::namespace)
            && namespace != team.slug
        {
            return Err(Error::Refused(format!(
                "the namespace must be '{}', the name of your team",
                team.slug
            )));
        }
        // Before anything is done for it: the caller must see the sandbox.
        let view = self.view(team, id)?;
        let record = TemplateRecord {
            template_id: random::template_id(),
            build_id: Uuid::new_v4(),
            name: name.as_ref().map(|name| name.alias().to_owned()).unwrap_or_default(),
            snapshot_of: Some(id.clone()),
            ..build(&view)?
        };
        let tag = name.as_ref().map_or(Reference::DEFAULT_TAG, Reference::tag).to_owned();
        let (this, team) = (self.clone(), team.clone());
        self.finish(async move {
            let name = record.build_id.to_string();
            this.ask(&team, &view.details.id, Request::Snapshot(name.clone())).await?;
            publish(&this.shared, &team, record, tag, &name).await
        })
        .await
    }

    /// Forgets a snapshot, or one tag of it, and its files. Sandboxes made from it keep theirs.
    ///
    /// # Errors
    /// [`Error::TemplateNotFound`] when the team has none of that name.
    pub async fn delete_snapshot(&self, team: &Team, id: &TemplateId, reference: &Reference) -> Result<()> {
        let tag = reference.has_tag().then(|| reference.tag());
        let own =
            self.shared.store.snapshots(team).await?.into_iter().any(|snapshot| snapshot.template_id == *id);
        let dropped = if own { self.shared.store.delete_snapshot(id, tag).await? } else { None };
        let dropped = dropped.ok_or_else(|| Error::TemplateNotFound(reference.to_string()))?;
        drop_files(&self.shared, dropped).await;
        Ok(())
    }

    /// Makes `count` sandboxes that begin with what the team's sandbox has written, for `timeout` each. The first error is
    /// that of all; then each has its own.
    pub async fn fork(
        &self,
        team: &Team,
        id: &SandboxId,
        timeout: std::time::Duration,
        count: u32,
    ) -> Result<Vec<Result<View>>> {
        let view = self.view(team, id)?;
        let build = build(&view)?;
        let (this, team) = (self.clone(), team.clone());
        self.finish(async move {
            // Known to no row: files that a crash leaves are swept.
            let name = Uuid::new_v4().to_string();
            this.ask(&team, &view.details.id, Request::Fork(name.clone())).await?;
            let plan = CreatePlan {
                team,
                build,
                files: Files::Snapshot(name.clone()),
                timeout,
                on_expiry: view.settings.on_expiry,
                auto_resume: view.details.auto_resume,
                token: if view.details.token_required { Token::Required } else { Token::Optional },
                network: view.settings.network.clone(),
                metadata: view.details.metadata.clone(),
                env_vars: view.details.env_vars.clone(),
                mcp: view.details.mcp.clone(),
                mounts: view.details.mounts.clone(),
            };
            let forks = join_all((0..count).map(|_| this.create(plan.clone()))).await;
            drop_files(&this.shared, [name]).await;
            Ok(forks)
        })
        .await
    }
}

async fn publish(
    shared: &Shared,
    team: &Team,
    mut record: TemplateRecord,
    tag: String,
    name: &str,
) -> Result<Snapshot> {
    let written = shared.store.insert_snapshot(team, &mut record, &tag).await;
    crash::point("snapshot.recorded");
    let replaced = match written {
        Ok(replaced) => replaced,
        Err(error) => {
            drop_files(shared, [name]).await;
            return Err(error);
        }
    };
    // A snapshot is to outlive the host.
    shared.store.flush().await?;
    drop_files(shared, replaced).await;
    let TemplateRecord { template_id, name, snapshot_of, .. } = record;
    Ok(Snapshot {
        template_id,
        name: Some(name).filter(|name| !name.is_empty()),
        tag,
        sandbox: snapshot_of.ok_or(Error::Internal("a snapshot of nothing"))?,
        created_at: crate::clock::now(),
    })
}

/// Deletes files that no row speaks of; what is left of them is swept at the next start.
async fn drop_files(shared: &Shared, names: impl IntoIterator<Item = impl ToString>) {
    for name in names {
        let name = name.to_string();
        if let Err(err) = shared.backend.delete_snapshot(&name).await {
            tracing::warn!(snapshot = %name, error = ?err, "snapshot was not deleted");
        }
    }
}

fn build(view: &View) -> Result<TemplateRecord> {
    view.details.build.clone().ok_or(Error::Internal("it is not known what the sandbox is made from"))
}
