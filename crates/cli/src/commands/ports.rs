//! `sandcove sandbox ports` and `open`: addresses at which a sandbox is reached.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::process::{ExitCode, Stdio};

use anyhow::{Result, bail};
use clap::Args;
use sandcove_client::{Client, CommandEvent, Program};
use sandcove_wire::id::SandboxId;
use serde_json::json;

use super::candidates;
use crate::output::{self, out};
use crate::table::table;

/// State of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";
/// Addresses on which the server reaches a service, as `/proc/net/tcp` and `/proc/net/tcp6` have them: all, loopback, and IPv4 in IPv6.
const REACHED: [&str; 6] = [
    "00000000",
    "0100007F",
    "00000000000000000000000000000000",
    "00000000000000000000000001000000",
    "0000000000000000FFFF000000000000",
    "0000000000000000FFFF00000100007F",
];
/// Ports of Sandcove's own services in every sandbox.
const OWN: [u16; 2] = [sandcove_wire::boot::AGENT_PORT, sandcove_wire::boot::INTERPRETER_PORT];

/// Arguments of `ports`.
#[derive(Debug, Args)]
pub struct PortsArgs {
    /// id of the sandbox
    #[arg(add = candidates::running())]
    id: SandboxId,
    /// list ports of Sandcove's own services too
    #[arg(short, long)]
    all: bool,
    /// print JSON
    #[arg(long)]
    json: bool,
}

/// Lists the ports on which programs in a sandbox listen, with their URLs.
pub async fn ports(client: &Client, args: PortsArgs) -> Result<ExitCode> {
    let sandbox = client.attach(&args.id).await?;
    // Read by a program, as these files have no size. A kernel without IPv6 has only the first.
    let program = Program {
        program: "cat".to_owned(),
        arguments: ["/proc/net/tcp", "/proc/net/tcp6"].map(str::to_owned).to_vec(),
        ..Program::default()
    };
    let mut text = Vec::new();
    let piece = |event| match event {
        CommandEvent::Stdout(bytes) => text.extend_from_slice(&bytes),
        CommandEvent::Stderr(_) => {}
    };
    let exit = sandbox.run_program(&program, piece).await?;
    if text.is_empty() {
        bail!("failed to read the sockets of sandbox {}: `cat` ended with {}", args.id, exit.status);
    }
    let ports = listening(&String::from_utf8_lossy(&text));
    let mut rows = Vec::new();
    for port in ports.into_iter().filter(|port| args.all || !OWN.contains(port)) {
        rows.push((port, client.port_url(&args.id, port).await?));
    }
    if args.json {
        let rows: Vec<_> = rows.iter().map(|(port, url)| json!({ "port": port, "url": url })).collect();
        out!("{}", json!(rows));
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<_> = rows.into_iter().map(|(port, url)| [port.to_string(), url]).collect();
    let _ = output::write(table(["port", "url"], &rows).as_bytes());
    Ok(ExitCode::SUCCESS)
}

/// The ports of listening sockets in the text of `/proc/net/tcp` and `/proc/net/tcp6`, on addresses at which a service is reached. The
/// agent's address for questions about the sandbox (192.0.2.1) is none.
fn listening(text: &str) -> BTreeSet<u16> {
    let port = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (address, port) = words.next()?.rsplit_once(':')?;
        let state = words.nth(1)?;
        let is_reached = state == LISTENING && REACHED.contains(&address);
        is_reached.then(|| u16::from_str_radix(port, 16).ok()).flatten()
    };
    text.lines().filter_map(port).collect()
}

/// Arguments of `open`.
#[derive(Debug, Args)]
pub struct OpenArgs {
    /// id of the sandbox
    #[arg(add = candidates::running())]
    id: SandboxId,
    /// port of the sandbox [default: the page of the sandbox in the dashboard]
    port: Option<u16>,
    /// print the address and open nothing
    #[arg(long)]
    print: bool,
    /// print JSON, and open nothing
    #[arg(long)]
    json: bool,
}

/// Prints an address of a sandbox, and opens it in a browser if this is a terminal with a screen.
pub async fn open(client: &Client, args: OpenArgs) -> Result<ExitCode> {
    let url = match args.port {
        Some(port) => client.port_url(&args.id, port).await?,
        None => {
            client.info(&args.id).await?;
            format!("{}/dashboard/inspect/sandbox/{}", client.url(), args.id)
        }
    };
    if args.json {
        out!("{}", json!({ "url": url }));
        return Ok(ExitCode::SUCCESS);
    }
    out!("{url}");
    if !args.print && std::io::stdout().is_terminal() {
        browse(&url);
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens a browser, if there is a screen to show it on.
pub fn browse(url: &str) {
    let screen = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
    if screen {
        let quiet = || Stdio::null();
        let _ = std::process::Command::new("xdg-open")
            .arg(url)
            .stdin(quiet())
            .stdout(quiet())
            .stderr(quiet())
            .spawn();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agents_own_address_is_no_service() {
        let own = "   0: 010200C0:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0\n";
        assert!(listening(own).is_empty());
        let mapped = "   0: 0000000000000000FFFF00000100007F:0050 0000000000000000FFFF000000000000:0000 0A\n";
        assert_eq!(listening(&format!("{own}{mapped}")).into_iter().collect::<Vec<_>>(), [80]);
    }

    #[test]
    fn only_listening_sockets_count() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n\
             0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000\n\
             1: 0100007F:1F91 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000\n\
             0: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A 00000000:00000000\n";
        assert_eq!(listening(text).into_iter().collect::<Vec<_>>(), [80, 8080]);
    }
}
