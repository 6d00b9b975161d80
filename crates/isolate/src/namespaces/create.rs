//! Starting a sandbox.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::pipe::{PipeFlags, pipe_with};
use sandcove_wire::boot::{Boot, LIBEXEC, WARM_SOURCES};
use tokio::io::Interest;

use super::handle::Leaving;
use super::shells::Shell;
use super::{Handle, Host, process, record};
use crate::spawner::{Kind, Launch, Volume};
use crate::{Error, Files as From, Mount, NetworkPolicy, Record, Result, SandboxSpec, crash};

/// How long an agent may take until it is ready.
const READY_DEADLINE: Duration = Duration::from_secs(30);

/// Starts a sandbox; on an error everything it took is given back.
pub(super) async fn create(host: Arc<Host>, spec: SandboxSpec) -> Result<Handle> {
    let wants_warm = spec.boot.services.iter().any(|service| service.zygote);
    let warm = if wants_warm && !host.pool.replaces(&spec, &WARM_SOURCES) {
        host.warm.get(&spec.layers)
    } else {
        None
    };
    if let Some(spare) = host.spares.take(warm.as_ref()) {
        match start(&host, &spec, spare).await {
            // It died while it waited, for whatever reason: a fresh one will do.
            Err(error @ Error::SpawnerGone) => tracing::warn!(error = %error, "a spare shell was dead"),
            other => return other,
        }
    }
    let fresh = Shell::make(&host, warm).await?;
    start(&host, &spec, fresh).await
}

async fn start(host: &Arc<Host>, spec: &SandboxSpec, shell: Shell) -> Result<Handle> {
    let slot = shell.slot;
    match build(host, spec, shell).await {
        Ok(handle) => Ok(handle),
        Err(error) => {
            // What is left can only be swept later; the cause is what the caller has to know.
            let leaving = match spec.files {
                From::Own => Leaving::Files,
                From::Empty | From::Snapshot(_) => Leaving::Nothing,
            };
            if let Err(left) = host.release(&spec.id, slot, leaving).await {
                tracing::error!(sandbox_id = %spec.id, error = &left as &dyn std::error::Error, "half-made sandbox left behind");
            }
            Err(error)
        }
    }
}

async fn build(host: &Arc<Host>, spec: &SandboxSpec, shell: Shell) -> Result<Handle> {
    let slot = shell.slot;
    let started = Instant::now();
    let files = {
        let (host, spec, zygote) = (host.clone(), spec.clone(), shell.zygote.is_some());
        super::handle::blocking(move || Files::prepare(&host, &spec, slot, zygote))
    };
    let policy = async {
        match spec.network == NetworkPolicy::default() {
            true => Ok(()),
            false => host.firewall.set(slot, &spec.network).await,
        }
    };
    let (files, policy) = tokio::join!(files, policy);
    let files = files?;
    policy?;

    let leased = started.elapsed();
    let pid = shell.pid;
    let record = Record {
        id: spec.id.clone(),
        slot,
        pid,
        start_ticks: process::start_ticks(pid).map_err(|_| Error::SpawnerGone)?,
        limits: spec.limits,
        network: spec.network.clone(),
    };
    crash::point("create.files");
    record::write(&files.run_dir, &record)?;
    let handle = Handle::open(host.clone(), record)?;

    let launch = Launch {
        hostname: spec.boot.hostname.clone(),
        layers: spec.layers.clone(),
        upper: files.upper,
        volumes: spec.mounts.iter().filter_map(|mount| volume(host, mount)).collect(),
        libexec: host.config.libexec.clone(),
        address: Some((host.addresses.guest(slot), host.addresses.gateway(slot))),
        tmpfs_mib: (spec.limits.memory_mib / 2).max(16),
        kind: Kind::Sandbox,
        command: vec![format!("{LIBEXEC}/sandcove-agent")],
    };
    let log = host.pool.agent_log(&spec.id);
    let mut fds = vec![&files.log, &files.control, &files.boot, &files.ready_writer];
    fds.extend(&shell.zygote);
    shell.launch(&launch, &fds.into_iter().map(AsFd::as_fd).collect::<Vec<_>>()).await?;
    drop(files.ready_writer);
    let launched = started.elapsed();
    wait_ready(files.ready, &log).await?;
    crash::point("create.ready");
    let ready = started.elapsed();
    tracing::debug!(sandbox_id = %spec.id, ?leased, ?launched, ?ready, "sandbox started");
    Ok(handle)
}

