//! Snapshots and forks (contract: control-plane, section 7): files and memory of a running sandbox, for other sandboxes to begin with. What has
//! no memory, because it was not wanted or could not be stored, starts cold.

use std::time::Duration;

use futures_util::future::join_all;
use sandcove_host::Host;
use sandcove_isolate::{Files, crash};
use sandcove_wire::id::{SandboxId, TemplateId};
use uuid::Uuid;

use super::create::CreatePlan;
use super::registry::Registry;
use super::shared::Shared;
use super::view::View;
use crate::domain::lifecycle::{Command, Keep, SnapshotOrder};
use crate::domain::reference::Reference;
use crate::domain::snapshot::Snapshot;
use crate::domain::team::Team;
use crate::domain::template::TemplateRecord;
use crate::store::Store;
use crate::{Error, Result, clock, random};

impl Registry {
    /// Takes a snapshot of the team's sandbox, under `name` if there is one. The snapshot is finished even if the caller
    /// stops waiting.
    pub async fn snapshot(
        &self,
        team: &Team,
        id: &SandboxId,
        name: Option<Reference>,
        keep: Keep,
    ) -> Result<Snapshot> {
        if let Some(namespace) = name.as_ref().and_then(Reference::namespace)
            && namespace != team.slug
        {
            return Err(Error::Refused(format!(
                "the namespace must be '{}', the name of your team",
                team.slug
            )));
        }
        if let Some(name) = name.as_ref().filter(|name| name.build().is_some()) {
            return Err(Error::InvalidTemplateReference(format!("'{name}': the tag is the id of a build")));
        }
        // First, since the caller may have no right to see the sandbox.
        let view = self.view(team, id)?;
        // A snapshot with a name may replace one.
        if name.is_none() && self.shared.store.count_snapshots(team).await? >= i64::from(team.quota.snapshots)
        {
            return Err(too_many_snapshots(team));
        }
        self.check_snapshot_size(team).await?;
        let mut record = TemplateRecord {
            template_id: random::template_id(),
            build_id: Uuid::new_v4(),
            name: name.as_ref().map(|name| name.alias().to_owned()).unwrap_or_default(),
            snapshot_of: Some(id.clone()),
            started: None,
            ..build(&view)?
        };
        let tag = name.as_ref().map_or(Reference::DEFAULT_TAG, Reference::tag).to_owned();
        let (this, team) = (self.clone(), team.clone());
        self.finish(async move {
            let name = record.build_id.to_string();
            let order = SnapshotOrder { name: name.clone(), keep };
            let taken = this.execute(&team, &view.details.id, Command::Snapshot(order)).await?;
            record.memory_bytes = taken.memory_bytes();
            publish(&this.shared, &team, record, tag, &name).await
        })
        .await
    }

    /// Fails when the snapshots of a team hold as much disk as they may. What its sandboxes have written since their last
    /// snapshot counts too, because the next one would keep it.
    async fn check_snapshot_size(&self, team: &Team) -> Result<()> {
        let kept = kept_bytes(&self.shared.host, &self.shared.store, team).await?;
        if kept >= team.max_kept_bytes() {
            return Err(Error::SnapshotsTooLarge(team.quota.snapshots_mib));
        }
        Ok(())
    }

    /// Deletes a snapshot, or one tag of it, with its files. Sandboxes made from it keep theirs.
    ///
    /// # Errors
    /// [`Error::TemplateNotFound`] when the team has no such snapshot.
    pub async fn delete_snapshot(&self, team: &Team, id: &TemplateId, reference: &Reference) -> Result<()> {
        let tag = reference.has_tag().then(|| reference.tag());
        let own =
            self.shared.store.snapshots(team).await?.into_iter().any(|snapshot| snapshot.template_id == *id);
        let dropped = if own { self.shared.store.delete_snapshot(id, tag).await? } else { None };
        let dropped = dropped.ok_or_else(|| Error::TemplateNotFound(reference.to_string()))?;
        drop_files(&self.shared, dropped).await;
        Ok(())
    }

    /// Creates `count` sandboxes that begin with the files and the memory of the team's sandbox, for `timeout` each. A failure to keep the
    /// files is an error of the whole request; after that each sandbox has its own outcome.
    pub async fn fork(
        &self,
        team: &Team,
        id: &SandboxId,
        timeout: Duration,
        count: u32,
    ) -> Result<Vec<Result<View>>> {
        let view = self.view(team, id)?;
        self.check_snapshot_size(team).await?;
        let build = build(&view)?;
        let (this, team) = (self.clone(), team.clone());
        self.finish(async move {
            // No row names these files, so that those of a crashed fork are swept.
            let name = Uuid::new_v4().to_string();
            let order = SnapshotOrder { name: name.clone(), keep: Keep::Memory };
            let taken = this.execute(&team, &view.details.id, Command::Fork(order)).await?;
            let plan = CreatePlan {
                team,
                build,
                files: Files::Snapshot(name.clone()),
                memory: taken.memory_bytes().is_some(),
                timeout,
                on_expiry: view.settings.on_expiry,
                auto_resume: view.details.auto_resume,
                token_policy: view.details.token_policy,
                interpreter_policy: view.details.interpreter_policy,
                legacy: view.details.legacy,
                network: view.settings.network.clone(),
                metadata: view.details.metadata.clone(),
                env_vars: view.details.env_vars.clone(),
                mcp: view.details.mcp.clone(),
                mounts: view.details.mounts.clone(),
                tokens: view.details.tokens.clone(),
            };
            let forks = join_all((0..count).map(|_| this.create(plan.clone()))).await;
            drop_files(&this.shared, [name]).await;
            Ok(forks)
        })
        .await
    }
}

/// The disk that a team's snapshots and templates take, bytes: files that only they have, memory, and layers of images.
///
/// # Errors
/// If the database cannot be read.
pub(crate) async fn kept_bytes(host: &Host, store: &Store, team: &Team) -> Result<u64> {
    // Without simple quotas nobody counts files.
    let files = host.charged_bytes(team.account()).await.unwrap_or_default();
    let (memory, images) = (store.snapshot_memory(team).await?, store.image_bytes(team.id).await?);
    Ok(files.saturating_add(memory).saturating_add(images))
}

/// Stores the row of a snapshot whose files are there, and deletes the files that it replaces.
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
    // A snapshot has to survive a crash of the host.
    shared.store.flush().await?;
    drop_files(shared, replaced).await;
    let TemplateRecord { template_id, name, snapshot_of, memory_bytes, .. } = record;
    Ok(Snapshot {
        template_id,
        name: Some(name).filter(|name| !name.is_empty()),
        tag,
        sandbox: snapshot_of.ok_or(Error::Internal("a snapshot of nothing"))?,
        created_at: clock::now(),
        memory_bytes,
    })
}

fn too_many_snapshots(team: &Team) -> Error {
    Error::TooManyOfTeam { max: team.quota.snapshots as usize, what: "snapshots" }
}

/// Deletes files that no row names; those that cannot be deleted are swept at the next start.
async fn drop_files(shared: &Shared, names: impl IntoIterator<Item = impl ToString>) {
    for name in names {
        let name = name.to_string();
        if let Err(err) = shared.host.delete_snapshot(&name).await {
            tracing::warn!(snapshot = %name, error = ?err, "snapshot was not deleted");
        }
    }
}

fn build(view: &View) -> Result<TemplateRecord> {
    view.details
        .build
        .record()
        .cloned()
        .ok_or(Error::Internal("it is not known what the sandbox is made from"))
}
