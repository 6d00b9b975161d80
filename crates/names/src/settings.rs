//! What the operator chooses, and the records that the operator adds once.

use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

/// The directory of Let's Encrypt.
pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";
/// The name that certificates of a domain are checked by.
pub(crate) const CHALLENGE: &str = "_acme-challenge";
/// The name that the record of an account is looked for at.
pub(crate) const PERSISTENT: &str = "_validation-persist";
/// The name of this server as a name server, below its domain.
pub(crate) const NAME_SERVER: &str = "ns";
/// The address of names that only this server answers for, so that they show whether a delegation leads to it: no wildcard of somebody
/// else has it. It is one for documentation and leads nowhere.
pub const PROBE_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 53);
/// The beginning of these names.
pub(crate) const PROBE: &str = "probe-";

/// The public name of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The domain, without a port, in lower case.
    pub domain: String,
    /// Addresses that the domain and all names below it lead to.
    pub addresses: Vec<IpAddr>,
    /// The authority that issues certificates, if one does.
    pub acme: Option<Acme>,
}

/// An authority that issues certificates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acme {
    /// URL of its directory.
    pub directory: String,
    /// PEM text with what its own certificate is trusted by; what this host trusts when unset.
    pub roots: Option<String>,
    /// How it checks the domain.
    pub check: Check,
}

/// How an authority checks a domain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Check {
    /// The authority asks this server for a value that is new each time (`dns-01`).
    #[default]
    Dns,
    /// The authority looks for a record that the operator adds once, which names the account (`dns-persist-01`).
    DnsPersist,
}

impl Settings {
    /// The name under which this server is a name server.
    pub fn name_server(&self) -> String {
        format!("{NAME_SERVER}.{}", self.domain)
    }

    /// The records that the operator adds to the DNS, once: for a domain that is left to this server, and the one record for a domain whose
    /// names already lead to it.
    pub fn records(&self) -> (Vec<String>, String) {
        let (domain, server) = (&self.domain, self.name_server());
        let addresses = self.addresses.iter().map(|address| {
            let kind = if address.is_ipv4() { "A" } else { "AAAA" };
            format!("{server}. {kind} {address}")
        });
        let all = [format!("{domain}. NS {server}.")].into_iter().chain(addresses).collect();
        (all, format!("{CHALLENGE}.{domain}. NS {server}."))
    }
}

/// A name whose address is [`PROBE_ADDRESS`] if certificates for `domain` are checked at this server. It is a new one each time, for no
/// cache has it.
pub fn probe_name(domain: &str) -> String {
    format!("{PROBE}{:016x}.{CHALLENGE}.{domain}", rand::random::<u64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_records_are_those_that_lead_here() {
        let settings = Settings {
            domain: "sbx.example.com".into(),
            addresses: vec!["198.51.100.7".parse().unwrap(), "2001:db8::7".parse().unwrap()],
            acme: None,
        };
        let (all, challenge) = settings.records();
        let expected = [
            "sbx.example.com. NS ns.sbx.example.com.",
            "ns.sbx.example.com. A 198.51.100.7",
            "ns.sbx.example.com. AAAA 2001:db8::7",
        ];
        assert_eq!(all, expected);
        assert_eq!(challenge, "_acme-challenge.sbx.example.com. NS ns.sbx.example.com.");
    }
}
