//! `sandcove sandbox egress`.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use sandcove_client::Client;
use sandcove_wire::api::observe::EgressConnection;
use sandcove_wire::id::SandboxId;
use serde_json::json;

use super::candidates;
use super::exec::is_gone;
use crate::output;

/// Pause between two questions for what is new.
const POLL: Duration = Duration::from_millis(500);

/// Arguments of `egress`.
#[derive(Debug, Args)]
pub struct EgressArgs {
    /// id of the sandbox
    #[arg(add = candidates::sandboxes())]
    id: SandboxId,
    /// keep printing connections as they close, until the sandbox ends
    #[arg(short, long)]
    follow: bool,
    /// print each connection as JSON, one on a line
    #[arg(long)]
    json: bool,
}

/// Prints the egress log of a sandbox.
pub async fn egress(client: &Client, args: EgressArgs) -> Result<ExitCode> {
    let mut printed = BTreeSet::new();
    loop {
        let connections = client.egress(&args.id).await?;
        for connection in &connections {
            let is_due = !args.follow || connection.ended_at.is_some();
            if !is_due || !printed.insert(connection.number) {
                continue;
            }
            let line = match args.json {
                true => json!(connection).to_string(),
                false => output::plain(&shown(connection)),
            };
            if output::write(format!("{line}\n").as_bytes()).is_err() {
                return Ok(ExitCode::SUCCESS);
            }
        }
        if !args.follow || is_gone(client, &args.id).await {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::time::sleep(POLL).await;
    }
}

fn shown(connection: &EgressConnection) -> String {
    let EgressConnection { began_at, host, address, port, .. } = connection;
    let verdict = match (connection.allowed, &connection.error) {
        (false, _) => "denied ",
        (true, Some(_)) => "failed ",
        (true, None) => "allowed",
    };
    let place = match host {
        Some(host) => format!("{host}:{port} ({address})"),
        None => format!("{address}:{port}"),
    };
    let mut line = format!(
        "{began_at:.3} {verdict} {place}  sent {} B  received {} B",
        connection.sent_bytes, connection.received_bytes
    );
    if let Some(rule) = &connection.rule {
        line += &format!("  by {} {}", rule.list, rule.entry);
    }
    if connection.proxied {
        line += "  through the proxy";
    }
    if let Some(error) = &connection.error {
        line += &format!("  {error}");
    }
    line
}
