//! What a server is made of. [`Machine`] is the part that takes root; [`Host`] is a whole server in this process, as `run` starts one
//! for a single piece of code. `split` runs the two parts in processes of their own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sandcove_image::{
    Builder, ChrootRunner, HostCertificates, Languages, LayerStore, Sources, Template, templates,
};
use sandcove_isolate::Backend;
use sandcove_names::{DnsSockets, Renewal, Zone};
use sandcove_server::domain::template::TemplateRecord;
use sandcove_server::otlp::Endpoints;
use sandcove_server::tls::{Certificate, Certificates, Source};
use sandcove_server::{App, Listeners};
use sandcove_wire::boot::ENVD_VERSION;
use sandcove_wire::secret::Secret;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::data_dir::{Lock, ServerFile};
use crate::guest;
use crate::languages::{LanguageState, Switch, Upgrade};
use crate::listening::Listening;
use crate::log_filter::LogFormat;
use crate::progress::LayerProgress;
use crate::server_dir::{self, Occupied};
use crate::settings::{LanguageChoice, Settings};

/// Free space that a pool needs beside its templates, GiB.
const POOL_RESERVE_GIB: u64 = 2;

/// How a server stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stop {
    /// Sandboxes keep running and are found again at the next start.
    KeepingSandboxes,
    /// All sandboxes of all teams are killed first, paused ones too.
    EndingSandboxes,
    /// Everything on this host ends with the server: the memory of paused sandboxes goes to disk first.
    WithHost,
}

impl Stop {
    /// Does what has to be done before the server stops.
    pub async fn prepare(self, app: &App) {
        match self {
            Self::KeepingSandboxes => {}
            Self::EndingSandboxes => app.sandboxes().kill_all().await,
            Self::WithHost => app.sandboxes().leave_host().await,
        }
    }
}

/// A host that is ready for a server: everything that takes root is prepared.
pub struct Machine {
    /// The backend that runs sandboxes.
    pub backend: Backend,
    /// The sockets that clients connect to, and the server's names.
    pub listening: Listening,
    /// The right to serve the data directory.
    pub lock: Lock,
    /// The right to use the server's directory.
    pub occupied: Occupied,
    /// The data directory.
    pub data_dir: PathBuf,
    /// Settings, templates and endpoints for the server.
    pub start: Start,
    /// The template layer that is built while the server serves.
    pub upgrade: Option<Upgrade>,
}

/// Settings, templates and endpoints for a server that starts.
#[derive(Debug, Serialize, Deserialize)]
pub struct Start {
    /// Settings of the server. Its directory exists.
    pub config: sandcove_server::Config,
    /// The server's own templates, whose layers exist.
    pub templates: Vec<TemplateRecord>,
    /// The certificate to begin with.
    pub certificate: Option<Certificate>,
    /// Names that are answered for by DNS, and who issues their certificate.
    pub names: Option<sandcove_names::Settings>,
    /// Where traces and logs are sent.
    pub otlp: Endpoints,
}

impl Machine {
    /// Locks the data directory, binds the address, prepares the pool and the templates. The server's files are given to `account`.
    pub async fn prepare(settings: &Settings, account: u32) -> Result<Self> {
        if !is_root() {
            bail!(
                "a server needs root: it creates namespaces, mounts and cgroups for sandboxes\nhint: run the command with sudo; `sandcove doctor` checks what else it needs"
            );
        }
        let lock = Lock::take(&settings.data_dir)?;
        // Processes in other directories and mount namespaces use this path, and it identifies the claims on this host.
        let data_dir = settings
            .data_dir
            .canonicalize()
            .with_context(|| format!("failed to find `{}`", settings.data_dir.display()))?;
        let settings = &Settings { data_dir: data_dir.clone(), ..settings.clone() };
        // Early, so that a port in use or a bad certificate is reported before minutes of building.
        let listening = Listening::prepare(settings).await?;
        let occupied = server_dir::prepare(&data_dir, account, &lock)?;
        let libexec = guest::unpack(&settings.data_dir.join("libexec"))?;
        let backend = Backend::start(sandcove_isolate::Config {
            data_dir: settings.data_dir.clone(),
            libexec,
            program: std::env::current_exe().context("failed to find this program's own file")?,
            network: settings.network.clone(),
            dns: settings.dns.clone(),
            max_sandboxes: settings.max_sandboxes,
            pool_size_gib: settings.pool_size_gib,
            pooled_sandboxes: settings.spares,
            pool_memory_percent: settings.pool_memory,
            log_refused_calls: settings.seccomp_log,
            log_json: settings.log_format == LogFormat::Json,
            egress_account: egress_account(settings),
            criu: settings.criu.is_dir().then(|| settings.criu.clone()),
        })
        .await
        .context("failed to prepare this host for sandboxes; `sandcove doctor` shows what is missing")?;
        match prepare_start(settings, &listening, &backend.layer_dir()).await {
            Ok((start, upgrade)) => Ok(Self { backend, listening, lock, occupied, data_dir, start, upgrade }),
            Err(error) => {
                backend.abandon().await;
                Err(error)
            }
        }
    }
}

