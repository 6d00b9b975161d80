//! The REST API: extract, convert, call, convert back. The only place where statuses are chosen.

mod admin;
pub(crate) mod auth;
mod body;
pub(crate) mod error;
mod events;
mod health;
mod keys;
mod lists;
mod logs;
mod measure;
mod metrics;
mod operators;
mod paging;
mod params;
mod router;
mod sandboxes;
mod snapshots;
mod team_metrics;
mod teams;
mod templates;
mod volume_content;
mod volumes;
mod webhooks;

pub(crate) use measure::Limiter;
pub use router::{Route, routes};
pub(crate) use router::{deadline, router};
