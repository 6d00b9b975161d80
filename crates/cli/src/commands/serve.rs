//! `sandcove serve`: a server in the foreground.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::env;
use crate::data_dir::{ServerFile, Unused};
use crate::host::{Host, Stop};
use crate::notify::{ServerState, notify};
use crate::output::note;
use crate::settings::Settings;
use crate::split::Split;

/// Runs a server until a signal stops it, in two processes or, without an account for the second one, in this process.
pub async fn serve(settings: &Settings, account: Option<u32>) -> Result<ExitCode> {
    notify(ServerState::Starting);
    let unused = Unused::note(&settings.data_dir);
    let discard = |error| {
        unused.remove();
        error
    };
    match account {
        Some(account) => {
            let split = Split::start(settings, account).await.map_err(discard)?;
            let stops = announce(split.file(), settings)?;
            split.serve(stops.next()).await
        }
        None => {
            let host = Host::prepare(settings).await.map_err(discard)?;
            let stops = announce(host.file(), settings)?;
            let (exit, stop) = (host.exit(), CancellationToken::new());
            let stopping = stop.clone();
            tokio::spawn(async move {
                exit.begin(stops.next().await).await;
                stopping.cancel();
            });
            host.serve(stop).await?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Says that the server is ready, and how it is reached. Signals are caught before: somebody who reads that may send one at once.
fn announce(file: &ServerFile, settings: &Settings) -> Result<Stops> {
    let usual = match settings.stop_sandboxes {
        true => Stop::EndingSandboxes,
        // The first process of a container, with which all others end.
        false if std::process::id() == 1 => Stop::WithHost,
        false => Stop::KeepingSandboxes,
    };
    let stops = Stops::catch(usual)?;
    file.write(&settings.data_dir)?;
    note!("sandcove is listening on {}", file.url);
    env::announce(file, &settings.data_dir)?;
    notify(ServerState::Ready);
    Ok(stops)
}

/// The signals that stop a server.
struct Stops {
    usual: Stop,
    interrupt: Signal,
    terminate: Signal,
    end_all: Signal,
}

impl Stops {
    /// Catches the signals from now on.
    fn catch(usual: Stop) -> std::io::Result<Self> {
        Ok(Self {
            usual,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            end_all: signal(SignalKind::user_defined1())?,
        })
    }

    /// Waits for one, and says how the server is to stop.
    async fn next(mut self) -> Stop {
        let how = tokio::select! {
            _ = self.interrupt.recv() => self.usual,
            _ = self.terminate.recv() => self.usual,
            // From `sandcove down --all`.
            _ = self.end_all.recv() => Stop::EndingSandboxes,
        };
        notify(ServerState::Stopping);
        match how {
            Stop::EndingSandboxes => note!("stopping, and killing all sandboxes"),
            Stop::WithHost => {
                note!("stopping; running sandboxes end with this container, paused ones are kept");
            }
            Stop::KeepingSandboxes => {
                note!("stopping; sandboxes keep running and are found again at the next start");
            }
        }
        how
    }
}

/// The error when nothing names a server and none has run with the data directory.
pub fn not_running(data_dir: &Path) -> String {
    format!(
        "no server has run with the data directory `{}`\nhint: `sandcove up` starts one; --data-dir names another directory",
        data_dir.display()
    )
}
