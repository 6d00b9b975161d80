//! Builds that were in progress when the server ended. Their sandboxes were swept, and their finished steps are in the cache.

use super::{Builds, job};
use crate::Result;
use crate::domain::build::{BuildSecrets, UnfinishedBuild};

/// Starts them again, in the order of their requests.
pub(super) async fn recover(builds: &Builds) -> Result<()> {
    for UnfinishedBuild { team, build, spec, .. } in builds.shared.store.unfinished_builds().await? {
        tracing::info!(build_id = %build, "a build is started again after a restart");
        builds.begin(job::Order {
            team,
            build,
            spec,
            credentials: None,
            secrets: BuildSecrets::new(),
            is_resumed: true,
        });
    }
    Ok(())
}
