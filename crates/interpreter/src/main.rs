//! `sandcove-interpreter`: reads its settings from the environment and serves.
#![forbid(unsafe_code)]

use anyhow::Context;
use sandcove_interpreter::Config;
use tracing_subscriber::EnvFilter;

fn main() -> anyhow::Result<()> {
    let filter =
        EnvFilter::try_from_env("SANDCOVE_INTERPRETER_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let config = Config::from_env()?;
    // One thread, as kernels do the work and need the processors.
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start the runtime")?
        .block_on(sandcove_interpreter::run(config))
}
