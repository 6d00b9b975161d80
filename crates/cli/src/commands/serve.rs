//! `sandcove serve`: a server in the foreground.

use std::process::ExitCode;

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::data_dir::ServerFile;
use crate::host::Host;
use crate::settings::Settings;

pub async fn serve(settings: &Settings) -> Result<ExitCode> {
    let host = Host::prepare(settings).await?;
    host.file().write(&settings.data_dir)?;
    eprintln!("sandcove is listening on {}", host.file().url);
    print!("{}", host.file().exports());
    std::io::Write::flush(&mut std::io::stdout()).context("failed to write to standard output")?;

    let client = host.file().client()?;
    let stop_sandboxes = settings.stop_sandboxes;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if stop_sandboxes {
            eprintln!("stopping, and ending all sandboxes");
            if let Err(error) = end_all(&client).await {
                eprintln!("failed to end all sandboxes: {error:#}");
            }
        } else {
            eprintln!("stopping; sandboxes keep running and are found again at the next start");
        }
        stopping.cancel();
    });
    host.serve(stop).await?;
    Ok(ExitCode::SUCCESS)
}

async fn end_all(client: &sandcove_client::Client) -> Result<()> {
    for sandbox in client.list().await? {
        client.kill(&sandbox.sandbox_id).await?;
    }
    Ok(())
}

/// What `server.json` says of a server that runs, in words for an error.
pub fn not_running(file: Option<&ServerFile>) -> String {
    match file {
        Some(file) => format!("no server answers at {}: start one with `sandcove up`", file.url),
        None => "no server has run with this data directory: start one with `sandcove up`".to_owned(),
    }
}
