//! Deleting what builds no longer use: cached steps, layers, uploaded files and logs. By schedule it happens beside builds, and what they have
//! looked up stays (see [`super::in_use`]). By hand it takes all that a team has cached, and happens only while no build is in progress.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

use sandcove_host::Sizes;
use sandcove_image::LayerStore;
use uuid::Uuid;

use super::limits::{
    BUSY_TIMEOUT, DELETED_TIME, EXPIRE_POOLED_INTERVAL, SECOND_LOOK, UNUSED_TIME, UNUSED_TIME_WHEN_LARGE,
};
use super::{Builds, Shared, image, log};
use crate::{Error, Result, clock};

/// Deletes what is not used, every now and then.
pub(super) async fn run(shared: Arc<Shared>) {
    let pooled = async {
        loop {
            tokio::time::sleep(EXPIRE_POOLED_INTERVAL).await;
            shared.templates.expire_pooled().await;
        }
    };
    let unused = async {
        loop {
            tokio::time::sleep(shared.settings.collect_interval).await;
            if let Err(error) = collect(&shared).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to delete what builds no longer use"
                );
            }
        }
    };
    tokio::join!(pooled, unused);
}

async fn collect(shared: &Arc<Shared>) -> Result<()> {
    shared.store.expire_builds().await?;
    shared.store.forget_deleted_templates(clock::now() - DELETED_TIME).await?;
    let mut large = Vec::new();
    for team in shared.store.teams_with_caches().await? {
        if is_large(shared, team).await? {
            large.push(team);
        }
    }
    let deleting = shared.in_use.deleting().await;
    let in_use = deleting.in_use();
    let mut snapshots = shared.store.expire_steps(None, clock::now() - UNUSED_TIME, &in_use).await?;
    for team in large {
        let since = clock::now() - UNUSED_TIME_WHEN_LARGE;
        snapshots.extend(shared.store.expire_steps(Some(team), since, &in_use).await?);
    }
    delete_layers(shared, &in_use).await?;
    let mut started = shared.store.unused_started().await?;
    started.retain(|snapshot| !in_use.contains(snapshot));
    drop(deleting);
    // No row names them any more, so that no build can look them up.
    delete_snapshots(shared, snapshots).await;
    delete_started(shared, started).await?;
    for build in log::builds(&shared.logs) {
        if shared.store.build_row(build).await?.is_none() {
            // Deleted meanwhile, or tried again later.
            let _ = log::delete(&shared.logs, build);
        }
    }
    let sets = shared.file_sets.clone();
    let since = SystemTime::now().checked_sub(UNUSED_TIME).unwrap_or(SystemTime::UNIX_EPOCH);
    let _ = tokio::task::spawn_blocking(move || sets.expire(since)).await;
    Ok(())
}

/// Garbage: things that are deleted by hand, or would be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Garbage {
    /// Snapshots of cached steps of the team, with the bytes that nothing else has.
    pub snapshots: Vec<(String, u64)>,
    /// Layers that nothing else names, with the bytes that nothing else has.
    pub layers: Vec<(String, u64)>,
    /// Sizes of uploaded archives of the team that were not used for an hour, bytes.
    pub uploads: Vec<u64>,
}

impl Builds {
    /// Deletes what a team's builds have cached and no template or sandbox needs, and layers that nothing needs. With `is_dry`
    /// nothing is deleted.
    ///
    /// # Errors
    /// When builds are in progress, or the database cannot be read or written.
    pub async fn collect(&self, team: Uuid, is_dry: bool) -> Result<Garbage> {
        let shared = self.shared.clone();
        // Completed even if the client hangs up.
        let collected = tokio::spawn(async move { by_hand(&shared, team, is_dry).await });
        collected.await.unwrap_or(Err(Error::Internal("the task that deletes unused layers ended early")))
    }
}

