//! Addresses that are not on the internet. One list decides for sandboxes, for what the server opens on their behalf, and for
//! receivers of webhooks.
//!
//! Networks for documentation are an exception where the host itself is in one: they are the internet of a laboratory, and
//! sandboxes reach them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IPv4 networks for documentation.
const DOCUMENTATION: [(Ipv4Addr, u8); 3] = [
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
];

/// Further IPv4 networks that are unreachable under any policy.
const V4: [(Ipv4Addr, u8); 12] = [
    // This network.
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    // Private.
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    // Shared between a provider and its customers.
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    // Loopback.
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    // Link-local, with the metadata services of clouds.
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    // Azure's service for its machines, at an address that is public in form.
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    // Protocol assignments.
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    // Measurements of devices.
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    // Multicast.
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    // Reserved, with the broadcast address.
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// IPv6 networks that are unreachable. Only 2000::/3 is assigned for the internet; everything else is local, multicast, a
/// translation of IPv4 or not assigned.
const V6: [(Ipv6Addr, u8); 7] = [
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 0), 3),
    (Ipv6Addr::new(0x4000, 0, 0, 0, 0, 0, 0, 0), 2),
    (Ipv6Addr::new(0x8000, 0, 0, 0, 0, 0, 0, 0), 1),
    // Protocol assignments, with the Teredo tunnel.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    // Documentation.
    (Ipv6Addr::new(0x2001, 0x0db8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
    // The 6to4 tunnel.
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
];

/// Whether an address is on the internet, as far as its form shows. An IPv4 address in IPv6 form counts as the IPv4 address.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !is_in(v4, &V4) && !is_in(v4, &DOCUMENTATION),
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => is_public(v4.into()),
            None => !V6.iter().any(|(network, length)| {
                (u128::from(v6) ^ u128::from(*network)) >> (128 - u32::from(*length)) == 0
            }),
        },
    }
}

/// Whether a host with this gateway is in a network for documentation.
pub(super) fn is_laboratory(gateway: Option<Ipv4Addr>) -> bool {
    gateway.is_some_and(|gateway| is_in(gateway, &DOCUMENTATION))
}

fn is_in(address: Ipv4Addr, networks: &[(Ipv4Addr, u8)]) -> bool {
    networks
        .iter()
        .any(|(network, length)| (u32::from(address) ^ u32::from(*network)) >> (32 - u32::from(*length)) == 0)
}

/// Whether sandboxes may reach an address, as far as its form shows.
pub(super) fn is_open(address: Ipv4Addr, is_laboratory: bool) -> bool {
    !is_in(address, &V4) && (is_laboratory || !is_in(address, &DOCUMENTATION))
}

/// The IPv4 networks that sandboxes do not reach, as elements of a set of nftables.
pub(super) fn v4_elements(is_laboratory: bool) -> String {
    let documentation = if is_laboratory { &[][..] } else { &DOCUMENTATION };
    let networks = V4.iter().chain(documentation);
    networks.map(|(network, length)| format!("{network}/{length}")).collect::<Vec<_>>().join(", ")
}

/// The IPv6 networks as elements of a set of nftables.
pub(super) fn v6_elements() -> String {
    V6.map(|(network, length)| format!("{network}/{length}")).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_internet_are_public() {
        for private in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "168.63.129.16",
            "0.0.0.0",
            "100.64.0.1",
            "100.127.255.255",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "::ffff:127.0.0.1",
            "::ffff:203.0.113.1",
            "2002:7f00:1::",
            "2001:0::1",
            "2001:db8::1",
            "3fff::1",
            "100::1",
            "ff02::1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "4000::1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
        for public in [
            "1.1.1.1",
            "100.128.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2001:4860:4860::8888",
            "::ffff:1.1.1.1",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
    }

    #[test]
    fn a_laboratory_keeps_its_internet_and_nothing_else() {
        assert!(is_laboratory(Some(Ipv4Addr::new(192, 0, 2, 1))));
        assert!(!is_laboratory(Some(Ipv4Addr::new(192, 168, 0, 1))) && !is_laboratory(None));
        assert!(v4_elements(false).contains("203.0.113.0/24"));
        assert!(!v4_elements(true).contains("203.0.113.0/24") && v4_elements(true).contains("10.0.0.0/8"));
    }

    #[test]
    fn no_network_of_the_list_overlaps_another() {
        // A set of nftables refuses such elements.
        let v4: Vec<_> = V4.iter().chain(&DOCUMENTATION).collect();
        for (place, (network, length)) in v4.iter().enumerate() {
            for (other, other_length) in &v4[place + 1..] {
                let shorter = u32::from(*length.min(other_length));
                assert!(
                    (u32::from(*network) ^ u32::from(*other)) >> (32 - shorter) != 0,
                    "{network} {other}"
                );
            }
        }
        for (place, (network, length)) in V6.iter().enumerate() {
            for (other, other_length) in &V6[place + 1..] {
                let shorter = u32::from(*length.min(other_length));
                assert!(
                    (u128::from(*network) ^ u128::from(*other)) >> (128 - shorter) != 0,
                    "{network} {other}"
                );
            }
        }
    }
}
