//! The parts wired together, and their ordered stop.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::response::IntoResponse;
use http::uri::Authority;
use http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use sandcove_isolate::Backend;
use sandcove_wire::secret::Secret;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;
use tracing::Instrument;
use tracing::field::Empty;

use crate::config::Config;
use crate::connection::{Connection, Resetting};
use crate::events::Receivers;
use crate::http::{Limiter, deadline, error, router};
use crate::node::Node;
use crate::proxy::body::Answer;
use crate::proxy::error_page::format_for;
use crate::proxy::host_route::{Prefixes, Target, asked_host, route};
use crate::sandboxes::{Capacity, Registry};
use crate::store::{FirstTeam, Store};
use crate::telemetry::Telemetry;
use crate::templates::Templates;
use crate::volumes::Volumes;
use crate::{Error, Result, activity, events, proxy, traces};

/// A server; clones are the same one.
#[derive(Clone)]
pub struct App {
    inner: Arc<Inner>,
}

struct Inner {
    config: Config,
    prefixes: Prefixes,
    store: Store,
    sandboxes: Registry,
    templates: Templates,
    volumes: Volumes,
    node: Node,
    telemetry: Arc<Telemetry>,
    limiter: Limiter,
    new_key: Option<Secret>,
    local_addr: OnceLock<SocketAddr>,
    draining: AtomicBool,
}

