//! Networks of sandboxes: addresses of a slot, veth pairs, firewall, egress proxies, and connections to services inside.

mod addresses;
mod client_hello;
mod dialer;
mod dns_message;
mod egress;
mod firewall;
mod links;
mod policy;
mod requested_host;
mod resolver;

pub(crate) use addresses::{Addresses, INSTANCES, SLOTS_PER_INSTANCE, link_prefix};
pub(crate) use dialer::Dialer;
pub(crate) use firewall::Firewall;
pub(crate) use links::Links;
#[cfg(any(test, fuzzing))]
pub(crate) use {
    dns_message::{Answer, MAX_ADDRESSES, Query},
    requested_host::{RequestedHost, host_name},
};

/// Mark of sockets that the server opens on behalf of a sandbox. The firewall refuses them the addresses that sandboxes
/// must not reach.
const GUARDED_MARK: u32 = 0x53;
