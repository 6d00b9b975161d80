//! The code interpreter of a sandbox: an HTTP server that runs cells of code in contexts (contract: interpreter).
//!
//! ```text
//! http       requests and answers; nothing else knows about HTTP
//!  contexts  which contexts exist, which one a request means
//!   context  one task per context: its queue, its kernel, its variables, the lines of a running execution
//!    kernel  a running kernel process: frames, output pipes, signals, death
//!     python, program, jupyter  how a kernel of each language is started
//! ```
//!
//! A context owns one kernel process at a time and runs one execution at a time. Everything a kernel says reaches the client
//! through a bounded queue, so a slow client slows the code down instead of filling memory.

pub mod config;
pub mod context;
pub mod contexts;
pub mod envs;
pub mod http;
pub mod jupyter;
pub mod kernel;
pub mod language;
pub mod launch;
pub mod program;
pub mod python;

use std::sync::Arc;

use axum::serve::ListenerExt;
use tokio::net::TcpListener;

pub use config::Config;
use contexts::Contexts;

/// Serves until the process ends. The port opens once the default Python context works, so that whoever can connect can
/// also run code.
pub async fn run(config: Config) -> anyhow::Result<()> {
    let address = config.listen;
    let contexts = Arc::new(Contexts::new(config));
    contexts.create_defaults().await?;
    let listener = TcpListener::bind(address).await?;
    tracing::info!(%address, "serving");
    serve(listener, contexts).await
}

/// Serves `contexts` on `listener`.
pub async fn serve(listener: TcpListener, contexts: Arc<Contexts>) -> anyhow::Result<()> {
    // Lines of a stream are small and must not wait for each other.
    let listener = listener.tap_io(|connection| {
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!(%error, "failed to set TCP_NODELAY");
        }
    });
    axum::serve(listener, http::router(contexts)).await?;
    Ok(())
}
