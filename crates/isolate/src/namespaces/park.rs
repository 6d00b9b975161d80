//! The memory of a frozen sandbox goes to disk. When it is parked, its processes end then: nothing runs on its files before the restore, so
//! they are those of the same moment and need no copy. For a snapshot, files are copied in the same freeze, and the sandbox goes on.

use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::host::{Config, blocking};
use super::prepare::at;
use super::running::RunningSandbox;
use crate::checkpoint::{
    self, Common, Comparison, DumpSource, Found, Generations, Manifest, NewGeneration, dump, refused,
};
use crate::criu::Program;
use crate::pool::Pool;
use crate::{Error, Mounted, Result, crash, disk_space};

/// Share of the pool that stays free of memory, percent.
const FREE_PERCENT: u64 = 10;
/// How long processes go on that cannot be stored, before they are looked at once more: most are in the middle of something then, as a browser
/// whose processes send each other files.
const MOMENTS: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(40), Duration::from_millis(160)];
/// Time for all looks, after which there is no other.
const LOOKS_TIME: Duration = Duration::from_secs(1);

/// CRIU, if this host has it, and the places of generations.
#[derive(Debug)]
pub(super) struct Parking {
    pub(super) criu: Option<Criu>,
    /// Generations of parked sandboxes.
    pub(super) generations: Generations,
    /// Generations of snapshots.
    pub(super) snapshots: Generations,
    /// Directory of memory that sandboxes have in common, and how many there have been.
    common: PathBuf,
    common_count: AtomicU64,
    /// The file in which CRIU keeps what it knows of the kernel.
    cache: PathBuf,
}

/// A CRIU that can be run.
#[derive(Debug)]
pub(super) struct Criu {
    program: Program,
    version: String,
}

impl Parking {
    /// Opens the place of generations, and looks for CRIU.
    pub(super) fn open(config: &Config, pool: &Pool) -> Result<Self> {
        let criu = config.criu.as_deref().and_then(|directory| {
            let program = Program::at(directory);
            match program.version() {
                Ok(version) => Some(Criu { program, version }),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "memory is not stored on disk: CRIU cannot be run");
                    None
                }
            }
        });
        let key = config.data_dir.join("parked.key");
        let generations = Generations::open(pool.root().join("parked"), &key)?;
        let snapshots = Generations::open(pool.root().join("snapshot-memory"), &key)?.checked_once();
        let common = pool.root().join("common-memory");
        // Of an earlier server: generations have links of their own.
        match std::fs::remove_dir_all(&common) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(at("delete", &common)(error));
            }
            _ => DirBuilder::new().mode(0o700).create(&common).map_err(at("create", &common))?,
        }
        // It goes with the rest: the kernel may be another one.
        let cache = common.join("criu.kdat");
        Ok(Self { criu, generations, snapshots, common, common_count: AtomicU64::new(0), cache })
    }

    /// A name that does not exist yet, for memory that sandboxes have in common.
    fn new_common(&self) -> PathBuf {
        self.common.join(self.common_count.fetch_add(1, Ordering::Relaxed).to_string())
    }

    /// The memory that the sandbox of a generation has in common with others.
    pub(super) fn common_of(&self, generation: &Path, manifest: &Manifest) -> Option<Arc<Common>> {
        let common = Common::of_generation(generation, &manifest.common, self.new_common());
        match common {
            Ok(common) => common.map(Arc::new),
            Err(error) => {
                tracing::debug!(%error, generation = %generation.display(), "common memory was not found");
                None
            }
        }
    }

    /// Versions of the guest programs that memory on disk needs.
    pub(super) fn programs(&self) -> BTreeSet<String> {
        let mut programs = self.generations.programs();
        programs.extend(self.snapshots.programs());
        programs
    }

    /// The directory of CRIU.
    pub(super) fn directory(&self) -> Option<PathBuf> {
        self.criu.as_ref().map(|criu| criu.program.directory().to_owned())
    }

    /// Description of this host for manifests, with the version `programs` of the guest programs.
    ///
    /// # Errors
    /// When it has no CRIU.
    pub(super) fn here(&self, programs: String) -> Result<checkpoint::HostFacts> {
        let criu = self.criu()?.version.clone();
        Ok(checkpoint::HostFacts::here(criu, programs))
    }

    fn criu(&self) -> Result<&Criu> {
        self.criu.as_ref().ok_or_else(|| refused("this host has no CRIU".into()))
    }
}

impl RunningSandbox {
    /// Stores the memory of the frozen sandbox and publishes it as its generation; returns its size, which is at most `max_bytes`. The
    /// processes stay as they are: the caller stores the row and then shuts the sandbox down.
    ///
    /// # Errors
    /// When the sandbox cannot be stored, or there is no CRIU on this host. There is no generation then.
    pub(crate) async fn park(&self, mounted: Mounted, max_bytes: u64) -> Result<u64> {
        let (host, name) = (self.host().clone(), self.record().id.to_string());
        let generations = &host.parking.generations;
        let max_bytes = max_bytes.min(self.record().limits.max_stored_bytes());
        let stored = match self.comparison(&mounted.layers, false).await {
            Ok(common) => self.dump(generations, &name, common, max_bytes, false).await,
            Err(error) => Err(error),
        };
        crash::point("park.dumped");
        let published = match stored {
            Ok(begun) => {
                let (host, manifest) = (host.clone(), self.manifest(name.clone(), mounted)?);
                // Hundreds of megabytes are read and written to disk.
                let publish =
                    move || host.parking.generations.publish(&begun, manifest, max_bytes, "park.written");
                blocking(publish).await
            }
            Err(error) => Err(error),
        };
        if published.is_err() {
            // The next attempt begins anew, and a sweep removes what is left.
            let _ = generations.discard(&name);
        }
        crash::point("park.published");
        published
    }