impl App {
    /// Opens the store, makes sure there is a team with a key, and takes over the sandboxes of an earlier run.
    pub async fn start(config: Config, backend: Backend) -> Result<Self> {
        std::fs::create_dir_all(&config.data_dir)
            .map_err(|source| Error::DataDir { path: config.data_dir.clone(), source })?;
        let database = config.data_dir.join("sandcove.db");
        // An empty database would make orphans of everything that is there.
        if !database.exists() && backend.holds_anything() {
            return Err(Error::DatabaseMissing(database));
        }
        let store = Store::open(&database).await?;
        let FirstTeam { new_key, .. } = store
            .ensure_default_team(config.api_key.as_ref(), config.max_sandboxes, config.max_session)
            .await?;
        let telemetry = Arc::new(Telemetry::default());
        let capacity = Capacity {
            sandboxes: config.capacity,
            starts: config.max_starts,
            patience: config.start_patience,
        };
        let sandboxes = Registry::start(backend.clone(), store.clone(), capacity, telemetry.clone()).await?;
        let step = config.team_metrics_step;
        sandboxes.spawn_until_stop(activity::watch(store.clone(), sandboxes.clone(), step));
        let receivers = if config.private_webhooks { Receivers::Anywhere } else { Receivers::Public };
        sandboxes.spawn_until_stop(events::run(store.clone(), receivers, telemetry.clone()));
        let templates = Templates::new(store.clone(), backend.clone());
        let volumes = Volumes::start(store.clone(), backend, config.volume_mib, &sandboxes).await?;
        let prefixes = Prefixes { api: config.api_prefix.clone(), sandbox: config.sandbox_prefix.clone() };
        let inner = Inner {
            node: Node::new(),
            telemetry,
            limiter: Limiter::new(config.rate_limit),
            config,
            prefixes,
            store,
            sandboxes,
            templates,
            volumes,
            new_key,
            local_addr: OnceLock::new(),
            draining: AtomicBool::new(false),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The key that was made up at this start, to be shown once; it cannot be read back.
    pub fn new_key(&self) -> Option<&Secret> {
        self.inner.new_key.as_ref()
    }

    /// Where it listens, once it does.
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

    /// The volumes.
    pub fn volumes(&self) -> &Volumes {
        &self.inner.volumes
    }

    pub(crate) fn config(&self) -> &Config {
        &self.inner.config
    }

    /// The host.
    pub(crate) fn node(&self) -> &Node {
        &self.inner.node
    }

    /// What is counted.
    pub(crate) fn telemetry(&self) -> &Telemetry {
        &self.inner.telemetry
    }

    /// Who asks how often.
    pub(crate) fn limiter(&self) -> &Limiter {
        &self.inner.limiter
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.inner.draining.load(Ordering::Relaxed)
    }

    /// Base of the host names of sandboxes.
    pub(crate) fn domain(&self) -> Option<String> {
        let local = || self.local_addr().map(|address| format!("localhost:{}", address.port()));
        self.inner.config.domain.clone().or_else(local)
    }

    /// Serves until `shutdown`. Requests under way then get the grace period, sandbox streams are cut, the store is
    /// written out; sandboxes stay as they are and are found again at the next start.
    pub async fn serve(&self, listener: TcpListener, shutdown: CancellationToken) -> Result<()> {
        let address = listener.local_addr().map_err(Error::Serve)?;
        // A second call is a second listener; the first one stays the address that is told.
        let _ = self.inner.local_addr.set(address);
        let server = Arc::new(Server { app: self.clone(), router: router(self.clone()) });
        let connections = TaskTracker::new();
        let closing = CancellationToken::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = shutdown.cancelled() => break,
            };
            match accepted {
                Ok((stream, _)) => {
                    connections.spawn(server.clone().connection(stream, closing.clone()));
                }
                Err(err) => {
                    // Out of descriptors, most likely: some will come back.
                    tracing::warn!(error = %err, "connection could not be accepted");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
            }
        }
        drop(listener);
        self.inner.draining.store(true, Ordering::Relaxed);
        closing.cancel();
        connections.close();
        self.inner.sandboxes.cut_streams();
        if tokio::time::timeout(self.inner.config.grace, connections.wait()).await.is_err() {
            tracing::warn!(open = connections.len(), "stopping with connections still open");
        }
        self.stop().await;
        Ok(())
    }

    /// Stops everything that does not listen: drivers, then the store. [`App::serve`] does it too.
    pub async fn stop(&self) {
        self.inner.sandboxes.stop().await;
        self.inner.store.close().await;
    }
}

struct Server {
    app: App,
    router: Router,
}

impl Server {
    async fn connection(self: Arc<Self>, stream: TcpStream, closing: CancellationToken) {
        if let Err(err) = stream.set_nodelay(true) {
            tracing::debug!(error = %err, "connection ended before it began");
            return;
        }
        let stream = Connection::new(stream);
        let cut_short = stream.cut_short();
        let service = service_fn(|request: Request<Incoming>| {
            let server = self.clone();
            let reset = (request.version() < Version::HTTP_2).then(|| cut_short.clone());
            async move {
                let answer = server.answer(request).await.map(|body| Resetting::new(body, reset));
                Ok::<_, std::convert::Infallible>(answer)
            }
        });
        // Both versions of the protocol; no timer, so that streams may be silent for as long as they like.
        let builder = auto::Builder::new(TokioExecutor::new()).title_case_headers(true);
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let result = tokio::select! {
            result = connection.as_mut() => result,
            () = closing.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(err) = result {
            tracing::debug!(error = %err, "connection ended early");
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Answer> {
        let (uri, headers) = (request.uri(), request.headers());
        let host = asked_host(uri.authority().map(Authority::as_str), headers);
        match host.and_then(|host| route(host, headers, uri.path(), &self.app.inner.prefixes)) {
            Ok((Target::Api, cut)) => self.api(request, cut).await.map(Answer::Api),
            Ok((target, cut)) => {
                let span = tracing::debug_span!("traffic", target = ?target);
                proxy::serve(&self.app, request, target, cut).instrument(span).await
            }
            Err(refusal) => error::refused(&refusal, format_for(request.headers())).map(Answer::Api),
        }
    }

    async fn api(&self, mut request: Request<Incoming>, cut: usize) -> Response<axum::body::Body> {
        if cut > 0 {
            *request.uri_mut() = proxy::local_uri(request.uri(), cut);
        }
        let id = uuid::Uuid::new_v4();
        let span = tracing::info_span!(
            "api",
            request_id = %id,
            team_id = Empty,
            sandbox_id = Empty,
            http.request.method = %request.method(),
            http.route = Empty,
            http.response.status_code = Empty,
            otel.kind = "server",
            otel.status_code = Empty,
        );
        traces::continue_from(&span, request.headers());
        let deadline = deadline(request.uri().path());
        let answer = self.router.clone().oneshot(request.map(axum::body::Body::new)).instrument(span.clone());
        let answer = match tokio::time::timeout(deadline, answer).await {
            Ok(Ok(answer)) => answer,
            Err(_) => span.in_scope(|| Error::Deadline.into_response()),
        };
        span.record("http.response.status_code", answer.status().as_u16());
        if answer.status().is_server_error() {
            traces::failed(&span);
        }
        traces::end(&span);
        answer
    }
}
