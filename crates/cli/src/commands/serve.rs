//! `sandcove serve`: a server in the foreground.

use std::process::ExitCode;

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::env;
use crate::data_dir::ServerFile;
use crate::host::{Host, Stop};
use crate::output::note;
use crate::settings::Settings;

/// Runs a server until a signal stops it.
pub async fn serve(settings: &Settings) -> Result<ExitCode> {
    let host = Host::prepare(settings).await?;
    host.file().write(&settings.data_dir)?;
    note!("sandcove is listening on {}", host.file().url);
    env::announce(host.file(), &settings.data_dir)?;

    let usual = if settings.stop_sandboxes { Stop::EndingSandboxes } else { Stop::KeepingSandboxes };
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut end_all = signal(SignalKind::user_defined1())?;
    let (exit, stop) = (host.exit(), CancellationToken::new());
    let stopping = stop.clone();
    tokio::spawn(async move {
        let how = tokio::select! {
            _ = interrupt.recv() => usual,
            _ = terminate.recv() => usual,
            // From `sandcove down --all`.
            _ = end_all.recv() => Stop::EndingSandboxes,
        };
        match how {
            Stop::EndingSandboxes => note!("stopping, and killing all sandboxes"),
            Stop::KeepingSandboxes => {
                note!("stopping; sandboxes keep running and are found again at the next start");
            }
        }
        exit.begin(how).await;
        stopping.cancel();
    });
    host.serve(stop).await?;
    Ok(ExitCode::SUCCESS)
}

/// The error for a server that does not answer, with the address from `server.json`.
pub fn not_running(file: Option<&ServerFile>) -> String {
    match file {
        Some(file) => format!("no server answers at {}; start one with `sandcove up`", file.url),
        None => "no server has run with this data directory; start one with `sandcove up`".to_owned(),
    }
}
