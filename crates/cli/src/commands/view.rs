//! `sandcove view`: shows stored evaluations in a browser.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};
use clap::Args;
use sandcove_viewer::Viewer;

#[derive(Debug, Args)]
pub struct ViewArgs {
    /// where evaluations are stored [default: $PROMPTFOO_CONFIG_DIR or ~/.sandcove]
    directory: Option<PathBuf>,
    /// port; 0 takes one that is free
    #[arg(short, long, default_value_t = 15500)]
    port: u16,
    /// address; others than this machine's own need the token that is printed
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_parser = address)]
    host: IpAddr,
    /// open a browser without asking; it is never asked here
    #[arg(short, long)]
    yes: bool,
    /// do not open a browser
    #[arg(short, long, conflicts_with = "yes")]
    no: bool,
    /// accepted for compatibility: the list on the page is searched instead
    #[arg(long, hide = true)]
    filter_description: Option<String>,
}

fn address(text: &str) -> Result<IpAddr> {
    if text == "localhost" {
        return Ok(Ipv4Addr::LOCALHOST.into());
    }
    text.parse().with_context(|| format!("`{text}` is no address; use 127.0.0.1, or 0.0.0.0 for all"))
}

/// Serves until Ctrl-C.
pub async fn view(args: ViewArgs) -> Result<ExitCode> {
    let directory = args.directory.unwrap_or_else(sandcove_eval::store::directory);
    let wanted = SocketAddr::new(args.host, args.port);
    let viewer = Viewer::bind(wanted, directory)
        .await
        .with_context(|| format!("failed to listen on {wanted} (--port takes another port)"))?;
    let address = viewer.address()?;
    let url = match viewer.token() {
        Some(token) => format!("http://{address}/?token={}", token.as_str()),
        None => format!("http://{address}/"),
    };
    println!("{url}");
    if args.yes || !args.no {
        open(&url);
    }
    viewer
        .serve(async {
            let _ = tokio::signal::ctrl_c().await;
        })
        .await?;
    Ok(ExitCode::SUCCESS)
}

/// Opens a browser, if there is a screen to show it on.
fn open(url: &str) {
    let screen = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
    if screen {
        let quiet = || Stdio::null();
        let _ = Command::new("xdg-open").arg(url).stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn();
    }
}
