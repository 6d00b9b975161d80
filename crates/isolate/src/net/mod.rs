//! Networks of sandboxes: addresses from a slot number, veth pairs, firewall, and sockets inside.

mod addresses;
mod dialer;
mod firewall;
mod links;

pub(crate) use addresses::{Addresses, INSTANCES, SLOTS_PER_INSTANCE};
pub(crate) use dialer::Dialer;
pub(crate) use firewall::Firewall;
pub(crate) use links::Links;
