//! `sandcove redteam setup`: the steps of `redteam init` as pages in a browser, with a button that runs the result.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use sandcove_viewer::Viewer;

use crate::commands::ports::browse;
use crate::commands::reach::Place;
use crate::output::out;
use crate::signals::Signals;

#[derive(Debug, Args)]
pub(super) struct SetupArgs {
    /// directory that the configuration is written to [default: this directory]
    directory: Option<PathBuf>,
    /// port; 0 for a free one
    #[arg(short, long, default_value_t = 15500)]
    port: u16,
    /// do not open a browser
    #[arg(short, long)]
    no: bool,
    /// accepted for compatibility; search the list of runs on the page instead
    #[arg(long, hide = true)]
    filter_description: Option<String>,
}

/// Serves the pages until Ctrl-C.
pub(super) async fn setup(args: SetupArgs, place: &Place) -> Result<ExitCode> {
    let here = std::env::current_dir().context("failed to find this directory")?;
    let directory = args.directory.map_or_else(|| here.clone(), |directory| here.join(directory));
    // The pages run programs, so they are for this machine only.
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), args.port);
    let viewer = Viewer::bind_running(
        address,
        std::path::absolute(sandcove_eval::home::directory())?,
        place.command()?,
        Some(directory),
    )
    .await
    .with_context(|| format!("failed to listen on {address} (--port takes another port)"))?;
    let token = viewer.token().context("the pages have no token")?.as_str().to_owned();
    let url = format!("http://{}/redteam/setup?token={token}", viewer.address()?);
    // Whatever ends this process ends the red team that it runs.
    let mut signals = Signals::catch().context("failed to catch signals")?;
    out!("{url}");
    if !args.no {
        browse(&url);
    }
    viewer
        .serve(async move {
            signals.next().await;
        })
        .await?;
    Ok(ExitCode::SUCCESS)
}