/// A volume that was deleted while its sandbox had no processes is no longer seen.
fn volume(host: &Host, mount: &Mount) -> Option<Volume> {
    let source = host.pool.volumes().join(&mount.volume).join("content");
    source.exists().then(|| Volume { source, target: mount.path.clone() })
}

/// What the sandbox is handed, and where it keeps its data.
struct Files {
    run_dir: PathBuf,
    upper: PathBuf,
    control: OwnedFd,
    boot: OwnedFd,
    ready: OwnedFd,
    ready_writer: OwnedFd,
    log: OwnedFd,
}

impl Files {
    fn prepare(host: &Host, spec: &SandboxSpec, slot: u32, zygote: bool) -> Result<Self> {
        let upper = match &spec.files {
            From::Empty => host.pool.create(&spec.id, spec.limits.disk_mib)?,
            From::Snapshot(name) => host.pool.create_from(name, &spec.id, spec.limits.disk_mib)?,
            From::Own => host.pool.sandbox(&spec.id),
        };
        host.cgroups.limit(slot, &spec.limits)?;
        let run_dir = host.run_dir(&spec.id);
        std::fs::create_dir(&run_dir).map_err(at("create", &run_dir))?;
        let socket = run_dir.join("control.sock");
        let control = UnixListener::bind(&socket).map_err(at("bind", &socket))?;
        let log = host.pool.agent_log(&spec.id);
        let log = OpenOptions::new().create(true).append(true).open(&log).map_err(at("create", &log))?;
        let (ready, ready_writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
            .map_err(|error| kernel("make a pipe", error.into()))?;

        let mut boot = Boot { zygote, ..spec.boot.clone() };
        if boot.nameservers.is_empty() {
            // The firewall sends questions to the gateway on to the real resolver.
            boot.nameservers = vec![host.addresses.gateway(slot).into()];
        }
        Ok(Self {
            run_dir,
            upper,
            control: control.into(),
            boot: in_memory(
                &serde_json::to_vec(&boot).map_err(|e| kernel("write the boot message", e.into()))?,
            )
            .map_err(|source| kernel("write the boot message", source))?,
            ready,
            ready_writer,
            log: log.into(),
        })
    }
}

/// A file without a name: the boot message holds secrets, which do not belong on disk.
fn in_memory(bytes: &[u8]) -> std::io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("boot", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file.into())
}

/// Waits for the agent's one byte; the end of the pipe without it means that it died.
async fn wait_ready(pipe: OwnedFd, log: &Path) -> Result<()> {
    let started = Instant::now();
    let pipe = crate::sys::watch(pipe).map_err(|source| kernel("watch the ready pipe", source))?;
    let mut byte = [0];
    let read = pipe.async_io(Interest::READABLE, |fd| rustix::io::read(fd, &mut byte).map_err(Into::into));
    match tokio::time::timeout(READY_DEADLINE, read).await {
        Ok(Ok(1)) => Ok(()),
        _ => Err(Error::AgentNotReady { waited_ms: started.elapsed().as_millis() as u64, log: tail(log) }),
    }
}

pub(super) fn tail(log: &Path) -> String {
    const MOST: u64 = 2048;
    let mut text = Vec::new();
    if let Ok(mut file) = File::open(log) {
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let _ = file.seek(SeekFrom::Start(length.saturating_sub(MOST)));
        let _ = file.take(MOST).read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).trim().to_owned()
}

fn at(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Path { action, path, source }
}

fn kernel(action: &str, source: std::io::Error) -> Error {
    Error::Kernel { action: action.to_owned(), source }
}
