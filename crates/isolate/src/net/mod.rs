//! Networks of sandboxes: addresses of a slot, veth pairs, firewall, egress proxies, and connections to services inside.

mod addresses;
mod client_hello;
mod dialer;
mod dns_message;
mod egress;
mod firewall;
mod forwarding;
mod links;
mod policy;
mod requested_host;
mod reserved;
mod resolver;
mod sockets;
mod tracking;

pub(crate) use addresses::{Addresses, FIRST_ID, INSTANCES, SLOTS_PER_INSTANCE, link_prefix};
pub(crate) use dialer::Dialer;
pub(crate) use firewall::Firewall;
pub(crate) use links::Links;
pub use reserved::is_public;
pub(crate) use sockets::guard;
pub use sockets::{descriptor_limit, notice_lost_peer};
#[cfg(any(test, fuzzing))]
pub(crate) use {
    dns_message::{Answer, MAX_ADDRESSES, Query},
    requested_host::{RequestedHost, host_name},
};
