//! The REST API: extract, convert, call, convert back. The statuses of API answers are chosen here.

mod address;
mod admin;
mod archives;
mod audit;
mod auth;
mod body;
mod builds;
mod egress;
mod error;
mod events;
#[cfg(any(test, fuzzing, debug_assertions))]
pub(crate) mod fuzzing;
mod health;
mod identity;
mod keys;
mod lists;
mod logs;
mod measure;
mod metrics;
mod operators;
mod paging;
mod params;
mod request_id;
mod router;
mod sandboxes;
mod secrets;
mod snapshots;
mod tags;
mod team_metrics;
mod teams;
mod templates;
mod uploads;
mod volume_content;
mod volumes;
mod webhooks;

pub(crate) use address::{Origin, Requested};
pub(crate) use auth::{bearer, operator_of, team_of};
pub(crate) use measure::show;
pub(crate) use operators::metrics_text;
pub(crate) use request_id::RequestId;
pub(crate) use router::router;
pub use router::{Route, routes};
