//! `sandcove view`: shows stored evaluations in a browser.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use sandcove_viewer::Viewer;

use super::ports::browse;
use super::reach::Place;
use crate::output::out;
use crate::signals::Signals;

#[derive(Debug, Args)]
pub struct ViewArgs {
    /// directory of the stored evaluations [default: $PROMPTFOO_CONFIG_DIR or ~/.sandcove]
    directory: Option<PathBuf>,
    /// port; 0 for a free one
    #[arg(short, long, default_value_t = 15500)]
    port: u16,
    /// address to listen on; clients of any but a loopback address need the printed token
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_parser = address)]
    host: IpAddr,
    /// offer to run stored runs again; clients need the printed token, because this runs programs
    #[arg(long)]
    run: bool,
    /// accepted for compatibility; a browser is opened by default
    #[arg(short, long)]
    yes: bool,
    /// do not open a browser
    #[arg(short, long, conflicts_with = "yes")]
    no: bool,
    /// accepted for compatibility; search the list on the page instead
    #[arg(long, hide = true)]
    filter_description: Option<String>,
}

fn address(text: &str) -> Result<IpAddr> {
    if text == "localhost" {
        return Ok(Ipv4Addr::LOCALHOST.into());
    }
    text.parse().with_context(|| format!("invalid address `{text}`; use 127.0.0.1, or 0.0.0.0 for all"))
}

/// Serves the page until a signal ends it.
pub async fn view(args: ViewArgs, place: &Place) -> Result<ExitCode> {
    if let Some(missing) = args.directory.as_ref().filter(|directory| !directory.is_dir()) {
        bail!(
            "`{}` is not a directory of stored evaluations\nhint: leave it out to see those of this account",
            missing.display()
        );
    }
    let directory = args.directory.unwrap_or_else(sandcove_eval::home::directory);
    let wanted = SocketAddr::new(args.host, args.port);
    if args.run && !args.host.is_loopback() {
        bail!("--run is for this machine only\nhint: leave out --host, or --run");
    }
    let bound = match args.run {
        true => Viewer::bind_running(wanted, std::path::absolute(directory)?, place.command()?, None).await,
        false => Viewer::bind(wanted, directory).await,
    };
    let viewer =
        bound.with_context(|| format!("failed to listen on {wanted} (--port takes another port)"))?;
    let address = viewer.address()?;
    let address = SocketAddr::new(reachable(address.ip()), address.port());
    let url = match viewer.token() {
        Some(token) => format!("http://{address}/?token={}", token.as_str()),
        None => format!("http://{address}/"),
    };
    let mut signals = Signals::catch().context("failed to catch signals")?;
    out!("{url}");
    if args.yes || !args.no {
        browse(&url);
    }
    viewer
        .serve(async move {
            signals.next().await;
        })
        .await?;
    Ok(ExitCode::SUCCESS)
}

/// Returns an address that a browser can open: where the server listens on all addresses, the one that other machines reach this one at.
fn reachable(bound: IpAddr) -> IpAddr {
    if !bound.is_unspecified() {
        return bound;
    }
    // Connecting a datagram socket sends nothing; the system only chooses the address it would send from.
    let (any, far) = match bound {
        IpAddr::V4(_) => ("0.0.0.0:0", "192.0.2.1:9"),
        IpAddr::V6(_) => ("[::]:0", "[2001:db8::1]:9"),
    };
    let outgoing = std::net::UdpSocket::bind(any)
        .and_then(|socket| socket.connect(far).and_then(|()| socket.local_addr()));
    match (outgoing, bound) {
        (Ok(address), _) => address.ip(),
        (Err(_), IpAddr::V4(_)) => Ipv4Addr::LOCALHOST.into(),
        (Err(_), IpAddr::V6(_)) => Ipv6Addr::LOCALHOST.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_can_be_opened() {
        for all in ["0.0.0.0", "::"] {
            assert!(!reachable(all.parse().unwrap()).is_unspecified());
        }
        assert_eq!(reachable(Ipv4Addr::LOCALHOST.into()), Ipv4Addr::LOCALHOST);
    }
}
