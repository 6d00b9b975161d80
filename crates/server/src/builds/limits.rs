//! Limits of builds (contract: templates, section 11).

use std::path::PathBuf;
use std::time::Duration;

use crate::config::Registries;

/// Maximum number of steps of a build.
pub(super) const MAX_STEPS: usize = 1000;
/// Maximum number of layers of a template: the options of an overlay mount have room for about 25.
pub(super) const MAX_LAYERS: usize = 20;
/// Time for which unused steps, images and uploaded files are kept.
pub(super) const UNUSED_TIME: Duration = Duration::from_secs(7 * 24 * 3600);
/// Time for which they are kept for a team whose snapshots and templates take more than half of the disk they may.
pub(super) const UNUSED_TIME_WHEN_LARGE: Duration = Duration::from_secs(3600);
/// Time for which no template gets the id of a deleted one as its name.
pub(super) const DELETED_TIME: Duration = Duration::from_secs(30 * 24 * 3600);
/// Time for which a deletion by hand waits for the end of builds and exports. New ones wait meanwhile.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// Time between the two looks at a layer that is deleted by hand: whoever looked up its template before has mounted it by then.
pub(super) const SECOND_LOOK: Duration = Duration::from_secs(5);
/// Interval at which pooled sandboxes of templates that nobody uses are given back.
pub(super) const EXPIRE_POOLED_INTERVAL: Duration = Duration::from_secs(30);
/// Time that a stop of the server waits for the end of builds and their sandboxes.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Settings of builds.
#[derive(Debug, Clone)]
pub struct BuildSettings {
    /// Data directory of the server, for logs and uploaded files.
    pub data_dir: PathBuf,
    /// Builds in progress at once; further ones wait, and teams take turns.
    pub concurrent: usize,
    /// Maximum duration of a build, without the time it waits.
    pub timeout: Duration,
    /// Interval at which unused things are deleted.
    pub collect_interval: Duration,
    /// Registries of images.
    pub registries: Registries,
}
