//! The real backend: Linux namespaces, cgroups, overlayfs, veth and nftables.

mod adopt;
mod create;
mod handle;
mod log;
mod prepared;
mod process;
mod purge;
mod record;
mod slots;
mod spares;
mod suspend;
mod sweep;
mod warm;

use std::net::IpAddr;
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

pub use handle::Handle;
pub use purge::purge;
use slots::Slots;
use spares::Spares;
use warm::{WarmSet, WarmSpec};

/// Slots beyond the most sandboxes, for spares and warm processes.
const MORE_SLOTS: u32 = 64;

/// What the backend needs to know of the host.
#[derive(Debug, Clone)]
pub struct Config {
    /// Everything durable is below it.
    pub data_dir: PathBuf,
    /// Directory with `sandcove-agent` and the other programs for the inside.
    pub libexec: PathBuf,
    /// The `sandcove` program, started again as spawner.
    pub program: PathBuf,
    /// IPv4 network of 65,536 addresses that sandboxes get theirs from, e.g. `10.213.0.0/16`.
    pub network: String,
    /// Name servers; the host's own when `None`.
    pub dns: Option<Vec<IpAddr>>,
    /// Most sandboxes at once.
    pub max_sandboxes: u32,
    /// Size of a new pool image, GiB; most of the free space when `None`.
    pub pool_size_gib: Option<u64>,
    /// Sandboxes made ahead for each template.
    pub spares: usize,
}

/// The backend. Clones share everything.
#[derive(Clone)]
pub struct Namespaces {
    host: Arc<Host>,
}

/// What all sandboxes of this server share.
pub(crate) struct Host {
    config: Config,
    addresses: Addresses,
    pool: Pool,
    cgroups: Cgroups,
    firewall: Firewall,
    links: Links,
    dialer: Dialer,
    spawner: Spawner,
    slots: Slots,
    warm: WarmSet,
    spares: Spares,
    spares_kept: AtomicBool,
    /// Instance number: tells the servers of one host apart.
    number: u32,
    /// Keepers of spares and warm processes, and what is being given back.
    tasks: TaskTracker,
    /// Cancelled when nothing is to be kept up any more.
    stopping: CancellationToken,
    _instance: Instance,
}

impl Namespaces {
    /// Prepares the host: pool mounted, firewall in place, spawner running. Sandboxes of an earlier server are not
    /// touched; adopt them, then sweep. The paths of `config` are absolute and without symbolic links.
    ///
    /// # Errors
    /// When any of it is missing; what was made until then is taken back, unless an earlier server's sandboxes need it.
    pub async fn start(config: Config) -> Result<Self> {
        let instance = Instance::claim(&config.data_dir)?;
        let (number, data_dir) = (instance.number(), config.data_dir.clone());
        let started = Self::start_as(config, instance).await;
        if started.is_err()
            && let Ok(cgroups) = Cgroups::find(&purge::group_name(number))
        {
            purge::give_back(&data_dir, number, &cgroups, &mut SweepReport::default()).await;
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
        // After the pool is mounted: the spawner takes its own view of it.
        let spawner = Spawner::start(SpawnerConfig {
            program: config.program.clone(),
            pool: pool.root().to_owned(),
            libexec: config.libexec.clone(),
        })?;
        tracing::debug!(instance = number, spawner = spawner.pid(), network = %addresses.range(), "backend ready");
        raise_inotify_limits();
        raise_descriptor_limit();
        let slots = Slots::new(config.max_sandboxes + MORE_SLOTS);
        let spares = Spares::new(config.spares);
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
            warm: WarmSet::default(),
            spares,
            spares_kept: AtomicBool::new(false),
            number,
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
            _instance: instance,
        };
        Ok(Self { host: Arc::new(host) })
    }

    pub(crate) async fn create(&self, spec: SandboxSpec) -> Result<Handle> {
        let host = self.host.clone();
        // A task of its own: a caller that goes away must not leave half a sandbox behind.
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
            && let Some(end) = self.host.warm.begin(&spec)
        {
            self.keep_up(warm::keep(self.host.clone(), spec, end));
        }
        self.host.spares.want(blueprint);
    }

    pub(crate) fn is_ready(&self, blueprint: &Blueprint) -> bool {
        let Host { spares, warm, .. } = &*self.host;
        spares.has(blueprint) && (!blueprint.wants_warm() || warm.get(&blueprint.layers).is_some())
    }

