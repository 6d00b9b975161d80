//! Builds of templates (contract: templates, sections 7-11). A build runs in a sandbox of its own, and what the sandbox writes
//! becomes the template's topmost layer ([decision 17](../../../../docs/decisions/0017-a-build-is-a-sandbox.md)).
//!
//! | part | files |
//! | --- | --- |
//! | a build from its start to its end | `job`, `recover`, `limits`, `failure` |
//! | its phases | `engine`, `base`, `image`, `archived`, `provision`, `interpreter`, `finish`, `started`, `start_log` |
//! | its steps | `steps`, `execute`, `mounts`, `variables`, `keys`, `guest` |
//! | what is kept | `log`, `file_sets`, `in_use`, `collect` |
//! | a template as an archive | `export`, `archived` |

mod archived;
mod base;
mod collect;
mod engine;
mod execute;
mod export;
mod failure;
mod file_sets;
mod finish;
mod guest;
mod image;
mod in_use;
mod interpreter;
mod job;
mod keys;
mod limits;
mod log;
mod mounts;
mod provision;
mod recover;
mod start_log;
mod started;
mod steps;
mod variables;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandcove_host::Host;
use tokio::sync::RwLock;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::domain::build::{BuildSecrets, BuildSpec, LogEntry, LogLevel, RegistryCredentials};
use crate::domain::team::Team;
use crate::fair::FairQueue;
use crate::sandboxes::kept_bytes;
use crate::store::Store;
use crate::templates::Templates;
use crate::{Error, Result};

pub use collect::Garbage;
pub use file_sets::FileSets;
use in_use::InUse;
pub use limits::BuildSettings;
use log::BuildLog;
#[cfg(any(test, fuzzing, debug_assertions))]
pub(crate) use variables::fuzzing;

/// The builds of this server; clones share them.
#[derive(Clone)]
pub struct Builds {
    shared: Arc<Shared>,
}

/// State that all builds share.
struct Shared {
    store: Store,
    host: Host,
    templates: Templates,
    settings: BuildSettings,
    logs: PathBuf,
    file_sets: FileSets,
    turns: FairQueue,
    /// Read by builds and exports in progress; written by a deletion by hand, which takes cached steps that builds may need.
    busy: Arc<RwLock<()>>,
    /// Layers and snapshots that builds and exports in progress use.
    in_use: Arc<InUse>,
    active: Mutex<HashMap<Uuid, Arc<Active>>>,
    /// Layers that nothing used when unused things were last deleted.
    unused_layers: Mutex<HashSet<String>>,
    tasks: TaskTracker,
    stopping: CancellationToken,
}

impl Shared {
    /// The disk that a team's snapshots and templates take, bytes.
    async fn kept_bytes(&self, team: &Team) -> Result<u64> {
        kept_bytes(&self.host, &self.store, team).await
    }
}

/// A build that waits or is in progress.
struct Active {
    log: BuildLog,
    cancelled: CancellationToken,
    why: Mutex<Option<String>>,
}

impl Builds {
    /// Prepares to build. The returned future deletes what is no longer used, for as long as it is polled.
    pub(crate) fn new(
        store: Store,
        host: Host,
        templates: Templates,
        settings: BuildSettings,
    ) -> (Self, impl Future<Output = ()> + use<>) {
        let shared = Shared {
            logs: settings.data_dir.join("builds"),
            file_sets: FileSets::new(settings.data_dir.join("file-sets")),
            turns: FairQueue::with_room_for_others(settings.concurrent),
            store,
            host,
            templates,
            settings,
            busy: Arc::default(),
            in_use: Arc::default(),
            active: Mutex::default(),
            unused_layers: Mutex::default(),
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
        };
        let this = Self { shared: Arc::new(shared) };
        let collector = collect::run(this.shared.clone());
        (this, collector)
    }

    /// Starts again the builds that an earlier server did not finish. Call this once the server's own templates are registered,
    /// and their old layers removed.
    pub(crate) async fn resume(&self) -> Result<()> {
        recover::recover(self).await
    }

    /// Runs a build whose row says that it is in progress. The build waits for its turn, and goes on after a restart of the
    /// server; `credentials` and `secrets` are only in memory.
    pub fn run(
        &self,
        team: Team,
        build: Uuid,
        spec: BuildSpec,
        credentials: Option<RegistryCredentials>,
        secrets: BuildSecrets,
    ) {
        self.begin(job::Order { team, build, spec, credentials, secrets, is_resumed: false });
    }

    fn begin(&self, order: job::Order) {
        let active = Arc::new(Active {
            log: BuildLog::open(&self.shared.logs, order.build),
            cancelled: CancellationToken::new(),
            why: Mutex::default(),
        });
        if self.shared.active().insert(order.build, active.clone()).is_some() {
            tracing::error!(build_id = %order.build, "a build was started twice");
        }
        let shared = self.shared.clone();
        self.shared.tasks.spawn(async move {
            let build = order.build;
            job::run(&shared, order, &active).await;
            shared.active().remove(&build);
        });
    }

    /// The log of a build: at most `limit` entries of `level` or above, from the `offset`th of them.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn log(
        &self,
        build: Uuid,
        offset: usize,
        limit: usize,
        level: Option<LogLevel>,
    ) -> Result<Vec<LogEntry>> {
        let active = self.shared.active().get(&build).cloned();
        if let Some(active) = active {
            return Ok(active.log.page(offset, limit, level));
        }
        let directory = self.shared.logs.clone();
        tokio::task::spawn_blocking(move || log::read(&directory, build, offset, limit, level))
            .await
            .unwrap_or_else(|error| Err(std::io::Error::other(error)))
            .map_err(|source| Error::DataDir { path: self.shared.logs.clone(), source })
    }

    /// Cancels builds that wait or are in progress; the others are ignored. Returns their number. `why` is the reason of those
    /// whose rows have none yet.
    pub fn cancel(&self, builds: &[Uuid], why: &str) -> usize {
        let active = self.shared.active();
        let found: Vec<_> = builds.iter().filter_map(|build| active.get(build)).collect();
        for build in &found {
            build.why().get_or_insert_with(|| why.to_owned());
            build.cancelled.cancel();
        }
        found.len()
    }

    /// Cancels builds whose rows were deleted, and deletes the logs of those that are not in progress. The others' are deleted later, as garbage.
    pub(crate) async fn forget(&self, mut builds: Vec<Uuid>, why: &str) {
        self.cancel(&builds, why);
        {
            let active = self.shared.active();
            builds.retain(|build| !active.contains_key(build));
        }
        let directory = self.shared.logs.clone();
        let deleted = tokio::task::spawn_blocking(move || {
            for build in builds {
                // One that cannot be deleted is garbage.
                let _ = log::delete(&directory, build);
            }
        });
        let _ = deleted.await;
    }

    /// The uploaded files of `COPY` steps.
    pub fn file_sets(&self) -> &FileSets {
        &self.shared.file_sets
    }

    /// Interrupts all builds and removes their sandboxes. The next start of the server runs these builds again.
    pub(crate) async fn stop(&self) {
        self.shared.stopping.cancel();
        self.shared.tasks.close();
        if tokio::time::timeout(limits::STOP_TIMEOUT, self.shared.tasks.wait()).await.is_err() {
            tracing::warn!("stopping with sandboxes of builds left; the next start removes them");
        }
    }
}

impl Shared {
    fn active(&self) -> MutexGuard<'_, HashMap<Uuid, Arc<Active>>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Active {
    fn why(&self) -> MutexGuard<'_, Option<String>> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
