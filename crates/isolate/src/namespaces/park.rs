//! Parking a frozen sandbox: its memory goes to disk, for a restore after its processes have ended. Nothing runs on the files of a frozen
//! sandbox, so they are those of the same moment and need no copy.

use std::path::{Path, PathBuf};

use super::host::{Config, blocking};
use super::running::RunningSandbox;
use crate::checkpoint::{self, Generations, Manifest, Subject, dump, refused};
use crate::criu::Program;
use crate::pool::Pool;
use crate::{Result, crash, disk_space};

/// Share of the pool that stays free of memory, percent.
const FREE_PERCENT: u64 = 10;

/// CRIU, if this host has it, and the place of generations.
#[derive(Debug)]
pub(super) struct Parking {
    pub(super) criu: Option<Criu>,
    pub(super) generations: Generations,
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
        let generations = Generations::open(pool.root().join("parked"), &config.data_dir.join("parked.key"))?;
        Ok(Self { criu, generations })
    }

    /// The directory of CRIU.
    pub(super) fn directory(&self) -> Option<PathBuf> {
        self.criu.as_ref().map(|criu| criu.program.directory().to_owned())
    }

    /// Description of this host for manifests, with the version `programs` of the guest programs.
    ///
    /// # Errors
    /// When it has no CRIU.
    pub(super) fn here(&self, programs: String) -> Result<checkpoint::Host> {
        let criu = self.criu()?.version.clone();
        Ok(checkpoint::Host::here(criu, programs))
    }

    fn criu(&self) -> Result<&Criu> {
        self.criu.as_ref().ok_or_else(|| refused("this host has no CRIU".into()))
    }
}

impl RunningSandbox {
    /// Stores the memory of the frozen sandbox and publishes it as its generation; returns its size, bytes. The processes stay as they are:
    /// the caller stores the row and then shuts the sandbox down. `layers` are those of its template.
    ///
    /// # Errors
    /// When the sandbox cannot be stored, or there is no CRIU on this host. There is no generation then.
    pub(crate) async fn park(&self, layers: Vec<PathBuf>) -> Result<u64> {
        let (host, record) = (self.host().clone(), self.record().clone());
        let parking = &host.parking;
        let criu = parking.criu()?;
        let programs = record.programs.clone();
        if programs.is_empty() {
            return Err(refused(
                "it was started by a version of Sandcove that did not note its programs".into(),
            ));
        }
        let begun = parking.generations.begin(&record.id)?;
        let stored = async {
            let memory = host.cgroups.usage(record.slot)?.memory_bytes;
            require_room(host.pool.root(), memory)?;
            let pids = host.cgroups.pids(record.slot)?.into_iter();
            let pids: Vec<u32> = pids.filter_map(|pid| u32::try_from(pid).ok()).collect();
            let subject = Subject {
                pid: record.pid,
                pids: &pids,
                group: host.cgroups.freezer(record.slot)?,
                is_first_version: host.cgroups.is_first_version(),
                network: self.network(),
            };
            dump(&criu.program, &host.dialer, &subject, &begun).await
        };
        let stored = stored.await;
        crash::point("park.dumped");
        let published = match stored {
            Ok(()) => {
                let (host, id) = (host.clone(), record.id.clone());
                // Hundreds of megabytes are read and written to disk.
                blocking(move || {
                    let manifest = Manifest {
                        id,
                        server: env!("CARGO_PKG_VERSION").into(),
                        host: host.parking.here(programs)?,
                        layers,
                        slot: record.slot,
                        images: Default::default(),
                    };
                    host.parking.generations.publish(&begun, manifest)
                })
                .await
            }
            Err(error) => Err(error),
        };
        if published.is_err() {
            // The next attempt begins anew, and a sweep removes what is left.
            let _ = parking.generations.discard(&record.id);
        }
        crash::point("park.published");
        published
    }

    /// Deletes what is on disk of the memory of a sandbox whose processes go on: it is of the past from then on.
    pub(super) fn discard_generation(&self) -> Result<()> {
        self.host().parking.generations.discard(&self.record().id)
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
