//! The state that request handlers share, and the order in which its parts start and stop.

pub(crate) mod credentials;
mod limiter;
mod turns;
mod upload_links;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use sandcove_host::Host;
use sandcove_wire::secret::Secret;

use crate::audit::Audit;
use crate::builds::{BuildSettings, Builds};
use crate::config::Config;
use crate::events::Receivers;
use crate::node::{self, Node};
use crate::sandboxes::{Capacity, Registry};
use crate::secrets::Secrets;
use crate::store::{FirstTeam, Store};
use crate::telemetry::Telemetry;
use crate::templates::Templates;
use crate::tls::Certificates;
use crate::volumes::Volumes;
use crate::{Error, Result, activity, events};

pub(crate) use limiter::{Allowance, Limiter};
pub(crate) use turns::{EXPORTS, Turn, Turns, UPLOAD_TIMEOUT};
pub(crate) use upload_links::UploadLinks;

/// A server; clones share its state.
#[derive(Clone)]
pub struct App {
    inner: Arc<Inner>,
}

struct Inner {
    config: Config,
    store: Store,
    sandboxes: Registry,
    templates: Templates,
    builds: Builds,
    upload_links: UploadLinks,
    volumes: Volumes,
    secrets: Secrets,
    node: Node,
    telemetry: Arc<Telemetry>,
    audit: Audit,
    limiter: Limiter,
    reads: Turns,
    uploads: Turns,
    exports: Turns,
    new_key: Option<Secret>,
    local_addr: OnceLock<SocketAddr>,
    draining: AtomicBool,
}

