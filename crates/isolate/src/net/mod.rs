//! Networks of sandboxes: addresses of a slot, veth pairs, firewall, egress proxies, and connections to services inside.

mod addresses;
mod dialer;
mod egress;
mod firewall;
mod forwarding;
mod links;
mod policy;
mod reserved;
mod sockets;
mod tracking;

pub(crate) use addresses::{Addresses, FIRST_ID, INSTANCES, SLOTS_PER_INSTANCE, UNPACKING_ID, link_prefix};
pub(crate) use dialer::Dialer;
pub(crate) use egress::EgressSetup;
pub(crate) use firewall::Firewall;
pub(crate) use links::Links;
pub use reserved::is_public;
pub(crate) use sockets::guard;
pub use sockets::{bound_received, bound_unsent, descriptor_limit, notice_lost_peer, wake_at};