async fn by_hand(shared: &Arc<Shared>, team: Uuid, is_dry: bool) -> Result<Garbage> {
    let guard = tokio::time::timeout(BUSY_TIMEOUT, shared.busy.write());
    let _guard = guard.await.map_err(|_| Error::BuildsInProgress)?;
    let _deleting = shared.in_use.deleting().await;
    let snapshots = shared.store.step_snapshots_of(team).await?;
    let unused = unused_layers(shared, Some(team)).await?;
    let garbage = measure(shared, team, snapshots, &unused, is_dry).await;
    if is_dry {
        return Ok(garbage);
    }
    let expired = shared.store.expire_steps(Some(team), clock::now(), &HashSet::new()).await?;
    delete_snapshots(shared, expired).await;
    delete_started(shared, shared.store.unused_started().await?).await?;
    if !unused.is_empty() {
        // A sandbox of a deleted template may be starting.
        tokio::time::sleep(SECOND_LOOK).await;
        let still = unused_layers(shared, None).await?;
        remove_layers(shared, unused.intersection(&still)).await;
    }
    let left = unused_layers(shared, None).await?;
    shared.store.forget_image_layers(clock::now(), &left).await?;
    Ok(garbage)
}

/// The sizes of what would be deleted. Uploads are deleted at once, unless `is_dry`.
async fn measure(
    shared: &Arc<Shared>,
    team: Uuid,
    snapshots: Vec<String>,
    unused: &HashSet<String>,
    is_dry: bool,
) -> Garbage {
    let sizes = shared.host.measure(snapshots, unused.clone()).await.unwrap_or_else(|error| {
        tracing::warn!(error = &error as &dyn std::error::Error, "failed to measure what is not used");
        Sizes::default()
    });
    let file_sets = shared.file_sets.clone();
    let uploads = tokio::task::spawn_blocking(move || file_sets.unused(team, !is_dry)).await;
    let Sizes { snapshots, layers } = sizes;
    Garbage { snapshots, layers, uploads: uploads.unwrap_or_default() }
}

/// Whether a team's snapshots and templates take more than half of the disk they may.
async fn is_large(shared: &Shared, team: Uuid) -> Result<bool> {
    let Some(team) = shared.store.team(team).await? else { return Ok(false) };
    Ok(shared.kept_bytes(&team).await? >= team.max_kept_bytes() / 2)
}

/// Deletes states after start commands that no build has. A sandbox that is being made from one boots instead.
pub(super) async fn delete_started(shared: &Shared, snapshots: Vec<String>) -> Result<()> {
    for snapshot in snapshots {
        delete_snapshots(shared, [snapshot.clone()]).await;
        shared.store.forget_started(&snapshot).await?;
    }
    Ok(())
}

/// Deletes snapshots that no row names; those that cannot be deleted are swept at the next start.
pub(super) async fn delete_snapshots(shared: &Shared, names: impl IntoIterator<Item = String>) {
    for name in names {
        if let Err(error) = shared.host.delete_snapshot(&name).await {
            tracing::warn!(snapshot = %name, error = &error as &dyn std::error::Error, "snapshot was not deleted");
        }
    }
}

/// Deletes layers that were not in use the last time either: a sandbox of a deleted template may be starting.
async fn delete_layers(shared: &Shared, in_use: &HashSet<String>) -> Result<()> {
    let unused = &unused_layers(shared, None).await? - in_use;
    let before = {
        let mut unused_layers = shared.unused_layers.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *unused_layers, unused.clone())
    };
    remove_layers(shared, unused.intersection(&before)).await;
    let kept = &unused_layers(shared, None).await? | in_use;
    shared.store.forget_image_layers(clock::now() - UNUSED_TIME_WHEN_LARGE, &kept).await
}

/// Layers of builds and images that no sandbox, template or cached step names, but for what only `except` has cached.
async fn unused_layers(shared: &Shared, except: Option<Uuid>) -> Result<HashSet<String>> {
    let used = shared.store.used_layers(except).await?;
    let used: HashSet<&str> = used.iter().map(|layer| layer.split('/').next().unwrap_or(layer)).collect();
    let is_ours =
        |name: &String| name.starts_with(LayerStore::WRITTEN_PREFIX) || name.starts_with(image::LAYER_PREFIX);
    // Without the names, nothing is deleted.
    let names = shared.host.layer_names().await.unwrap_or_default().into_iter();
    Ok(names.filter(|name| is_ours(name) && !used.contains(name.as_str())).collect())
}

async fn remove_layers(shared: &Shared, layers: impl IntoIterator<Item = &String>) {
    for layer in layers {
        match shared.host.remove_layer(layer).await {
            Ok(()) => tracing::info!(%layer, "removed an unused layer"),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(%layer, error, "failed to remove an unused layer");
            }
        }
    }
}
