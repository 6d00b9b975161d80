//! Restoring a sandbox whose memory is on disk. Until its processes run, nothing has changed, and another attempt is possible; when they
//! run, its generation is used up.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::host::{Host, Keep, blocking};
use super::park::Parking;
use super::prepare;
use super::running::RunningSandbox;
use super::{log, process, record};
use crate::checkpoint::{Manifest, refused};
use crate::jail::{BuildRequest, JailKind, Restore};
use crate::spawner::Launcher;
use crate::{Error, Limits, NetworkPolicy, Record, Result, SandboxSpec, crash};

/// Timeout for the processes to be restored. Memory is read at the speed of the disk.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Memory and processes that the builder and CRIU may use beside the sandbox's own limits while they restore it.
const EXTRA_MEMORY_MIB: u64 = 256;
const EXTRA_PIDS: u32 = 64;

/// Starts a sandbox with the memory that was stored; on an error its files and its memory are as before, and all else is cleaned up.
pub(super) async fn restore(host: &Arc<Host>, spec: &SandboxSpec) -> Result<RunningSandbox> {
    let slot = host.slots.take()?;
    let began = Instant::now();
    let restored = match tokio::time::timeout(TIMEOUT, try_restore(host, spec, slot)).await {
        Ok(restored) => restored,
        Err(_) => Err(refused(format!("CRIU did not end within {} s", TIMEOUT.as_secs()))),
    };
    match restored {
        Ok(sandbox) => {
            tracing::debug!(sandbox_id = %spec.id, took = ?began.elapsed(), "sandbox restored from disk");
            Ok(sandbox)
        }
        Err(error) => {
            if let Err(left) = host.release(&[&spec.id], slot, Keep::Files).await {
                tracing::error!(sandbox_id = %spec.id, error = &left as &dyn std::error::Error, "failed to clean up after a failed restore");
            }
            let _ = host.parking.generations.remove_view(&spec.id);
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

async fn try_restore(host: &Arc<Host>, spec: &SandboxSpec, slot: u32) -> Result<RunningSandbox> {
    let (manifest, images) = {
        let (id, layers) = (spec.id.clone(), spec.blueprint.layers.clone());
        let id_base = host.addresses.id_base(slot);
        with(host, move |host, parking| {
            let manifest = parking.generations.check(&id)?;
            if let Some(difference) = manifest.host.difference(&parking.here(String::new())?) {
                return Err(refused(format!("it was stored with {difference}")));
            }
            if !host.programs.has(&manifest.host.programs) {
                return Err(refused(
                    "the version of the guest programs that it was stored with is not there".into(),
                ));
            }
            if manifest.layers != layers {
                return Err(refused("its template has other layers".into()));
            }
            let images = parking.generations.view(&id, id_base)?;
            Ok((manifest, images))
        })
        .await?
    };
    // Of the memory itself nothing is parsed: it is checked while CRIU reads it.
    let pages = {
        let manifest = manifest.clone();
        with(host, move |_, parking| parking.generations.check_pages(&manifest))
    };
    let restored = async {
        let (launcher, record) = begin(host, spec, slot, &manifest, images).await?;
        launcher.finish_restore().await?;
        Ok((launcher, record))
    };
    let ((), (launcher, record)) = tokio::try_join!(pages, restored)?;
    crash::point("restore.restored");
    {
        let record = record.clone();
        // Before the first process runs: a server that finds the memory used up has the processes.
        with(host, move |host, _| record::write(&host.run_dir(&record.id), &record)).await?;
    }
    crash::point("restore.recorded");
    launcher.run_restored().await?;
    crash::point("restore.runs");
    let running = RunningSandbox::open(host.clone(), record)?.ok_or(Error::SpawnerGone)?;
    let limits = spec.blueprint.limits;
    with(host, move |host, _| {
        host.cgroups.limit(slot, &limits)?;
        host.burners.add(&host.cgroups, slot);
        Ok(())
    })
    .await?;
    let id = spec.id.clone();
    // Nobody waits for it.
    host.tasks.spawn({
        let host = host.clone();
        async move {
            if let Err(error) = with(&host, move |_, parking| parking.generations.discard(&id)).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to delete memory that was restored"
                );
            }
        }
    });
    Ok(running)
}

/// Has CRIU begin, up to the existence of the namespaces, and gives them their network.
async fn begin(
    host: &Arc<Host>,
    spec: &SandboxSpec,
    slot: u32,
    manifest: &Manifest,
    images: std::path::PathBuf,
) -> Result<(Launcher, Record)> {
    let limits = spec.blueprint.limits;
    let run_dir = host.run_dir(&spec.id);
    {
        let run_dir = run_dir.clone();
        with(host, move |host, _| {
            std::fs::create_dir_all(&run_dir).map_err(prepare::at("create", &run_dir))?;
            host.cgroups.create(slot)?;
            host.cgroups.limit(slot, &during_restore(limits))
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
            generation: host.parking.generations.published(&spec.id),
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
        start_ticks: process::start_ticks(pid).map_err(|_| Error::SpawnerGone)?,
        limits,
        network: spec.network.clone(),
        programs: manifest.host.programs.clone(),
    };
    Ok((launcher, record))
}

/// Whether an error says that the host lacks something that it may have later.
fn is_shortage(error: &io::Error) -> bool {
    use io::ErrorKind::{OutOfMemory, QuotaExceeded, StorageFull};
    matches!(error.kind(), OutOfMemory | QuotaExceeded | StorageFull)
        || matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::EAGAIN))
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
