//! `sandcove sandbox forward`: ports of a sandbox on this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, Result};
use sandcove_client::Sandbox;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::output::out;
use crate::signals::Signals;

/// A port of a sandbox and its local port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortPair {
    remote: u16,
    /// Local port; 0 for any free one.
    local: u16,
}

impl FromStr for PortPair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (remote, local) = text.split_once(':').unwrap_or((text, text));
        let number = |part: &str| part.parse::<u16>().map_err(|_| format!("invalid port `{part}`"));
        match (number(remote)?, number(local)?) {
            (0, _) => Err("port 0 of a sandbox cannot be forwarded".to_owned()),
            (remote, local) => Ok(Self { remote, local }),
        }
    }
}

/// Forwards ports until a signal ends it.
pub async fn forward(sandbox: &Sandbox, ports: &[PortPair], as_json: bool) -> Result<ExitCode> {
    // Before the first port is printed, upon which a client may end this process.
    let mut signals = Signals::catch().context("failed to catch signals")?;
    let mut forwards = JoinSet::new();
    for &PortPair { remote, local } in ports {
        for listener in listeners(local).await? {
            let (local, id) = (listener.local_addr()?, sandbox.id());
            match as_json {
                true => out!("{}", json!({ "sandboxID": id, "port": remote, "local": local })),
                false => out!("{local} -> {id}:{remote}"),
            }
            let sandbox = sandbox.clone();
            forwards.spawn(async move { sandbox.forward(remote, listener).await });
        }
    }
    signals.next().await;
    forwards.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

/// Listens on `localhost`: on IPv4, and on IPv6 if this machine has it and the port is free there.
async fn listeners(port: u16) -> Result<Vec<TcpListener>> {
    let ipv4 = TcpListener::bind((IpAddr::from(Ipv4Addr::LOCALHOST), port)).await.with_context(|| {
        format!("failed to listen on 127.0.0.1:{port} (PORT:LOCAL takes another local port)")
    })?;
    let port = ipv4.local_addr()?.port();
    let ipv6 = TcpListener::bind((IpAddr::from(Ipv6Addr::LOCALHOST), port)).await;
    Ok(std::iter::once(ipv4).chain(ipv6.ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_may_be_another_one_here() {
        assert_eq!("8080".parse(), Ok(PortPair { remote: 8080, local: 8080 }));
        assert_eq!("80:8080".parse(), Ok(PortPair { remote: 80, local: 8080 }));
        assert_eq!("80:0".parse(), Ok(PortPair { remote: 80, local: 0 }));
        for bad in ["", ":", "0", "0:80", "80:", "70000", "a", "1:2:3"] {
            assert!(bad.parse::<PortPair>().is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_named() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = listeners(port).await.unwrap_err();
        assert!(error.to_string().starts_with(&format!("failed to listen on 127.0.0.1:{port} (")));
    }
}