/// User and group of the process of the egress proxies, if it can have rights of its own on this host.
fn egress_account(settings: &Settings) -> Option<u32> {
    let account = (settings.egress_account != 0).then_some(settings.egress_account)?;
    let objection = sandcove_isolate::cannot_become(account);
    if let Some(objection) = &objection {
        tracing::warn!("the egress proxies run as root, and not as {account}: {objection}");
    }
    objection.is_none().then_some(account)
}

async fn prepare_start(
    settings: &Settings,
    listening: &Listening,
    layers: &Path,
) -> Result<(Start, Option<Upgrade>)> {
    let (templates, upgrade) = build_templates(settings, layers).await?;
    let templates = templates.iter().map(record).collect::<Result<_>>()?;
    let kept = ServerFile::read(&settings.data_dir)?.map(|file| file.api_key);
    let mut config = sandcove_server::Config::new(server_dir::path(&settings.data_dir));
    config.domain.clone_from(&listening.domain);
    config.api_key = settings.api_key.clone().or(kept);
    config.access_token.clone_from(&settings.access_token);
    config.admin_token.clone_from(&settings.admin_token);
    config.max_sandboxes = settings.max_sandboxes;
    config.capacity = settings.max_sandboxes;
    config.paused_memory_percent = settings.paused_memory;
    config.park_after = settings.park_after;
    config.volume_mib = settings.volume_size_gib << 10;
    config.rate_limit = settings.rate_limit;
    config.private_webhooks = settings.private_webhooks;
    config.interpreter_token = settings.interpreter_token.into();
    config.legacy = settings.legacy;
    config.metrics_to = settings.metrics_to.clone();
    config.dashboard = settings.dashboard;
    config.warm_memory = settings.warm_memory;
    config.registries = settings.builds.registries.clone();
    if let Some(max) = settings.builds.max_builds {
        config.max_builds = max.max(1);
    }
    if let Some(seconds) = settings.builds.gc_interval {
        config.gc_interval = Duration::from_secs(seconds.max(1));
    }
    let certificate = listening.certificate.as_ref().map(|(certificate, _)| certificate.clone());
    config.tls_only = settings.tls.only;
    let names = listening.public.as_ref().map(|(names, _)| names.clone());
    Ok((Start { config, templates, certificate, names, otlp: settings.otlp.clone() }, upgrade))
}

/// Opens the database and recovers the sandboxes of an earlier run; returns the API key of the server too.
pub async fn open_app(start: Start, host: &sandcove_host::Host) -> Result<(App, Secret)> {
    let mut config = start.config;
    config.tls = match &start.certificate {
        Some(certificate) => Some(Certificates::new(certificate)?),
        None if start.names.as_ref().is_some_and(|names| names.acme.is_some()) => {
            Some(Certificates::awaited()?)
        }
        None => None,
    };
    let wanted = config.api_key.clone();
    let app = App::start(config, host.clone()).await?;
    for template in start.templates {
        app.templates().upsert_builtin(template).await?;
    }
    remove_unused_layers(&app, host).await?;
    let Some(api_key) = wanted.or_else(|| app.new_key().cloned()) else {
        bail!("the API key of this data directory is unknown; set SANDCOVE_API_KEY to a key of your choice");
    };
    Ok((app, api_key))
}

