//! The page of stored evaluations, and the HTTP server behind it.
//!
//! [`sandcove_eval::view`] reads the runs; this crate has the routes, decides who may use them, and serves the page. The page is
//! embedded in the program and sends requests to this server only. Whatever comes from rows is hostile: it is inserted as text only.
#![forbid(unsafe_code)]

mod assets;
mod error;
mod guard;
mod live;
mod manage;
mod read;
mod rerun;
mod running;
mod setup;
mod shared;
mod table;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::middleware;
use axum::routing::{get, patch, post};
use futures_util::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub use guard::Token;
pub use running::STARTER;
use shared::Shared;

/// A server that is bound and not yet running.
#[derive(Debug)]
pub struct Viewer {
    listener: TcpListener,
    token: Option<Token>,
    shared: Arc<Shared>,
}

impl Viewer {
    /// Binds `address`. Clients need the [`token`](Self::token), unless it is a loopback address.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn bind(address: SocketAddr, directory: PathBuf) -> std::io::Result<Self> {
        Self::with(address, directory, None, None).await
    }

    /// As [`bind`](Self::bind), with pages that run stored runs again with the program and arguments of `command`, and set up red teams in the directory
    /// `setup`. Every client needs the token, for they run programs.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub async fn bind_running(
        address: SocketAddr,
        directory: PathBuf,
        command: Vec<OsString>,
        setup: Option<PathBuf>,
    ) -> std::io::Result<Self> {
        Self::with(address, directory, Some(command), setup).await
    }

    async fn with(
        address: SocketAddr,
        directory: PathBuf,
        command: Option<Vec<OsString>>,
        setup: Option<PathBuf>,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let needs_token = command.is_some() || !address.ip().is_loopback();
        let shared = Arc::new(Shared::new(directory, command, setup));
        Ok(Self { listener, token: needs_token.then(Token::random), shared })
    }

    /// Returns the address that the server is bound to.
    ///
    /// # Errors
    /// When the system call fails.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns the token that clients need, if any.
    pub fn token(&self) -> Option<&Token> {
        self.token.as_ref()
    }

    /// Serves until `end` is ready. Pages that wait for changes do not keep the server running.
    ///
    /// # Errors
    /// When connections cannot be accepted any more.
    pub async fn serve(self, end: impl Future<Output = ()>) -> std::io::Result<()> {
        let watching = self.watch();
        let ended = tokio::select! {
            ended = self.accept() => ended,
            () = end => Ok(()),
        };
        watching.abort();
        ended
    }

    fn watch(&self) -> JoinHandle<()> {
        tokio::spawn(live::watch(Arc::clone(&self.shared)))
    }

    /// Serves for ever. Boxed, so that this crate compiles it, and not the one that calls [`Viewer::serve`].
    fn accept(self) -> BoxFuture<'static, std::io::Result<()>> {
        Box::pin(async { axum::serve(self.listener, router(self.shared, self.token)).await })
    }
}

/// Every route, guarded.
pub(crate) fn router(shared: Arc<Shared>, token: Option<Token>) -> Router {
    let api = Router::new()
        .route("/version", get(read::version))
        .route("/events", get(live::events))
        .route("/results", get(read::runs))
        .route("/results/{id}", get(read::document))
        .route("/prompts", get(read::prompts))
        .route("/prompts/{dataset}", get(read::prompts_of))
        .route("/datasets", get(read::datasets))
        .route("/history", get(read::history))
        .route("/eval", axum::routing::delete(manage::forget_many))
        .route("/eval/{id}", patch(manage::amend).delete(manage::forget))
        .route("/eval/{id}/author", patch(manage::set_author))
        .route("/eval/{id}/copy", post(manage::copy))
        .route("/eval/{id}/run", post(rerun::run))
        .route("/eval/{id}/table", get(table::table))
        .route("/eval/{id}/metadata-keys", get(read::metadata_keys))
        .route("/eval/{id}/metadata-values", get(read::metadata_values))
        .route("/eval/{id}/scores", get(read::scores))
        .route("/eval/{id}/results/{row}", get(read::row))
        .route("/eval/{id}/results/{row}/rating", post(manage::rate))
        .route("/redteam/report/{id}", get(read::red_team))
        .route("/redteam/setup", get(setup::offer).post(setup::write))
        .route("/redteam/review", post(setup::review))
        .route("/run/output", get(rerun::output))
        .route("/run/stop", post(rerun::stop))
        .fallback(error::no_route);
    Router::new()
        .nest("/api", api)
        .route("/health", get(read::health))
        .fallback(assets::asset)
        .with_state(shared)
        .layer(middleware::from_fn_with_state(Arc::new(token), guard::guard))
}
