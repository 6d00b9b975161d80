//! The code interpreter of a sandbox: an HTTP server that runs cells of code in contexts (contract: interpreter).
//!
//! Each module uses only those below it, besides `config`, `language` and `envs`, which use none:
//!
//! ```text
//! http       requests and answers; nothing else knows about HTTP
//! contexts   which contexts exist, and which one a request means
//! context    one task per context: its queue, its kernel, its variables, the events of a running execution
//! launch     how a kernel of each language is started
//! jupyter    kernels that others wrote: their messages become frames
//! kernel     a running kernel process: requests, frames, output pipes, signals, death
//! ```
//!
//! A kernel says *frames*; a client hears *events*. The path of a cell through `POST /execute`:
//!
//! ```text
//! client                http, contexts       context: driver         context: execution     kernel
//!   |                         |                    |                        |                  |
//!   |-- POST /execute ------->|                    |                        |                  |
//!   |                         |-- Execution ------>| (waits in its queue)   |                  |
//!   |<- 200, head of stream --|                    |                        |                  |
//!   |                         |                    |-- GET /envs of the agent, at the context's first execution and in a copy of the sandbox
//!   |                         |                    |-- start, if there is none (launch) ------>|
//!   |                         |                    |<--------------------------- Frame::Hello -|
//!   |                         |                    |-- Request::Environment, Directory, Variables (global) --->|
//!   |                         |                    |-- Request::Variables (those of the cell) >|
//!   |                         |                    |-- run ---------------->|                  |
//!   |                         |                    |                        |-- R.::Execute -->|
//!   |                         |                    |                        |<- Frame::Started |
//!   |<- Event::NumberOfExecutions, as one line of JSON ---------------------|                  |
//!   |                         |                    |                        |<- Frame::Output, Result, ..
//!   |<- Event::Stdout, Result, .. (`outbox` turns frames into events) ------|                  |
//!   |                         |                    |                        |<- Frame::Done ---|
//!   |<- Event::EndOfExecution ----------------------------------------------|                  |
//!   |                         |                    |<- Outcome -------------|                  |
//!   |                         |                    |-- Request::Variables (global values) ---->|
//! ```
//!
//! In the modules `kernel` and `launch`, a *host* is a kernel host: a program of ours that runs cells of one language, as opposed to a
//! Jupyter kernel. A Python kernel is a fork of the sandbox's *zygote*, a Python process that has done its imports (`launch/zygote.rs`), and the code
//! of both is the package `sandcove_kernel` in `python/`. What a kernel does with a cell begins in its `serve.py`; its prints and
//! values come back through `streams.py` and `shell.py`, and all that it sends goes through `channel.py`.
//!
//! A context owns one kernel process at a time and runs one execution at a time. All queues on this path are bounded, so a
//! slow client slows the code down instead of filling memory, and a client that sends more than a context runs has to wait.

pub mod config;
pub mod context;
pub mod contexts;
pub mod envs;
#[cfg(any(test, fuzzing, debug_assertions))]
pub mod fuzzing;
pub mod http;
pub mod jupyter;
pub mod kernel;
pub mod language;
pub mod launch;
mod readable;

use std::sync::Arc;

use axum::serve::ListenerExt;
use tokio::net::TcpListener;

pub use config::Config;
use contexts::Contexts;

/// Serves until the process ends. The port opens once the default Python context works, so that a client that can connect can
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
    // The lines of a stream are small and must not wait for each other.
    let listener = listener.tap_io(|connection| {
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!(%error, "failed to set TCP_NODELAY");
        }
    });
    axum::serve(listener, http::router(contexts)).await?;
    Ok(())
}
