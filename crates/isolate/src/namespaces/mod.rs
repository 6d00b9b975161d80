//! The real backend: Linux namespaces, cgroups, overlayfs, veth and nftables.
//!
//! | part | files |
//! | --- | --- |
//! | resources that sandboxes share | `host`, `slots`, `programs`, `kernel_settings` |
//! | start: take or create an unassigned sandbox, then assign it | `create`, `prepare`, `unassigned` |
//! | what is kept ahead of starts | `sandbox_pool`, `demand` and `refill`, `warm`, `warm_priority` and `keep_warm` |
//! | a running sandbox | `running`, `suspend`, `park` and `restore`, `control`, `record`, `process`, `log`, `burners` |
//! | after a crash, and before a stop | `adopt`, `sweep`, `purge` |

mod adopt;
mod burners;
mod control;
mod create;
mod demand;
mod host;
mod keep_warm;
pub(crate) mod kernel_settings;
mod log;
mod park;
mod prepare;
mod process;
mod programs;
mod purge;
mod record;
mod refill;
mod restore;
mod running;
mod sandbox_pool;
mod slots;
mod suspend;
mod sweep;
mod unassigned;
mod warm;
mod warm_priority;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sandcove_wire::id::SandboxId;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cgroup::Cgroups;
use crate::instance::Instance;
use crate::net::{Addresses, Dialer, EgressSetup, Firewall, Links};
use crate::pool::Pool;
use crate::secrets::Vault;
use crate::spawner::{Spawner, SpawnerConfig};
use crate::{
    Blueprint, Error, Few, Files, Known, PoolState, Result, SandboxSpec, StartPhase, SweepReport, Unpackers,
    WarmState, crash, precedence,
};

use burners::Burners;
pub use host::Config;
use host::{Host, blocking};
pub use log::create as create_log;
use park::Parking;
use prepare::Purpose;
use programs::Programs;
pub use purge::{Extent, purge};
pub use running::RunningSandbox;
use sandbox_pool::SandboxPool;
use slots::Slots;
use unassigned::UnassignedSandbox;
use warm::{WarmProcesses, WarmSpec};

/// Slots beyond the maximum number of sandboxes, for pooled sandboxes and warm processes.
const EXTRA_SLOTS: u32 = 64;

/// The namespaces backend. Clones share everything.
#[derive(Clone)]
pub struct Namespaces {
    host: Arc<Host>,
}

/// A sandbox for the pool that is not in it. Dropping it releases it.
pub struct PreparedSandbox {
    backend: Namespaces,
    sandbox: Option<UnassignedSandbox>,
}

impl Drop for PreparedSandbox {
    fn drop(&mut self) {
        if let Some(sandbox) = self.sandbox.take() {
            let host = self.backend.host.clone();
            self.backend.spawn(async move { host.discard(sandbox).await });
        }
    }
}

impl Namespaces {
    /// Prepares the host: mounts the pool, installs the firewall, starts the spawner. Sandboxes of an earlier server are not
    /// touched; adopt them, then sweep. The paths of `config` are absolute and without symbolic links.
    ///
    /// # Errors
    /// When a step fails. The steps before it are undone, unless an earlier server's sandboxes need them.
    pub async fn start(config: Config) -> Result<Self> {
        let instance = Instance::claim(&config.data_dir, purge::in_use)?;
        let (number, data_dir) = (instance.number(), config.data_dir.clone());
        let started = Self::start_as(config, instance).await;
        if started.is_err()
            && let Ok(cgroups) = Cgroups::find(&purge::group_name(number))
        {
            purge::remove_shared(&data_dir, number, &cgroups, &mut SweepReport::default()).await;
        }
        started
    }

