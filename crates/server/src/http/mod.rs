//! The REST API: extract, convert, call, convert back. The only place where statuses are chosen.

mod auth;
mod body;
pub(crate) mod error;
mod health;
mod lists;
mod logs;
mod metrics;
mod paging;
mod params;
mod router;
mod sandboxes;
mod snapshots;
mod teams;
mod templates;

pub(crate) use router::{DEADLINE, router};
