//! Messages between the processes of a server, each as JSON with at most one descriptor, over a unix stream socket.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod channel;
mod frame;
mod sending;

pub use channel::Channel;
pub use frame::{Incoming, MAX_TEXT, Outgoing, Received};
pub use sending::{Sender, Sending};