/// Answers DNS where it has sockets for it, and has certificates issued and shown, for as long as the server of `app` lives.
pub fn serve_names(app: &App, sockets: Option<DnsSockets>, names: &sandcove_names::Settings) -> Result<()> {
    let zone = Zone::new(names);
    let directory = app.data_dir().join("acme");
    if let (Some(acme), Some(shown)) = (names.acme.clone(), app.certificates().cloned()) {
        let renewal = Renewal::open(&directory, names, acme, zone.clone())?;
        let show = move |pem: &[u8]| match Certificate::from_pem(pem) {
            Ok(certificate) => shown.replace(&certificate),
            Err(error) => tracing::error!(%error, "failed to use the issued certificate"),
        };
        if let Some(kept) = renewal.certificate()? {
            show(&kept);
        }
        tokio::spawn(renewal.run(show));
    }
    if let Some(sockets) = sockets {
        tokio::spawn(sandcove_names::serve(sockets, zone));
    }
    Ok(())
}

/// A server in this process alone that is ready to serve.
pub struct Host {
    app: App,
    host: sandcove_host::Host,
    listeners: Listeners,
    file: ServerFile,
    lock: Arc<Lock>,
    certificates: Option<Source>,
    public: Option<(sandcove_names::Settings, Option<DnsSockets>)>,
    upgrade: Option<Upgrade>,
    _occupied: Occupied,
}

/// The start of a server's shutdown, for the task that waits for signals.
pub struct Exit {
    app: App,
    lock: Arc<Lock>,
}

impl Exit {
    /// Records that the server is stopping, and kills all sandboxes if `how` asks for it.
    pub async fn begin(&self, how: Stop) {
        self.lock.leave_or_warn();
        how.prepare(&self.app).await;
    }
}

impl Host {
    /// Prepares this host, and recovers the sandboxes of an earlier run. The server's files are given to root.
    pub async fn prepare(settings: &Settings) -> Result<Self> {
        let machine = Machine::prepare(settings, 0).await?;
        let backend = machine.backend.clone();
        let prepared = Self::on(machine).await;
        if prepared.is_err() {
            backend.abandon().await;
        }
        prepared
    }

    async fn on(machine: Machine) -> Result<Self> {
        let Machine { backend, start, listening, lock, upgrade, occupied, .. } = machine;
        let host = sandcove_host::Host::here(backend);
        let (app, api_key) = open_app(start, &host).await?;
        let Listening { url, names, listeners, certificate, public, .. } = listening;
        let file = ServerFile { url, api_key, pid: std::process::id(), names };
        let certificates = certificate.map(|(_, source)| source);
        let lock = Arc::new(lock);
        Ok(Self { app, host, listeners, file, lock, certificates, public, upgrade, _occupied: occupied })
    }

    /// The address and key of the server.
    pub fn file(&self) -> &ServerFile {
        &self.file
    }

    /// A handle that starts the shutdown.
    pub fn exit(&self) -> Exit {
        Exit { app: self.app.clone(), lock: self.lock.clone() }
    }

    /// Serves until `stop` is cancelled, and builds the remaining template layer meanwhile. Sandboxes keep running.
    pub async fn serve(self, stop: CancellationToken) -> Result<()> {
        if let Some(upgrade) = self.upgrade {
            let (app, host) = (self.app.clone(), self.host.clone());
            let work = upgrade.run(async move |switch| switch.make(&app, &host).await);
            tokio::spawn(stop.clone().run_until_cancelled_owned(work));
        }
        if let (Some(shown), Some(source)) = (self.app.certificates().cloned(), self.certificates) {
            tokio::spawn(stop.clone().run_until_cancelled_owned(shown.follow(source)));
        }
        if let Some((names, sockets)) = self.public {
            serve_names(&self.app, sockets, &names)?;
        }
        self.app.serve(self.listeners, stop).await?;
        Ok(())
    }
}

