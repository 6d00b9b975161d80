//! Networks of sandboxes: addresses from a slot number, veth pairs, firewall, ways out by name, and sockets inside.

mod addresses;
mod dialer;
mod firewall;
mod gate;
mod links;
mod opening;
mod policy;
mod resolver;

pub(crate) use addresses::{Addresses, INSTANCES, SLOTS_PER_INSTANCE, link_prefix};
pub(crate) use dialer::Dialer;
pub(crate) use firewall::Firewall;
pub(crate) use links::Links;

/// What sockets carry that the server opens for a sandbox: the firewall keeps them from where the sandbox must not go.
const GUARDED_MARK: u32 = 0x53;
