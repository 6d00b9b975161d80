//! The REST API: extract, convert, call, convert back. The statuses of API answers are chosen here.

mod admin;
mod auth;
mod body;
mod error;
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

pub use router::{Route, routes};
pub(crate) use router::{deadline, router};
