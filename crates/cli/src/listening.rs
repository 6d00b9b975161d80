//! The sockets and the certificate of a server, prepared before anything else.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sandcove_names::{Check, DnsSockets};
use sandcove_server::Listeners;
use sandcove_server::tls::{Certificate, LOCAL_DOMAIN, Source};
use tokio::net::{TcpListener, UdpSocket};

use crate::data_dir::{Names, Records, tls_dir};
use crate::output::note;
use crate::settings::Settings;
use crate::tls::CertificateSource;

/// The port of `https` addresses without one.
const HTTPS: u16 = 443;
/// The port that name servers are asked at.
const DNS: u16 = 53;
/// How long to wait for an address that is in use.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(10);

/// The sockets of a server, and its names.
pub struct Listening {
    pub listeners: Listeners,
    /// The certificate to begin with, and where those that replace it come from.
    pub certificate: Option<(Certificate, Source)>,
    /// The public name of the server, and the sockets of DNS if it answers for that.
    pub public: Option<(sandcove_names::Settings, Option<DnsSockets>)>,
    /// Address of the server for programs on this machine, `http://host:port`.
    pub url: String,
    /// Base of the host names of sandboxes.
    pub domain: Option<String>,
    pub names: Option<Names>,
}

impl Listening {
    /// Binds the addresses and reads the certificate.
    pub async fn prepare(settings: &Settings) -> Result<Self> {
        let source = settings.tls.source.as_ref();
        let main = listen(settings.listen).await?;
        let bound = main.local_addr()?;
        let is_local = source == Some(&CertificateSource::Local);
        let domain = settings.domain.clone().or_else(|| is_local.then(|| local_domain(bound.port())));
        let source = match source {
            None => None,
            Some(CertificateSource::Local) => {
                let domain = domain.as_deref().unwrap_or(LOCAL_DOMAIN);
                Some(Source::local(&tls_dir(&settings.data_dir), domain)?)
            }
            Some(CertificateSource::Files { certificate, key }) => {
                Some(Source::files(certificate.clone(), key.clone(), domain.as_deref()))
            }
            Some(CertificateSource::Acme(_)) => None,
        };
        let certificate = match source {
            None => None,
            Some(source) => Some((source.read()?, source)),
        };
        let redirect = match settings.tls.redirect {
            Some(address) => Some(listen(address).await?),
            None => None,
        };
        // Names of this machine lead to both loopback addresses, and some clients try only one.
        let second = match other_loopback(bound).filter(|_| is_local) {
            Some(other) => TcpListener::bind(other).await.ok(),
            None => None,
        };
        let has_tls = settings.tls.source.is_some();
        if let Some(concern) = concern(bound, domain.as_deref(), has_tls) {
            note!("warning: {concern}");
        }
        let (mut public, mut records) = (None, Records::default());
        if let Some((name, address)) = public_name(settings, bound)? {
            let sockets = match address {
                Some(address) => {
                    records = Records::of(&name);
                    records.lines(&name.domain).iter().for_each(|line| note!("{line}"));
                    Some(dns_sockets(address).await?)
                }
                None => None,
            };
            public = Some((name, sockets));
        }
        let names = domain.clone().filter(|_| has_tls);
        Ok(Self {
            listeners: Listeners { main, second, redirect },
            certificate,
            public,
            url: url(bound),
            domain,
            names: names.map(|domain| Names { domain, is_local, records }),
        })
    }
}

