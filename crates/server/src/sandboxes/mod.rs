//! Sandboxes as the control plane knows them: one driver task each, found through the [`Registry`].

mod admission;
mod create;
mod departed;
mod driver;
mod health;
mod journal;
pub mod lifecycle;
mod live;
mod network;
mod observed;
mod record;
mod recover;
mod registry;
mod request;
mod series;
mod snapshots;
mod work;

pub(crate) use admission::Capacity;
pub use create::{CreatePlan, Token};
pub(crate) use live::Live;
pub use network::{InvalidNetwork, NetworkRules};
pub use record::{Details, Settings, Source, Stored, StoredState, View, VolumeMount};
pub use registry::Registry;
pub(crate) use request::{Outcome, Request};
pub(crate) use series::step as metric_step;
pub use snapshots::Snapshot;
