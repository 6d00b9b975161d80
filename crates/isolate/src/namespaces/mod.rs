//! The real backend: Linux namespaces, cgroups, overlayfs, veth and nftables.
//!
//! | part | files |
//! | --- | --- |
//! | resources that sandboxes share | `host`, `slots` |
//! | start: take or create an unassigned sandbox, then assign it | `create`, `prepare`, `unassigned` |
//! | what is kept ahead of starts | `sandbox_pool` and `refill`, `warm` and `keep_warm` |
//! | a running sandbox | `running`, `suspend`, `record`, `process`, `log` |
//! | after a crash, and before a stop | `adopt`, `sweep`, `purge` |

mod adopt;
mod create;
mod host;
mod keep_warm;
mod log;
mod prepare;
mod process;
mod purge;
mod record;
mod refill;
mod running;
mod sandbox_pool;
mod slots;
mod suspend;
mod sweep;
mod unassigned;
mod warm;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sandcove_wire::id::SandboxId;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cgroup::Cgroups;
use crate::instance::Instance;
use crate::net::{Addresses, Dialer, Firewall, Links};
use crate::pool::Pool;
use crate::spawner::{Spawner, SpawnerConfig};
use crate::{Blueprint, Error, Known, Result, SandboxSpec, SweepReport, crash, jail};

pub use host::Config;
use host::{Host, blocking};
pub use purge::purge;
pub use running::RunningSandbox;
use sandbox_pool::SandboxPool;
use slots::Slots;
use warm::{WarmProcesses, WarmSpec};

/// Slots beyond the maximum number of sandboxes, for pooled sandboxes and warm processes.
const EXTRA_SLOTS: u32 = 64;

/// The namespaces backend. Clones share everything.
#[derive(Clone)]
pub struct Namespaces {
    host: Arc<Host>,
}

impl Namespaces {
    /// Prepares the host: mounts the pool, installs the firewall, starts the spawner. Sandboxes of an earlier server are not
    /// touched; adopt them, then sweep. The paths of `config` are absolute and without symbolic links.
    ///
    /// # Errors
    /// When a step fails. The steps before it are undone, unless an earlier server's sandboxes need them.
    pub async fn start(config: Config) -> Result<Self> {
        let instance = Instance::claim(&config.data_dir)?;
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
        let number = instance.number();
        let addresses = Addresses::new(&config.network, number)?;
        let run = config.data_dir.join("run");
        std::fs::create_dir_all(&run).map_err(|source| Error::Path {
            action: "create",
            path: run.clone(),
            source,
        })?;
        let pool = Pool::open(&config.data_dir, config.pool_size_gib)?;
        let cgroups = Cgroups::open(&purge::group_name(number))?;
        let links = Links::open()?;
        let firewall = Firewall::install(number, addresses, config.dns.clone(), &record::all(&run)).await?;
        let dialer =
            Dialer::start().map_err(|source| Error::Kernel { action: "start a thread".into(), source })?;
        crash::point("start.prepared");
        // After the pool is mounted: the spawner keeps a mount of its own.
        let spawner = Spawner::start(SpawnerConfig {
            program: config.program.clone(),
            pool: pool.root().to_owned(),
            libexec: config.libexec.clone(),
        })?;
        tracing::debug!(instance = number, spawner = spawner.pid(), network = %addresses.range(), "backend ready");
        raise_inotify_limits();
        raise_descriptor_limit();
        let slots = Slots::new(config.max_sandboxes + EXTRA_SLOTS);
        let sandbox_pool = SandboxPool::new(config.pooled_sandboxes);
        let host = Host {
            config,
            addresses,
            pool,
            cgroups,
            firewall,
            links,
            dialer,
            spawner,
            slots,
            warm_processes: WarmProcesses::default(),
            sandbox_pool,
            pool_started: AtomicBool::new(false),
            number,
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
            _instance: instance,
        };
        Ok(Self { host: Arc::new(host) })
    }

    pub(crate) async fn create(&self, spec: SandboxSpec) -> Result<RunningSandbox> {
        let host = self.host.clone();
        // A task of its own makes this call safe to cancel: a future that is dropped midway would leave a slot, a
        // control group and half a sandbox behind. The server's task around this call guards what follows it, the row,
        // the idempotency key and the driver, which a client that hangs up must not prevent.
        let task = tokio::spawn(async move { create::create(host, spec).await });
        match task.await {
            Ok(result) => result,
            Err(error) => Err(Error::Kernel {
                action: "run the creation task".into(),
                source: std::io::Error::other(error.to_string()),
            }),
        }
    }

    pub(crate) fn keep_ready(&self, blueprint: Blueprint) {
        let spec = WarmSpec::of(&blueprint);
        if blueprint.wants_warm()
            && let Some(end) = self.host.warm_processes.begin(&spec)
        {
            self.spawn(keep_warm::keep(self.host.clone(), spec, end));
        }
        self.host.sandbox_pool.add(blueprint);
    }

    pub(crate) fn is_ready(&self, blueprint: &Blueprint) -> bool {
        let Host { sandbox_pool, warm_processes, .. } = &*self.host;
        sandbox_pool.has(blueprint)
            && (!blueprint.wants_warm() || warm_processes.get(&blueprint.layers).is_some())
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
        blocking(move || host.pool.delete(&id)).await
    }

    pub(crate) async fn delete_snapshot(&self, name: &str) -> Result<()> {
        let (host, name) = (self.host.clone(), name.to_owned());
        blocking(move || host.pool.delete_snapshot(&name)).await
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

/// Raises the limit of open files: every sandbox takes a few descriptors of the server. The spawner and the sandboxes
/// keep the limit they were started with.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, raised)
    {
        tracing::warn!(%error, "failed to raise the limit of open files");
    }
}

/// Raises the inotify limits of a user. The defaults are meant for one desktop user; here one user may be all sandboxes of a
/// template together, each of which has a limit of its own and is charged for the memory. A failure is only logged.
fn raise_inotify_limits() {
    /// Number of sandboxes that the limits must suffice for.
    const SANDBOXES: u32 = 1024;
    for (limit, each) in
        [("max_user_instances", jail::INOTIFY_INSTANCES), ("max_user_watches", jail::INOTIFY_WATCHES)]
    {
        let path = Path::new("/proc/sys/fs/inotify").join(limit);
        let wanted = each * SANDBOXES;
        let now = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<u32>().ok());
        if now.is_some_and(|now| now < wanted)
            && let Err(error) = std::fs::write(&path, wanted.to_string())
        {
            tracing::warn!(%error, limit, "failed to raise an inotify limit");
        }
    }
}
