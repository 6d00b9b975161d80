//! Addresses, id ranges and interface names of a slot.

use std::net::Ipv4Addr;

use crate::{Error, Result};

/// Number of slots of one instance; several instances with different data directories may share a host.
pub(crate) const SLOTS_PER_INSTANCE: u32 = 2048;
/// Maximum number of instances on a host.
pub(crate) const INSTANCES: u32 = 8;
/// The first id of sandboxes' users on the host; all of them follow.
pub(crate) const FIRST_ID: u32 = 1_000_000_000;

/// The first id of processes that unpack images, after those of sandboxes and warm processes. They share 65,536 ids.
pub(crate) const UNPACKING_ID: u32 = FIRST_ID + 2 * INSTANCES * SLOTS_PER_INSTANCE * crate::jail::ID_COUNT;

/// The networks of one instance's sandboxes: four addresses per slot, of which the second is the host's end and the
/// third the sandbox's end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Addresses {
    first: u32,
    instance: u32,
}

impl Addresses {
    /// Reads `network`, a `/16` such as `10.213.0.0/16`.
    pub(crate) fn new(network: &str, instance: u32) -> Result<Self> {
        let invalid = || Error::Kernel {
            action: format!(
                "use `{network}` as the sandboxes' network: give an IPv4 network of 65536 addresses, a.b.0.0/16"
            ),
            source: std::io::ErrorKind::InvalidInput.into(),
        };
        let address: Ipv4Addr =
            network.strip_suffix("/16").and_then(|a| a.parse().ok()).ok_or_else(invalid)?;
        let [_, _, 0, 0] = address.octets() else { return Err(invalid()) };
        Ok(Self { first: u32::from(address) + instance * SLOTS_PER_INSTANCE * 4, instance })
    }

    /// Network that contains all networks of this instance.
    pub(crate) fn range(&self) -> String {
        format!("{}/{}", Ipv4Addr::from(self.first), 32 - (SLOTS_PER_INSTANCE * 4).trailing_zeros())
    }

    /// Address of the host's end.
    pub(crate) fn gateway(&self, slot: u32) -> Ipv4Addr {
        Ipv4Addr::from(self.first + slot * 4 + 1)
    }

    /// Address of the sandbox's end.
    pub(crate) fn guest(&self, slot: u32) -> Ipv4Addr {
        Ipv4Addr::from(self.first + slot * 4 + 2)
    }

    /// Name of the host's interface.
    pub(crate) fn link(&self, slot: u32) -> String {
        format!("{}{slot}", self.link_prefix())
    }

    /// Prefix of the names of all host interfaces of this instance.
    pub(crate) fn link_prefix(&self) -> String {
        link_prefix(self.instance)
    }

    /// First host id of the sandbox's id range.
    pub(crate) fn id_base(&self, slot: u32) -> u32 {
        FIRST_ID + (self.instance * SLOTS_PER_INSTANCE + slot) * crate::jail::ID_COUNT
    }

    /// First host id of the range of a warm process that holds `slot`; none of these lie in a sandbox's range.
    pub(crate) fn warm_id_base(&self, slot: u32) -> u32 {
        self.id_base(slot) + INSTANCES * SLOTS_PER_INSTANCE * crate::jail::ID_COUNT
    }
}

/// Prefix of the names of all host interfaces of `instance`.
pub(crate) fn link_prefix(instance: u32) -> String {
    format!("scv{instance}-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_slot_of_the_last_instance_stays_inside() {
        let addresses = Addresses::new("10.213.0.0/16", INSTANCES - 1).unwrap();
        let last = SLOTS_PER_INSTANCE - 1;
        assert_eq!(addresses.guest(last), Ipv4Addr::new(10, 213, 255, 254));
        assert!(addresses.link(last).len() <= 15, "interface names have at most 15 characters");
        assert_eq!(addresses.warm_id_base(last) + crate::jail::ID_COUNT, UNPACKING_ID);
        assert!(UNPACKING_ID.checked_add(crate::jail::ID_COUNT).is_some());
        assert_eq!(addresses.range(), "10.213.224.0/19");
    }

    #[test]
    fn other_networks_are_refused() {
        for bad in ["10.213.0.0/24", "10.213.1.0/16", "fd00::/16", "x"] {
            assert!(Addresses::new(bad, 0).is_err(), "{bad}");
        }
    }
}
