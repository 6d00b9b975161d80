//! Checks of a running server from the side of a client on this machine: its names, its certificate, and whether it answers by name.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use reqwest::Client;
use tokio::net::lookup_host;

use super::{Check, Status};
use crate::data_dir::{Lock, Names, ServerFile};

/// Time that a client waits for a name and for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A sandbox that does not exist: its port is asked for all the same.
const SANDBOX: &str = "49983-doctor";

/// Checks the server of the data directory, if it runs and takes TLS.
pub(super) async fn all(data_dir: &Path) -> Vec<Check> {
    let file = ServerFile::read(data_dir).ok().flatten().filter(|_| Lock::is_held(data_dir));
    let Some(names) = file.and_then(|file| file.names) else { return Vec::new() };
    let mut checks = vec![resolution(&names).await];
    if !names.records.challenge.is_empty() {
        checks.push(delegation(&names).await);
    }
    checks.push(answers(&names).await);
    checks
}

/// Whether an authority that checks the domain by DNS comes to this server: a name that only it answers for has its address.
async fn delegation(names: &Names) -> Check {
    let host = names.domain.split(':').next().unwrap_or_default();
    let probe = sandcove_names::probe_name(host);
    let found = match tokio::time::timeout(TIMEOUT, lookup_host((probe.as_str(), 443))).await {
        Ok(Ok(addresses)) => addresses.map(|address| address.ip()).collect(),
        _ => Vec::new(),
    };
    let is_ours = found == [std::net::IpAddr::from(sandcove_names::PROBE_ADDRESS)];
    let text = match is_ours {
        true => format!("DNS questions about _acme-challenge.{host} come to this server"),
        false => format!(
            "DNS questions about _acme-challenge.{host} do not come to this server: the DNS lacks `{}`, or, if the names lead here already, \
             only `{}`",
            names.records.all.join("`, `"),
            names.records.challenge
        ),
    };
    let hint = "add the records to the DNS, and open port 53 for UDP and TCP";
    Check::when(is_ours, "delegation", text, Status::Warn, hint)
}

async fn resolution(names: &Names) -> Check {
    let host = names.domain.split(':').next().unwrap_or_default();
    let mut missing = Vec::new();
    for name in [format!("api.{host}"), format!("{SANDBOX}.{host}")] {
        if !has_address(&name).await {
            missing.push(name);
        }
    }
    let hint = match host.ends_with(".localhost") {
        true => {
            "install libnss-myhostname (Debian, Ubuntu), which has `*.localhost` lead to this machine; clients in containers need it \
             there too"
        }
        false => "add records to the DNS: api.<domain> and *.<domain> have to lead to this server",
    };
    let found = match missing.is_empty() {
        true => format!("api.{host} and *.{host} have addresses"),
        false => format!("no address for {}", missing.join(", ")),
    };
    Check::when(missing.is_empty(), "names", found, Status::Warn, hint)
}

async fn has_address(name: &str) -> bool {
    match tokio::time::timeout(TIMEOUT, lookup_host((name, 443))).await {
        Ok(Ok(mut addresses)) => addresses.next().is_some(),
        _ => false,
    }
}

/// Whether the API and sandboxes answer by name, with a certificate that this machine trusts.
async fn answers(names: &Names) -> Check {
    let local = "run `sandcove trust`; Node and Python need what `sandcove env --sdk 2.x` prints besides";
    let public = "have api.<domain> and *.<domain> lead to this server, with a certificate for both of an authority that clients trust";
    let hint = if names.is_local { local } else { public };
    // The API says that it lives, and the proxy that there is no such sandbox.
    for (name, expected) in [("api", 200), (SANDBOX, 502)] {
        let url = format!("https://{name}.{}/health", names.domain);
        match ask(&url).await {
            Ok(status) if status == expected => {}
            Ok(status) => {
                let found = format!("{url} answers with status {status}: another server?");
                return Check::when(false, "https", found, Status::Warn, hint);
            }
            Err(reason) => {
                return Check::when(false, "https", format!("{url}: {reason}"), Status::Warn, hint);
            }
        }
    }
    let found =
        format!("api.{0} and *.{0} answer, with a certificate that this machine trusts", names.domain);
    Check::ok("https", found)
}

async fn ask(url: &str) -> Result<u16, String> {
    // Something else may have chosen the provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().timeout(TIMEOUT).no_proxy().build().map_err(|error| innermost(&error))?;
    let answer = client.get(url).send().await.map_err(|error| innermost(&error))?;
    Ok(answer.status().as_u16())
}

/// The cause at the end of the chain, which says most.
fn innermost(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