/// Builds the templates that new sandboxes need at once, and returns what can be built later.
async fn build_templates(settings: &Settings, layers: &Path) -> Result<([Template; 2], Option<Upgrade>)> {
    let certificates = HostCertificates::read(Path::new(HostCertificates::DIRECTORY))?;
    let store = LayerStore::open(layers)?;
    let [_, full] = templates(&certificates, Languages::All);
    let is_built = full.layers.iter().all(|layer| store.has(&layer.id));
    let languages = match settings.languages {
        LanguageChoice::Lean => Languages::Lean,
        LanguageChoice::All | LanguageChoice::AsBuilt if is_built => Languages::All,
        LanguageChoice::All => Languages::Building,
        LanguageChoice::AsBuilt => Languages::Lean,
    };
    let templates = templates(&certificates, languages);
    let ahead = settings.data_dir.join(LayerStore::AHEAD);
    let sources = Sources {
        cache: settings.template_cache.clone(),
        mirror: settings.debian_mirror.clone(),
        ahead: Some(ahead.clone()),
    };
    let builder = Builder::new(store.clone(), ChrootRunner::default(), sources.clone());
    let progress = LayerProgress::new();
    builder.ensure(&templates, &mut |event| progress.show(&event)).await.map_err(|error| match error {
        sandcove_image::Error::NoRoom { needed_mib, .. } => anyhow::anyhow!(
            "{error}\nhint: {}",
            room_hint(&settings.data_dir, needed_mib.div_ceil(1024) + POOL_RESERVE_GIB)
        ),
        error => error.into(),
    })?;
    // Nothing waits for it, and the next start removes what stays.
    tokio::task::spawn_blocking(move || match std::fs::remove_dir_all(&ahead) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(path = %ahead.display(), %error, "failed to remove layers that were built ahead");
        }
        _ => {}
    });
    let data_dir = settings.data_dir.clone();
    match languages {
        Languages::Lean if settings.languages == LanguageChoice::AsBuilt => {}
        Languages::Lean => LanguageState::Off.write(&data_dir),
        Languages::Building => LanguageState::Building.write(&data_dir),
        Languages::All => LanguageState::Ready.write(&data_dir),
    }
    let upgrade = match languages {
        Languages::Building => {
            let switch = Switch { lean: record(&templates[1])?, full: record(&full)? };
            Some(Upgrade { full, switch, store, sources, data_dir })
        }
        Languages::Lean | Languages::All => None,
    };
    Ok((templates, upgrade))
}

/// How the operator makes room for `gib` GiB of templates.
fn room_hint(data_dir: &Path, gib: u64) -> String {
    if data_dir.join("pool.img").exists() {
        format!(
            "the size of the pool is set when it is created; remove the pool with `sandcove purge`, and start again with \
             `--pool-size-gib {gib}` or more"
        )
    } else {
        format!(
            "free {gib} GiB on the disk of `{}`, or choose another one with --data-dir",
            data_dir.display()
        )
    }
}

/// Removes layers that no template and no sandbox uses. A server can do without the space, so that only errors of the
/// database fail the start.
async fn remove_unused_layers(app: &App, host: &sandcove_host::Host) -> Result<()> {
    let Some(used) = app.store().layers_in_use().await? else { return Ok(()) };
    match host.collect_layers(used).await {
        Ok(removed) => removed.iter().for_each(|layer| tracing::info!(%layer, "removed an unused layer")),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "failed to remove unused layers");
        }
    }
    Ok(())
}

fn record(template: &Template) -> Result<TemplateRecord> {
    Ok(TemplateRecord {
        template_id: template.template_id.parse()?,
        build_id: template.build_id().parse()?,
        name: template.name.to_owned(),
        layers: template.layers.iter().rev().map(|layer| layer.id.to_string()).collect(),
        services: template.services.clone(),
        env: BTreeMap::new(),
        default_user: template.default_user.to_owned(),
        default_workdir: template.default_workdir.map(str::to_owned),
        build_env: BTreeMap::new(),
        cpu_count: template.cpu_count,
        memory_mib: template.memory_mib,
        disk_mib: template.disk_mib,
        envd_version: ENVD_VERSION.to_owned(),
        start_cmd: None,
        ready_cmd: None,
        snapshot_of: None,
        memory_bytes: None,
        started: None,
    })
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
