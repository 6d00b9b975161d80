//! What the control plane is about: teams, templates, sandboxes and their lifecycle, network rules, events. Records and
//! policy only. Nothing here reads a clock, a file, a socket or the database.

pub mod build;
pub mod context;
pub(crate) mod egress_proxy;
pub mod event;
pub(crate) mod frozen;
pub(crate) mod header_rules;
pub mod identity;
pub mod lifecycle;
pub(crate) mod limits;
pub mod network;
pub mod reference;
pub mod sandbox;
pub(crate) mod secret;
pub mod snapshot;
pub mod team;
pub mod template;
pub mod volume;
pub(crate) mod webhook;
