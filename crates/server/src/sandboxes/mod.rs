//! Sandboxes as the control plane runs them: one driver task each, found through the [`Registry`].
//!
//! | part | files |
//! | --- | --- |
//! | all sandboxes | `registry`, `shared`, `recover` |
//! | a new sandbox | `create`, `admission`, `spec` |
//! | one sandbox: its task, what the task is sent, and what everybody else sees | `driver`, `transition`, `command`, `view` |
//! | traffic to it | `live_session`, `connections`, `connection`, `batched`, `health` |
//! | paused sandboxes and snapshots | `memory`, `parking`, `parked`, `snapshots` |
//! | logs and samples | `log`, `samples`, `observed`, `history`, `removed` |

mod admission;
mod batched;
mod command;
mod connection;
mod connections;
mod create;
mod driver;
mod health;
mod history;
mod live_session;
mod log;
mod memory;
mod observed;
mod parked;
mod parking;
mod recover;
mod registry;
mod removed;
mod samples;
mod shared;
mod snapshots;
mod spec;
mod transition;
mod view;

pub(crate) use admission::Capacity;
pub(crate) use batched::{Batched, Expected};
pub(crate) use command::Outcome;
pub(crate) use connection::{Protocol, SandboxConnection};
pub(crate) use connections::{ConnectionPermit, Sent, Upload};
pub use create::CreatePlan;
pub(crate) use live_session::LiveSession;
pub use registry::Registry;
pub(crate) use samples::step as sample_step;
pub(crate) use snapshots::kept_bytes;
pub use view::View;
