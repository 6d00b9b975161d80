//! Addresses to listen on, in flags and in the configuration file.

use std::net::{SocketAddr, ToSocketAddrs};

use serde::Deserialize;

/// Parses an address to listen on, and resolves a host name.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let found = text.to_socket_addrs().map_err(|error| {
        format!(
            "`{text}` is not an address to listen on: {error}\nhint: use HOST:PORT, for example `127.0.0.1:3000`"
        )
    })?;
    // Clients that use a single address expect `localhost` to be IPv4.
    let found: Vec<SocketAddr> = found.collect();
    let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
    first.copied().ok_or_else(|| format!("`{text}` has no address"))
}

/// Reads an address from the configuration file.
pub fn address_in_file<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(deserializer)?;
    address(&text).map(Some).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_may_be_named() {
        assert_eq!(address("localhost:3001"), Ok("127.0.0.1:3001".parse().unwrap()));
        assert_eq!(address("[::1]:80"), Ok("[::1]:80".parse().unwrap()));
        let error = address("3001").unwrap_err();
        assert!(error.starts_with("`3001` is not an address to listen on: "), "{error}");
        assert!(error.ends_with("\nhint: use HOST:PORT, for example `127.0.0.1:3000`"), "{error}");
    }
}