    /// Has CRIU store the memory of the frozen sandbox, `max_bytes` at most, in a new directory below `name`. It may have memory in `common` with others.
    pub(super) async fn dump(
        &self,
        generations: &Generations,
        name: &str,
        common: Option<Comparison>,
        max_bytes: u64,
        goes_on: bool,
    ) -> Result<NewGeneration> {
        let (host, record) = (self.host(), self.record());
        let criu = host.parking.criu()?;
        if record.programs.is_empty() {
            return Err(refused(
                "it was started by a version of Sandcove that did not note its programs".into(),
            ));
        }
        let mut begun = generations.begin(name)?;
        let memory = host.cgroups.usage(record.slot)?.memory_bytes;
        require_room(host.pool.root(), memory)?;
        let source = DumpSource {
            found: self.found(begun.path(), goes_on).await?,
            group: host.cgroups.freezer(record.slot)?,
            network: self.network(),
            max_bytes,
            cache: &host.parking.cache,
            common,
            may_skip: goes_on,
        };
        dump(&criu.program, &host.dialer, source, &mut begun).await?;
        Ok(begun)
    }

    /// Looks at the frozen processes, whose images go to `directory`. Where they cannot be stored, they go on for a few moments, and are looked at
    /// after each: once in a pause, and always when the sandbox `goes_on` anyway.
    async fn found(&self, directory: &Path, goes_on: bool) -> Result<Found> {
        let (host, pid, slot) = (self.host().clone(), self.record().pid, self.record().slot);
        let (this, directory) = (self.clone(), directory.to_owned());
        // On a thread of its own to the end: a paused sandbox does not stay thawed.
        blocking(move || {
            let look = || {
                let pids = host.cgroups.pids(slot)?.into_iter();
                let pids = pids.filter_map(|pid| u32::try_from(pid).ok()).collect();
                Found::look(pid, pids, host.cgroups.is_first_version(), &directory)
            };
            let (began, mut found) = (Instant::now(), look());
            let is_refused = |found: &Result<Found>| matches!(found, Err(Error::NotStored { .. }));
            if is_refused(&found) && (goes_on || this.may_go_on()) {
                for moment in MOMENTS {
                    let thawed = host.cgroups.freeze(slot, false);
                    std::thread::sleep(moment);
                    // Also when only some were thawed.
                    host.cgroups.freeze(slot, true)?;
                    found = thawed.and_then(|()| look());
                    if !is_refused(&found) || began.elapsed() > LOOKS_TIME {
                        break;
                    }
                }
            }
            found
        })
        .await
    }

    /// A comparison with the memory that the sandbox has in common with others: what it was restored with, or the memory of the warm process of its
    /// layers. For one that still runs, as much as possible is compared now.
    pub(super) async fn comparison(&self, layers: &[PathBuf], runs: bool) -> Result<Option<Comparison>> {
        let (host, restored) = (self.host().clone(), self.common());
        if host.parking.criu.is_none() {
            return Ok(None);
        }
        let warm = host.warm_processes.get(layers);
        blocking(move || {
            let stored = || {
                let warm = warm?;
                warm.common(|| {
                    let memory = host.cgroups.usage(warm.slot).ok()?.memory_bytes;
                    require_room(host.pool.root(), memory).ok()?;
                    Some((host.parking.new_common(), memory))
                })
            };
            let common = restored.or_else(stored).filter(|common| common.has_room());
            let comparison = common.map(Comparison::new);
            Ok(comparison.map(|comparison| if runs { comparison.prepare() } else { comparison }))
        })
        .await
    }

    /// The manifest of memory of this sandbox.
    pub(super) fn manifest(&self, name: String, mounted: Mounted) -> Result<Manifest> {
        let record = self.record();
        Ok(Manifest {
            id: name,
            server: env!("CARGO_PKG_VERSION").into(),
            host: self.host().parking.here(record.programs.clone())?,
            layers: mounted.layers,
            mounts: Some(mounted.volumes),
            slot: record.slot,
            images: Default::default(),
            common: Default::default(),
        })
    }

    /// Deletes what is on disk of the memory of a sandbox whose processes go on: it is of the past from then on.
    pub(super) fn discard_generation(&self) -> Result<()> {
        self.host().parking.generations.discard(self.record().id.as_str())
    }
}

/// Checks that the pool has room for memory, so that it is not full for those who need it to go on.
fn require_room(pool: &Path, bytes: u64) -> Result<()> {
    let space = disk_space(pool)?;
    let free = space.total_bytes.saturating_sub(space.used_bytes);
    let kept = space.total_bytes / 100 * FREE_PERCENT;
    if free > bytes.saturating_add(kept) {
        return Ok(());
    }
    Err(refused(format!(
        "it needs {} MiB, and the storage pool has {} MiB free, of which {} MiB stay free",
        bytes >> 20,
        free >> 20,
        kept >> 20
    )))
}
