//! Restoring a sandbox whose memory is on disk. Until its processes run, nothing has changed, and another attempt is possible; when they
//! run, the generation of a parked sandbox is used up. That of a snapshot stays: any number of sandboxes come from it, also at the same time, and
//! their agents get an identity of their own.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandcove_wire::boot::{Assignment, Renewal, Settings};

use super::host::{Host, blocking};
use super::park::Parking;
use super::prepare;
use super::running::RunningSandbox;
use super::unassigned::{Agent, UnassignedSandbox};
use super::{control, log, process, record};
use crate::checkpoint::{Generations, Manifest, complete, refused};
use crate::jail::{BuildRequest, JailKind, Restore};
use crate::spawner::Launcher;
use crate::{Blueprint, Error, Files, Limits, NetworkPolicy, Record, Result, SandboxSpec, crash};

/// Timeout for the processes to be restored. Memory is read at the speed of the disk.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Memory and processes that the builder and CRIU may use beside the sandbox's own limits while they restore it.
const EXTRA_MEMORY_MIB: u64 = 256;
const EXTRA_PIDS: u32 = 64;

/// The memory that a sandbox is restored from.
#[derive(Debug, Clone)]
enum Source {
    /// Memory of the sandbox itself, from when it was parked.
    Own(String),
    /// Memory of the snapshot of this name.
    Snapshot(String),
}

impl Source {
    fn of(spec: &SandboxSpec) -> Result<Self> {
        match &spec.files {
            Files::Own => Ok(Self::Own(spec.id.to_string())),
            Files::Snapshot(name) => Ok(Self::Snapshot(name.clone())),
            Files::Empty => Err(refused("it begins without files".into())),
        }
    }

    fn generations<'a>(&self, parking: &'a Parking) -> &'a Generations {
        match self {
            Self::Own(_) => &parking.generations,
            Self::Snapshot(_) => &parking.snapshots,
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Own(name) | Self::Snapshot(name) => name,
        }
    }
}

/// Starts a sandbox with the memory that was stored; on an error, what it was to be made from is as before, and all else is cleaned up.
pub(super) async fn restore(host: &Arc<Host>, spec: &SandboxSpec) -> Result<RunningSandbox> {
    let slot = host.slots.take()?;
    let whole = async {
        let running = revive(host, spec, slot, false).await?;
        with(host, move |host, _| {
            host.burners.add(&host.cgroups, slot);
            Ok(())
        })
        .await?;
        if let Files::Snapshot(_) = spec.files {
            renew(host, spec, &running).await?;
        }
        Ok(running)
    };
    or_clean_up(host, spec, slot, whole).await
}

/// Creates a pooled sandbox of `blueprint` from the memory of `snapshot`. Its agent has the identity that it had until it is assigned another.
///
/// # Errors
/// [`Error::NotStored`] also for memory of an earlier version of this program: sandboxes of a template have the present agent.
pub(super) async fn restore_pooled(
    host: &Arc<Host>,
    blueprint: &Blueprint,
    snapshot: &str,
) -> Result<UnassignedSandbox> {
    let slot = host.slots.take()?;
    let spec = SandboxSpec {
        id: prepare::new_name(slot)?,
        blueprint: blueprint.clone(),
        files: Files::Snapshot(snapshot.to_owned()),
        memory: true,
        mounts: Vec::new(),
        network: NetworkPolicy::default(),
        settings: Settings::default(),
    };
    let whole = async {
        let running = revive(host, &spec, slot, true).await?;
        Ok(UnassignedSandbox {
            name: spec.id.clone(),
            slot,
            pid: running.record().pid,
            pooled: true,
            agent: Agent::Restored {
                namespace: running
                    .network()
                    .try_clone()
                    .map_err(|source| Error::Kernel { action: "duplicate a descriptor".into(), source })?,
                template_id: blueprint.boot.template_id.clone(),
            },
        })
    };
    or_clean_up(host, &spec, slot, whole).await
}

/// Waits for a restore for so long; on an error everything is cleaned up.
async fn or_clean_up<T>(
    host: &Arc<Host>,
    spec: &SandboxSpec,
    slot: u32,
    restore: impl Future<Output = Result<T>>,
) -> Result<T> {
    let began = Instant::now();
    let restored = match tokio::time::timeout(TIMEOUT, restore).await {
        Ok(restored) => restored,
        Err(_) => Err(refused(format!("CRIU did not end within {} s", TIMEOUT.as_secs()))),
    };
    match restored {
        Ok(restored) => {
            tracing::debug!(sandbox_id = %spec.id, took = ?began.elapsed(), "sandbox restored from disk");
            Ok(restored)
        }
        Err(error) => {
            if let Err(left) = host.release(&[&spec.id], slot, spec.files.kept_on_failure()).await {
                tracing::error!(sandbox_id = %spec.id, error = &left as &dyn std::error::Error, "failed to clean up after a failed restore");
            }
            if let Ok(source) = Source::of(spec) {
                let _ = source.generations(&host.parking).remove_view(spec.id.as_str());
            }
            Err(match error {
                Error::Jail { step, reason } => refused(format!("{step}: {reason}")),
                // Memory that is not there, or cannot be read.
                Error::Path { action, path, source } if !is_shortage(&source) => {
                    refused(format!("failed to {action} `{}`: {source}", path.display()))
                }
                other => other,
            })
        }
    }
}