/// The public name of the server, if it has to know one, and where it answers DNS for that.
fn public_name(
    settings: &Settings,
    bound: SocketAddr,
) -> Result<Option<(sandcove_names::Settings, Option<SocketAddr>)>> {
    let acme = match &settings.tls.source {
        Some(CertificateSource::Acme(acme)) => Some(acme.clone()),
        _ => None,
    };
    if acme.is_none() && settings.tls.dns.is_none() {
        return Ok(None);
    }
    let Some(domain) = &settings.domain else {
        bail!("--tls acme and --dns-listen need --domain: the name below which clients find sandboxes");
    };
    let domain = domain.split(':').next().unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
    let is_label = |label: &str| {
        (1..64).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    if !domain.contains('.') || !domain.split('.').all(is_label) || domain.len() > 180 {
        bail!(
            "an authority issues no certificate for `{domain}`: --domain has to be a name such as sandboxes.example.com"
        );
    }
    // The record of an account is with somebody else's name server.
    let is_asked = settings.tls.dns.is_some() || acme.as_ref().is_some_and(|acme| acme.check == Check::Dns);
    let addresses = match &settings.tls.public[..] {
        _ if !is_asked => Vec::new(),
        [] if bound.ip().is_unspecified() => bail!(
            "clients do not reach a server at {}: say with --public-address which addresses lead to it",
            bound.ip()
        ),
        [] => vec![bound.ip()],
        given => given.to_vec(),
    };
    let listen = is_asked.then(|| settings.tls.dns.unwrap_or_else(|| (bound.ip(), DNS).into()));
    Ok(Some((sandcove_names::Settings { domain, addresses, acme }, listen)))
}

async fn dns_sockets(address: SocketAddr) -> Result<DnsSockets> {
    let failed = || {
        format!(
            "failed to answer DNS at {address}; if another name server is there, choose an address with --dns-listen"
        )
    };
    let tcp = listen(address).await.with_context(failed)?;
    let udp = UdpSocket::bind(tcp.local_addr()?).await.with_context(failed)?;
    Ok(DnsSockets { udp, tcp })
}

/// The domain of a server that only its own machine reaches.
fn local_domain(port: u16) -> String {
    match port {
        HTTPS => LOCAL_DOMAIN.to_owned(),
        port => format!("{LOCAL_DOMAIN}:{port}"),
    }
}

/// A warning about what an operator may not have meant.
fn concern(bound: SocketAddr, domain: Option<&str>, has_tls: bool) -> Option<String> {
    if !has_tls && !bound.ip().is_loopback() {
        return Some(format!(
            "other machines reach {bound} without TLS: API keys, code and files are readable on the way; use --tls acme, or --tls-cert \
             and --tls-key, or listen on 127.0.0.1 behind a proxy with TLS"
        ));
    }
    let domain = domain.filter(|domain| has_tls && !domain.contains(':'))?;
    (bound.port() != HTTPS).then(|| {
        format!(
            "clients look for {domain} at port {HTTPS}, and the server listens on port {}; if nothing leads from one to the other, \
             use --domain {domain}:{}",
            bound.port(),
            bound.port()
        )
    })
}

/// The loopback address of the other version of the Internet Protocol.
fn other_loopback(bound: SocketAddr) -> Option<SocketAddr> {
    let other: IpAddr = match bound.ip() {
        IpAddr::V4(Ipv4Addr::LOCALHOST) => Ipv6Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::LOCALHOST) => Ipv4Addr::LOCALHOST.into(),
        _ => return None,
    };
    Some((other, bound.port()).into())
}

/// Binds the address. A server that was killed a moment ago may have released its lock, but not yet its address.
async fn listen(address: SocketAddr) -> Result<TcpListener> {
    let begun = Instant::now();
    loop {
        match TcpListener::bind(address).await {
            Err(error)
                if error.kind() == std::io::ErrorKind::AddrInUse && begun.elapsed() < ADDRESS_TIMEOUT =>
            {
                tokio::time::sleep(POLL).await;
            }
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => bail!(
                "failed to listen on {address}: {error}\nhint: stop the program that listens there (`ss -ltnp` lists them), or choose another \
                 address with --listen"
            ),
            bound => return bound.with_context(|| format!("failed to listen on {address}")),
        }
    }
}

/// The URL of a bound address, for clients on this machine.
fn url(bound: SocketAddr) -> String {
    let host = match bound.ip() {
        ip if ip.is_unspecified() && ip.is_ipv4() => "127.0.0.1".to_owned(),
        ip if ip.is_unspecified() => "[::1]".to_owned(),
        std::net::IpAddr::V4(ip) => ip.to_string(),
        std::net::IpAddr::V6(ip) => format!("[{ip}]"),
    };
    format!("http://{host}:{}", bound.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_is_one_a_client_here_can_use() {
        assert_eq!(url("0.0.0.0:80".parse().unwrap()), "http://127.0.0.1:80");
        assert_eq!(url("[::]:80".parse().unwrap()), "http://[::1]:80");
        assert_eq!(url("10.0.0.1:80".parse().unwrap()), "http://10.0.0.1:80");
    }

    #[test]
    fn operators_are_told_what_they_may_not_have_meant() {
        let concern = |bound: &str, domain, has_tls| concern(bound.parse().unwrap(), domain, has_tls);
        assert!(concern("0.0.0.0:3000", None, false).unwrap().contains("without TLS"));
        assert!(concern("0.0.0.0:443", Some("example.com"), true).is_none());
        assert!(concern("0.0.0.0:8443", Some("example.com:8443"), true).is_none());
        assert!(
            concern("0.0.0.0:8443", Some("example.com"), true).unwrap().contains("--domain example.com:8443")
        );
        assert!(concern("127.0.0.1:3000", None, false).is_none());
        assert!(concern("[::1]:3000", Some("example.com"), false).is_none());
    }
}