    pub(crate) fn stop_keeping(&self, layers: &[PathBuf]) {
        self.host.warm.forget(layers);
        let (host, spares) = (self.host.clone(), self.host.spares.forget(layers));
        self.keep_up(async move {
            for spare in spares {
                spare.discard(&host).await;
            }
        });
    }

    pub(crate) async fn adopt(&self, id: &SandboxId) -> Result<Option<Handle>> {
        adopt::adopt(&self.host, id).await
    }

    pub(crate) fn holds_anything(&self) -> bool {
        let Host { config, pool, .. } = &*self.host;
        let made_ahead = |id: &SandboxId| sweep::MADE_AHEAD.iter().any(|name| id.as_str().starts_with(name));
        let records = record::all(&config.data_dir.join("run")).into_iter().map(|record| record.id);
        records.chain(pool.ids()).any(|id| !made_ahead(&id))
            || !pool.snapshot_names().is_empty()
            || std::fs::read_dir(pool.volumes()).is_ok_and(|mut volumes| volumes.next().is_some())
    }

    pub(crate) async fn sweep(&self, known: &Known) -> SweepReport {
        let report = sweep::sweep(&self.host, known).await;
        // Not before: until now, what an earlier server left looks like what this one makes.
        if !self.host.spares_kept.swap(true, Ordering::Relaxed) {
            self.keep_up(Spares::keep(Arc::downgrade(&self.host)));
        }
        report
    }

    pub(crate) async fn stop(&self) -> SweepReport {
        let host = &self.host;
        host.stopping.cancel();
        host.tasks.close();
        host.tasks.wait().await;
        for spare in host.spares.drain() {
            spare.discard(host).await;
        }
        sweep::all_but_sandboxes(host).await
    }

    pub(crate) async fn abandon(&self) {
        let host = &self.host;
        host.stopping.cancel();
        host.tasks.close();
        host.tasks.wait().await;
        if host.cgroups.are_empty() {
            sweep::give_back_all(host, &mut SweepReport::default()).await;
        }
    }

    fn keep_up(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stopping = self.host.stopping.clone();
        self.host.tasks.spawn(async move { stopping.run_until_cancelled_owned(work).await });
    }

    pub(crate) fn has_files(&self, id: &SandboxId) -> bool {
        self.host.pool.has(id)
    }

    pub(crate) async fn discard(&self, id: &SandboxId) -> Result<()> {
        let (host, id) = (self.host.clone(), id.clone());
        handle::blocking(move || host.pool.delete(&id)).await
    }

    pub(crate) async fn delete_snapshot(&self, name: &str) -> Result<()> {
        let (host, name) = (self.host.clone(), name.to_owned());
        handle::blocking(move || host.pool.delete_snapshot(&name)).await
    }

    pub(crate) fn layer_dir(&self) -> PathBuf {
        self.host.pool.layers()
    }

    pub(crate) async fn create_volume(&self, name: &str, size_mib: u64) -> Result<()> {
        let (host, name) = (self.host.clone(), name.to_owned());
        handle::blocking(move || host.pool.create_volume(&name, size_mib)).await
    }

    pub(crate) async fn delete_volume(&self, name: &str) -> Result<()> {
        let (host, name) = (self.host.clone(), name.to_owned());
        handle::blocking(move || host.pool.delete_volume(&name)).await
    }

    pub(crate) fn volume_dir(&self) -> PathBuf {
        self.host.pool.volumes()
    }
}

/// Every sandbox takes a few descriptors of the server. The spawner and all sandboxes keep the limit they were started with.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, raised)
    {
        tracing::warn!(%error, "the limit of open files was not raised");
    }
}

/// What the kernel gives a user is meant for a desktop's; here one user may be all sandboxes of a template together, each
/// with a limit of its own and with what it uses counted as its memory. Not worth failing for.
fn raise_inotify_limits() {
    /// Sandboxes there must be room for.
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
            tracing::warn!(%error, limit, "a limit of inotify was not raised");
        }
    }
}

impl Host {
    /// The sandbox's directory for what is not its own data.
    fn run_dir(&self, id: &SandboxId) -> PathBuf {
        self.config.data_dir.join("run").join(id.as_str())
    }
}