    async fn start_as(config: Config, instance: Instance) -> Result<Self> {
        require_descriptors()?;
        // Users of sandboxes pass through directories that are made here, such as the root of their files. Services are often started with a
        // strict mask; what is secret has its mode from its creation on.
        rustix::process::umask(rustix::fs::Mode::WGRP | rustix::fs::Mode::WOTH);
        let number = instance.number();
        let addresses = Addresses::new(&config.network, number)?;
        let run = config.data_dir.join("run");
        std::fs::create_dir_all(&run).map_err(|source| Error::Path {
            action: "create",
            path: run.clone(),
            source,
        })?;
        precedence::protect_from_oom();
        // Before the control groups, which share out what these settings make room for.
        kernel_settings::apply();
        let pool = Pool::open(&config.data_dir, config.pool_size_gib)?;
        let cgroups = Cgroups::open(&purge::group_name(number))?;
        let memory_bytes = cgroups.reserve().unwrap_or_else(|error| {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "failed to reserve a part of the host for the server"
            );
            0
        });
        let links = Links::open()?;
        let slots = config.max_sandboxes + EXTRA_SLOTS;
        let vault = Vault::of(&config.data_dir);
        let egress =
            EgressSetup::new(&config.program, config.egress_account, config.log_refused_calls, vault.clone())
                .map_err(|source| Error::Path { action: "open", path: config.program.clone(), source })?
                .with_json(config.log_json);
        let mut records = record::all(&run);
        // Before the egress proxies get the rules.
        record::renew_secrets(&run, &mut records, &vault)?;
        let firewall =
            Firewall::install(number, addresses, config.dns.clone(), slots, egress, &records).await?;
        let dialer =
            Dialer::start().map_err(|source| Error::Kernel { action: "start a thread".into(), source })?;
        let parking = Parking::open(&config, &pool)?;
        let mut needed = parking.programs();
        needed.extend(records.into_iter().map(|record| record.programs));
        let programs = Programs::open(&config.libexec, &needed)?;
        crash::point("start.prepared");
        // After the pool is mounted: the spawner keeps a mount of its own.
        let spawner = Spawner::start(SpawnerConfig {
            program: config.program.clone(),
            pool: pool.root().to_owned(),
            programs: programs.directories().map(Path::to_owned).collect(),
            criu: parking.directory(),
            log_refused_calls: config.log_refused_calls,
        })?;
        tracing::debug!(instance = number, spawner = spawner.pid(), network = %addresses.range(), "backend ready");
        let unpackers = Unpackers::new(&config.program, config.log_refused_calls)
            .map_err(|source| Error::Kernel { action: "prepare to unpack images".into(), source })?;
        raise_descriptor_limit();
        let slots = Slots::new(slots);
        let pool_bytes = memory_bytes / 100 * u64::from(config.pool_memory_percent);
        let sandbox_pool = SandboxPool::new(config.pooled_sandboxes, pool_bytes);
        let host = Host {
            config,
            addresses,
            pool,
            cgroups,
            firewall,
            vault,
            links,
            dialer,
            spawner,
            unpackers,
            slots,
            burners: Burners::default(),
            warm_processes: WarmProcesses::default(),
            sandbox_pool,
            parking,
            programs,
            pool_started: AtomicBool::new(false),
            number,
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
            _instance: instance,
        };
        let this = Self { host: Arc::new(host) };
        this.spawn(burners::watch(Arc::downgrade(&this.host)));
        Ok(this)
    }

    pub(crate) fn unpackers(&self) -> Unpackers {
        self.host.unpackers.clone()
    }

    pub(crate) async fn is_reachable(&self, host: &str) -> Result<bool> {
        self.host.firewall.is_reachable(host).await
    }

    pub(crate) fn vault(&self) -> &Vault {
        &self.host.vault
    }

    pub(crate) async fn create(
        &self,
        spec: SandboxSpec,
        log: Option<File>,
    ) -> Result<(RunningSandbox, Vec<StartPhase>)> {
        let host = self.host.clone();
        // A task of its own makes this call safe to cancel: a future that is dropped midway would leave a slot, a
        // control group and half a sandbox behind. The server's task around this call guards what follows it, the row,
        // the idempotency key and the driver, which a client that hangs up must not prevent.
        let task = tokio::spawn(async move {
            let mut phases = Vec::new();
            create::create(host, spec, log.as_ref(), &mut phases).await.map(|running| (running, phases))
        });
        match task.await {
            Ok(result) => result,
            Err(error) => Err(Error::Kernel {
                action: "run the creation task".into(),
                source: std::io::Error::other(error.to_string()),
            }),
        }
    }

    /// Creates a sandbox for the pool and waits until it is ready.
    pub(crate) async fn prepare(&self, blueprint: Blueprint, log: Option<File>) -> Result<PreparedSandbox> {
        let this = self.clone();
        // A task of its own, as in `create`.
        let task = tokio::spawn(async move {
            let sandbox = prepare::prepare(&this.host, Purpose::Proof(&blueprint), log.as_ref()).await?;
            Ok(PreparedSandbox { backend: this, sandbox: Some(sandbox) })
        });
        match task.await {
            Ok(result) => result,
            Err(error) => Err(Error::Kernel {
                action: "run the task that prepares a sandbox".into(),
                source: std::io::Error::other(error.to_string()),
            }),
        }
    }

    /// With `few`, what is kept has these maxima. `first` is put into the pool.
    pub(crate) fn keep_ready(&self, blueprint: Blueprint, few: Option<Few>, first: Option<PreparedSandbox>) {
        let (max, memory_mib) = (few.map(|few| few.sandboxes), few.map(|few| few.warm_mib));
        let spec = WarmSpec::of(&blueprint, memory_mib);
        if blueprint.wants_warm()
            && spec.limits.memory_mib > 0
            && let Some(keeping) = self.host.warm_processes.begin(&spec)
        {
            self.spawn(keep_warm::keep(self.host.clone(), spec, keeping));
        }
        let own = max.is_some().then(|| blueprint.clone());
        let is_new = self.host.sandbox_pool.add(blueprint.clone(), max);
        // Without room for it, it is released as `first` is dropped. Put before the bucket is filled.
        if let Some(mut first) = first
            && self.host.sandbox_pool.is_missing(&blueprint, false) == Some(true)
            && let Some(sandbox) = first.sandbox.take()
        {
            let memory = refill::memory_of(&self.host, &sandbox);
            first.sandbox = self.host.sandbox_pool.put(&blueprint, sandbox, memory);
        }
        if let Some(own) = own.filter(|_| is_new) {
            self.spawn(refill::keep_own_filled(Arc::downgrade(&self.host), own));
        }
    }

    pub(crate) fn is_ready(&self, blueprint: &Blueprint) -> bool {
        let Host { sandbox_pool, warm_processes, .. } = &*self.host;
        sandbox_pool.has(blueprint)
            && (!blueprint.wants_warm() || warm_processes.get(&blueprint.layers).is_some())
    }

    pub(crate) fn pool_states(&self) -> Vec<PoolState> {
        self.host.sandbox_pool.states()
    }

    pub(crate) fn warm_state(&self, layers: &[PathBuf]) -> Option<(WarmState, u64)> {
        self.host.warm_processes.state(layers)
    }

    pub(crate) fn stop_keeping(&self, layers: &[PathBuf]) {
        self.host.warm_processes.remove(layers);
        let (host, pooled) = (self.host.clone(), self.host.sandbox_pool.remove(layers));
        self.spawn(async move {
            for sandbox in pooled {
                host.discard(sandbox).await;
            }
        });
    }

    pub(crate) async fn adopt(&self, id: &SandboxId) -> Result<Option<RunningSandbox>> {
        adopt::adopt(&self.host, id).await
    }

    pub(crate) fn holds_anything(&self) -> bool {
        let Host { config, pool, .. } = &*self.host;
        let records = record::all(&config.data_dir.join("run")).into_iter().map(|record| record.id);
        records.chain(pool.ids()).any(|id| !sweep::is_precreated(&id))
            || !pool.snapshot_names().is_empty()
            || std::fs::read_dir(pool.volumes()).is_ok_and(|mut volumes| volumes.next().is_some())
    }

    pub(crate) async fn sweep(&self, known: &Known) -> SweepReport {
        let report = sweep::sweep(&self.host, known).await;
        // Not before the first sweep, which takes pooled sandboxes for leftovers of an earlier server.
        if !self.host.pool_started.swap(true, Ordering::Relaxed) {
            self.spawn(refill::keep_filled(Arc::downgrade(&self.host)));
        }
        report
    }

    pub(crate) async fn stop(&self) -> SweepReport {
        let host = &self.host;
        host.stopping.cancel();
        host.tasks.close();
        host.tasks.wait().await;
        for sandbox in host.sandbox_pool.drain() {
            host.discard(sandbox).await;
        }
        sweep::all_but_sandboxes(host).await
    }

    pub(crate) async fn abandon(&self) {
        let host = &self.host;
        host.stopping.cancel();
        host.tasks.close();
        host.tasks.wait().await;
        if host.cgroups.are_empty() {
            sweep::remove_shared(host, &mut SweepReport::default()).await;
        }
    }

    /// Runs `work` in a task that ends when the backend stops.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stopping = self.host.stopping.clone();
        self.host.tasks.spawn(async move { stopping.run_until_cancelled_owned(work).await });
    }

    pub(crate) fn has_files(&self, id: &SandboxId) -> bool {
        self.host.pool.has(id)
    }

    pub(crate) async fn discard(&self, id: &SandboxId) -> Result<()> {
        let (host, id) = (self.host.clone(), id.clone());
        blocking(move || {
            host.parking.generations.discard(id.as_str())?;
            host.pool.delete(&id)
        })
        .await
    }

    pub(crate) fn can_park(&self) -> bool {
        self.host.parking.criu.is_some()
    }

    pub(crate) fn stored_memory(&self, id: &SandboxId) -> Option<u64> {
        self.host.parking.generations.size(id.as_str())
    }

    pub(crate) async fn charged_bytes(&self, account: u64) -> Option<u64> {
        let host = self.host.clone();
        blocking(move || Ok(host.pool.charged(account))).await.ok().flatten()
    }

    pub(crate) async fn delete_snapshot(&self, name: &str) -> Result<()> {
        let (host, name) = (self.host.clone(), name.to_owned());
        blocking(move || {
            host.parking.snapshots.discard(&name)?;
            host.pool.delete_snapshot(&name)
        })
        .await
    }

    pub(crate) fn has_snapshot(&self, name: &str) -> bool {
        self.host.pool.has_snapshot(name)
    }

    pub(crate) async fn publish_layer(&self, snapshot: &str, layer: &str) -> Result<()> {
        let (host, snapshot, layer) = (self.host.clone(), snapshot.to_owned(), layer.to_owned());
        blocking(move || host.pool.publish_layer(&snapshot, &layer)).await
    }

    pub(crate) async fn remove_layer(&self, layer: &str) -> Result<()> {
        let (host, layer) = (self.host.clone(), layer.to_owned());
        blocking(move || host.pool.remove_layer(&layer)).await
    }

    pub(crate) async fn open_files(&self, layers: &[String], files: &Files) -> Result<OwnedFd> {
        let (host, layers, files) = (self.host.clone(), layers.to_vec(), files.clone());
        blocking(move || host.pool.open_files(&layers, &files)).await
    }

    pub(crate) fn snapshot_dir(&self) -> PathBuf {
        self.host.pool.snapshots()
    }

    pub(crate) fn require_room(&self) -> Result<()> {
        self.host.pool.require_room()
    }

    pub(crate) fn layer_dir(&self) -> PathBuf {
        self.host.pool.layers()
    }

    pub(crate) async fn create_volume(&self, name: &str, size_mib: u64) -> Result<()> {
        let (host, name) = (self.host.clone(), name.to_owned());
        blocking(move || host.pool.create_volume(&name, size_mib)).await
    }

    pub(crate) async fn delete_volume(&self, name: &str) -> Result<()> {
        let (host, name) = (self.host.clone(), name.to_owned());
        blocking(move || host.pool.delete_volume(&name)).await
    }

    pub(crate) fn volume_dir(&self) -> PathBuf {
        self.host.pool.volumes()
    }
}

