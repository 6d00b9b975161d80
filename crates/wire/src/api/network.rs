//! The network rules of a sandbox, outgoing and incoming (contract: control-plane, sections 6.3 and 6.13).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The member `network` of a create request and of the detail answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Network {
    /// Whether ports may be reached without the traffic token; true when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_public_traffic: Option<bool>,
    /// Networks, addresses or names that may be reached; wins over `deny_out`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_out: Option<Vec<String>>,
    /// Networks or addresses that may not be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deny_out: Option<Vec<String>>,
    /// Addresses of name servers, IPv4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_servers: Option<Vec<String>>,
    /// SOCKS5 proxy for all outgoing connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress_proxy: Option<Value>,
    /// `Host` header that services see, in which `${PORT}` is replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mask_request_host: Option<String>,
    /// Ports that speak TLS inside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub https_ports: Option<Vec<u16>>,
    /// Header rules by name of the site.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<Map<String, Value>>,
}

/// Body of `PUT /sandboxes/{id}/network`, which replaces all rules: absent members are cleared.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkUpdate {
    /// Allowed destinations, as in [`Network`].
    #[serde(rename = "allowOut", skip_serializing_if = "Option::is_none")]
    pub allow_out: Option<Vec<String>>,
    /// Denied destinations, as in [`Network`].
    #[serde(rename = "denyOut", skip_serializing_if = "Option::is_none")]
    pub deny_out: Option<Vec<String>>,
    /// Addresses of name servers, as in [`Network`].
    #[serde(rename = "dnsServers", skip_serializing_if = "Option::is_none")]
    pub dns_servers: Option<Vec<String>>,
    /// SOCKS5 proxy, as in [`Network`].
    #[serde(rename = "egressProxy", skip_serializing_if = "Option::is_none")]
    pub egress_proxy: Option<Value>,
    /// Header rules, as in [`Network`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<Map<String, Value>>,
    /// Whether the internet may be reached; false is the same as denying `0.0.0.0/0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_internet_access: Option<bool>,
}
