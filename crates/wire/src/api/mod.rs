//! Bodies of the REST API, as they are on the wire, odd defaults included (contract: control-plane). Unset optional
//! members are left out; members that are required but may be null are sent as `null`.

pub mod admin;
pub mod audit;
pub mod build;
pub mod error;
pub mod event;
pub mod network;
pub mod observe;
pub mod sandbox;
pub mod secret;
pub mod snapshot;
pub mod tag;
pub mod team;
pub mod template;
pub mod volume;
