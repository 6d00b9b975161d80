//! Builds that were in progress when the server ended. Their sandboxes were swept, and their finished steps are in the cache.

use super::log::BuildLog;
use super::{Builds, job};
use crate::Result;
use crate::domain::build::{BuildReason, BuildSecrets, LogLevel, UnfinishedBuild};

/// Maximum number of times that a build begins: one that ends the server would do so at each start. Builds that wait for their turn, and
/// those that the server ends because it is stopped itself, do not count.
const MAX_BEGINNINGS: i64 = 2;

/// Starts them again, in the order of their requests.
pub(super) async fn recover(builds: &Builds) -> Result<()> {
    let store = &builds.shared.store;
    for UnfinishedBuild { team, build, spec } in store.unfinished_builds().await? {
        let beginnings = store.beginnings(build).await?;
        if beginnings > MAX_BEGINNINGS {
            let message = format!("the server ended {beginnings} times during the build: build again");
            tracing::error!(build_id = %build, "a build is given up: {message}");
            let log = BuildLog::open(&builds.shared.logs, build);
            log.write(LogLevel::Error, None, format!("Build failed: {message}"));
            store.fail_build(build, &BuildReason { message, step: None }).await?;
            continue;
        }
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