/// Has the processes run again, with the limits of the sandbox. One for the pool has the lowest CPU priority.
async fn revive(host: &Arc<Host>, spec: &SandboxSpec, slot: u32, is_pooled: bool) -> Result<RunningSandbox> {
    let source = Source::of(spec)?;
    let (manifest, images) = {
        let (source, spec) = (source.clone(), spec.clone());
        let id_base = host.addresses.id_base(slot);
        with(host, move |host, parking| {
            let generations = source.generations(parking);
            let manifest = generations.check(source.name())?;
            require_fit(host, &spec, &manifest)?;
            let images = generations.view(source.name(), spec.id.as_str(), id_base)?;
            Ok((manifest, images))
        })
        .await?
    };
    // Of the memory itself nothing is parsed: it is checked while CRIU reads it.
    let pages = {
        let (manifest, source) = (manifest.clone(), source.clone());
        with(host, move |_, parking| source.generations(parking).check_pages(&manifest))
    };
    let restored = async {
        let (launcher, record) = begin(host, spec, slot, &manifest, &source, images, is_pooled).await?;
        launcher.finish_restore().await?;
        Ok((launcher, record))
    };
    // Both, whatever becomes of the other: what is under way cannot be cleaned up.
    let (pages, restored) = tokio::join!(pages, restored);
    pages?;
    let (launcher, record) = restored?;
    crash::point("restore.restored");
    let common = {
        let (record, source) = (record.clone(), source.clone());
        // Before the first process runs: a server that finds the memory used up has the processes.
        with(host, move |host, parking| {
            let pids = host.cgroups.pids(slot)?.into_iter().filter_map(|pid| u32::try_from(pid).ok());
            let pids: Vec<u32> = pids.collect();
            let generation = source.generations(parking).published(source.name());
            complete(&pids, &generation)
                .map_err(|error| refused(format!("attributes of its processes: {error}")))?;
            let common = parking.common_of(&generation, &manifest);
            record::write(&host.run_dir(&record.id), &record).map(|()| common)
        })
        .await?
    };
    crash::point("restore.recorded");
    launcher.run_restored().await?;
    crash::point("restore.runs");
    let running = RunningSandbox::open(host.clone(), record)?.ok_or(Error::ProcessGone)?;
    if let Some(common) = common {
        running.set_common(common);
    }
    let limits = spec.blueprint.limits;
    with(host, move |host, _| host.cgroups.limit(slot, &limits)).await?;
    let id = spec.id.clone();
    // Nobody waits for it.
    host.tasks.spawn({
        let host = host.clone();
        async move {
            let used_up = move |_: &Host, parking: &Parking| match source {
                Source::Own(name) => parking.generations.discard(&name),
                Source::Snapshot(_) => parking.snapshots.remove_view(id.as_str()),
            };
            if let Err(error) = with(&host, used_up).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to delete memory that was restored"
                );
            }
        }
    });
    Ok(running)
}

/// Checks that memory can be restored on this host, for this sandbox.
fn require_fit(host: &Host, spec: &SandboxSpec, manifest: &Manifest) -> Result<()> {
    if let Some(difference) = manifest.host.difference(&host.parking.here(String::new())?) {
        return Err(refused(format!("it was stored with {difference}")));
    }
    if !host.programs.has(&manifest.host.programs) {
        return Err(refused("the version of the guest programs that it was stored with is not there".into()));
    }
    let is_started = |snapshot| Some(snapshot) == spec.blueprint.started.as_ref();
    if matches!(&spec.files, Files::Snapshot(snapshot) if is_started(snapshot))
        && manifest.host.programs != host.programs.current()
    {
        return Err(refused("it was stored with another version of the guest programs".into()));
    }
    let layers = |layers: &[PathBuf]| layers.iter().map(|path| in_pool(path).to_owned()).collect::<Vec<_>>();
    if layers(&manifest.layers) != layers(&spec.blueprint.layers) {
        return Err(refused("its template has other layers".into()));
    }
    if manifest.mounts.as_ref().is_some_and(|mounts| *mounts != spec.mounts) {
        return Err(refused("it was stored with other volumes mounted".into()));
    }
    Ok(())
}