/// Refuses to start where the limit of open files is lower than a server can work with, and cannot be raised: such a start would
/// be half, and the server would fail later.
fn require_descriptors() -> Result<()> {
    const NEEDED: u64 = 512;
    let maximum = getrlimit(Resource::Nofile).maximum.unwrap_or(NEEDED);
    if maximum >= NEEDED {
        return Ok(());
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(NEEDED), maximum: Some(NEEDED) }).map_err(|error| {
        let action = format!(
            "raise the limit of open files from {maximum} to {NEEDED}, the least that a server needs: start it with a \
             higher one (`ulimit -n`, or `LimitNOFILE` of the service)"
        );
        Error::Kernel { action, source: error.into() }
    })
}

/// Raises the limit of open files: every sandbox and every connection takes a few descriptors of the server. The spawner and
/// the sandboxes keep the limit they were started with.
fn raise_descriptor_limit() {
    /// Limit that suffices for all sandboxes with many connections; also when the process was started with a lower maximum,
    /// which takes a capability to raise.
    const WANTED: u64 = 1 << 18;
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map(|maximum| maximum.max(WANTED));
    let mut raised = Ok(());
    for maximum in [wanted, limit.maximum] {
        raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
        if raised.is_ok() {
            return;
        }
    }
    if let Err(error) = raised {
        tracing::warn!(%error, "failed to raise the limit of open files");
    }
}