impl App {
    /// Opens the store, makes sure that there is a team with a key, and recovers the sandboxes of an earlier run. Boxed: code that waits
    /// for a plain future compiles it, and all futures within it, once more.
    pub fn start(config: Config, host: Host) -> BoxFuture<'static, Result<Self>> {
        Box::pin(Self::open(config, host))
    }

    async fn open(config: Config, host: Host) -> Result<Self> {
        std::fs::create_dir_all(&config.data_dir)
            .map_err(|source| Error::DataDir { path: config.data_dir.clone(), source })?;
        let database = config.data_dir.join("sandcove.db");
        // With an empty database, every sandbox and volume on the host would be swept.
        if !database.exists() && host.holds_anything().await.map_err(Error::Leftovers)? {
            return Err(Error::DatabaseMissing(database));
        }
        let audit_path = config.data_dir.join("audit");
        let audit =
            Audit::open(audit_path.clone()).map_err(|source| Error::DataDir { path: audit_path, source })?;
        let store = Store::open(&database).await?;
        let FirstTeam { new_key, .. } = store
            .ensure_default_team(config.api_key.as_ref(), config.max_sandboxes, config.max_session)
            .await?;
        let telemetry = Arc::new(Telemetry::default());
        let capacity = Capacity {
            sandboxes: config.capacity,
            starts: config.max_starts,
            start_timeout: config.start_timeout,
            paused_bytes: node::share_of_memory(config.paused_memory_percent),
            park_after: config.park_after,
        };
        let sandboxes = Registry::start(host.clone(), store.clone(), capacity, telemetry.clone()).await?;
        let (step, newest) = (config.team_metrics_step, store.newest_event().await?);
        sandboxes.spawn_until_stop(activity::watch(store.clone(), sandboxes.clone(), step, newest));
        let receivers = match config.private_webhooks {
            true => Receivers::Anywhere,
            false => Receivers::Public(host.clone()),
        };
        sandboxes.spawn_until_stop(events::run(store.clone(), receivers, telemetry.clone()));
        let templates = Templates::new(store.clone(), host.clone(), config.warm_memory);
        let upload_links = UploadLinks::new(store.server_secret("upload links").await?);
        let (volumes, cleanup) = Volumes::new(store.clone(), host.clone(), config.volume_mib).await?;
        sandboxes.spawn_until_stop(cleanup);
        volumes.sweep().await?;
        let secrets = Secrets::new(store.clone(), host.clone());
        secrets.renew().await?;
        let settings = BuildSettings {
            data_dir: config.data_dir.clone(),
            concurrent: config.max_builds,
            timeout: config.build_timeout,
            collect_interval: config.gc_interval,
            registries: config.registries.clone(),
        };
        let (builds, collector) = Builds::new(store.clone(), host, templates.clone(), settings);
        sandboxes.spawn_until_stop(collector);
        let inner = Inner {
            node: Node::new(),
            telemetry,
            audit,
            limiter: Limiter::new(config.rate_limit),
            reads: Turns::new(turns::READS),
            uploads: Turns::new(turns::UPLOADS),
            exports: Turns::new(EXPORTS),
            config,
            store,
            sandboxes,
            templates,
            builds,
            upload_links,
            volumes,
            secrets,
            new_key,
            local_addr: OnceLock::new(),
            draining: AtomicBool::new(false),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Interrupts builds, stops the drivers, then the store. `App::serve` ends with this call.
    pub fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.inner.builds.stop().await;
            self.inner.sandboxes.stop().await;
            self.inner.store.close().await;
        })
    }

    /// The API key that this start created, to be shown once; the key cannot be read back.
    pub fn new_key(&self) -> Option<&Secret> {
        self.inner.new_key.as_ref()
    }

    /// The address of the listener, once there is one.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.inner.local_addr.get().copied()
    }

    /// The database.
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// The sandboxes.
    pub fn sandboxes(&self) -> &Registry {
        &self.inner.sandboxes
    }

    /// The templates.
    pub fn templates(&self) -> &Templates {
        &self.inner.templates
    }

    /// The builds of templates.
    pub fn builds(&self) -> &Builds {
        &self.inner.builds
    }

    /// The issuer of links for uploads.
    pub(crate) fn upload_links(&self) -> &UploadLinks {
        &self.inner.upload_links
    }

    /// The secrets.
    pub(crate) fn secrets(&self) -> &Secrets {
        &self.inner.secrets
    }

    /// The volumes.
    pub fn volumes(&self) -> &Volumes {
        &self.inner.volumes
    }

    /// The directory of everything that the server writes.
    pub fn data_dir(&self) -> &Path {
        &self.config().data_dir
    }

    /// The certificate that the listener shows; `None` without TLS.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.config().tls.as_ref()
    }

    /// The settings.
    pub(crate) fn config(&self) -> &Config {
        &self.inner.config
    }

    /// The host.
    pub(crate) fn node(&self) -> &Node {
        &self.inner.node
    }

    /// The metrics.
    pub(crate) fn telemetry(&self) -> &Telemetry {
        &self.inner.telemetry
    }

    /// The audit log.
    pub(crate) fn audit(&self) -> &Audit {
        &self.inner.audit
    }

    /// The turns of teams at calls that only read.
    pub(crate) fn reads(&self) -> &Turns {
        &self.inner.reads
    }

    /// The turns of teams at uploads, to volumes and for builds.
    pub(crate) fn uploads(&self) -> &Turns {
        &self.inner.uploads
    }

    /// The turns of teams at exports of templates.
    pub(crate) fn exports(&self) -> &Turns {
        &self.inner.exports
    }

    /// The rate limiter of the API.
    pub(crate) fn limiter(&self) -> &Limiter {
        &self.inner.limiter
    }

    /// Whether the server is stopping.
    pub(crate) fn is_draining(&self) -> bool {
        self.inner.draining.load(Ordering::Relaxed)
    }

    /// Notes that the server is stopping.
    pub(crate) fn set_draining(&self) {
        self.inner.draining.store(true, Ordering::Relaxed);
    }

    /// Notes the address of the listener. A second call is for a second listener and changes nothing: clients are given the
    /// first address.
    pub(crate) fn set_local_addr(&self, address: SocketAddr) {
        let _ = self.inner.local_addr.set(address);
    }

    /// Base of the host names of sandboxes.
    pub(crate) fn domain(&self) -> Option<String> {
        let local = || self.local_addr().map(|address| format!("localhost:{}", address.port()));
        self.inner.config.domain.clone().or_else(local)
    }
}