/// The part of a layer's path that is the same in every data directory: memory may come from a backup of another one.
fn in_pool(layer: &Path) -> &Path {
    let above = layer.ancestors().find(|above| above.ends_with("pool/layers"));
    above.and_then(|above| layer.strip_prefix(above).ok()).unwrap_or(layer)
}

/// Gives the agent of a sandbox that was restored from a snapshot the identity, token and variables of this sandbox.
async fn renew(host: &Host, spec: &SandboxSpec, running: &RunningSandbox) -> Result<()> {
    let mut settings = spec.settings.clone();
    if !spec.network.hosts.is_empty() {
        settings.ca_bundle = Some(host.vault.authority()?.certificate);
    }
    let template_id = spec.blueprint.boot.template_id.clone();
    let renewal = Renewal { template_id, assignment: Assignment { sandbox_id: spec.id.clone(), settings } };
    let renewed = control::renew(&host.dialer, running.network(), &renewal).await;
    renewed.map_err(|error| refused(format!("its agent did not take its new identity: {error}")))
}

/// Has CRIU begin, up to the existence of the namespaces, and gives them their network.
async fn begin(
    host: &Arc<Host>,
    spec: &SandboxSpec,
    slot: u32,
    manifest: &Manifest,
    source: &Source,
    images: PathBuf,
    is_pooled: bool,
) -> Result<(Launcher, Record)> {
    let limits = spec.blueprint.limits;
    let run_dir = host.run_dir(&spec.id);
    {
        let (run_dir, source, id) = (run_dir.clone(), source.clone(), spec.id.clone());
        with(host, move |host, _| {
            // Before the files: a sweep looks for leftovers of every sandbox that has this directory.
            std::fs::create_dir_all(&run_dir).map_err(prepare::at("create", &run_dir))?;
            if let Source::Snapshot(name) = source {
                host.pool.create_from(&name, &id, limits.disk_mib)?;
            }
            host.cgroups.create(slot)?;
            host.cgroups.limit(slot, &during_restore(limits))?;
            if is_pooled { host.cgroups.set_low_priority(slot, true) } else { Ok(()) }
        })
        .await?;
    }
    let launch = prepare::restored_launch(host, spec, slot, manifest.host.programs.clone());
    let address = host.addresses.guest(slot);
    let former: Ipv4Addr = host.addresses.guest(manifest.slot);
    let request = BuildRequest {
        id_base: host.addresses.id_base(slot),
        kind: JailKind::Sandbox,
        restore: Some(Box::new(Restore {
            generation: match source {
                Source::Own(name) => Some(host.parking.generations.published(name)),
                Source::Snapshot(_) => None,
            },
            images,
            launch,
            former_address: (former != address).then_some(former),
        })),
    };
    let (launcher, builder) = host.spawner.begin(&request, None).await?;
    host.cgroups.attach(slot, builder)?;
    let log = log::create().map_err(|source| Error::Kernel { action: "create a log".into(), source })?;
    let pid = launcher.restore(log.as_fd()).await?;
    if spec.network != NetworkPolicy::default() {
        host.firewall.set(slot, &spec.network).await?;
    }
    host.links.create(&host.addresses.link(slot), pid, host.addresses.gateway(slot)).await?;
    let record = Record {
        id: spec.id.clone(),
        slot,
        pid,
        start_ticks: process::start_ticks(pid).map_err(|_| Error::ProcessGone)?,
        limits,
        network: spec.network.clone(),
        closed_link: false,
        programs: manifest.host.programs.clone(),
    };
    Ok((launcher, record))
}

/// Whether an error says that the host lacks something that it may have later.
fn is_shortage(error: &io::Error) -> bool {
    use io::ErrorKind::{OutOfMemory, QuotaExceeded, StorageFull};
    matches!(error.kind(), OutOfMemory | QuotaExceeded | StorageFull)
        || matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::EAGAIN | libc::EMLINK))
}

fn during_restore(limits: Limits) -> Limits {
    let memory_mib = if limits.memory_mib == 0 { 0 } else { limits.memory_mib + EXTRA_MEMORY_MIB };
    Limits { memory_mib, pids: limits.pids.saturating_add(EXTRA_PIDS), ..limits }
}

/// Runs blocking work that takes generations.
async fn with<T: Send + 'static>(
    host: &Arc<Host>,
    work: impl FnOnce(&Host, &Parking) -> Result<T> + Send + 'static,
) -> Result<T> {
    let host = host.clone();
    blocking(move || work(&host, &host.parking)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_the_same_in_another_data_directory() {
        let of = |path| in_pool(Path::new(path));
        assert_eq!(of("/var/lib/sandcove/pool/layers/t-1/upper"), of("/srv/other/pool/layers/t-1/upper"));
        assert_ne!(of("/srv/pool/layers/base-1"), of("/srv/pool/layers/base-2"));
        assert_eq!(of("base-1"), Path::new("base-1"));
    }
}
