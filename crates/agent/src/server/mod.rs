//! The HTTP server. A listener accepts a request, the pipeline decides whether it is let in and for which account, then it goes
//! to an RPC or to a plain endpoint (contract: envd, sections 1, 5 and 7).

mod control;
mod cors;
mod drained;
mod endpoints;
mod events;
mod listen;
mod metrics;
mod pipeline;

pub use events::serve_events;
pub use listen::{bind_public, serve_tcp, serve_unix};
pub use pipeline::{Entrance, Pipeline};

use std::sync::Arc;

use crate::process::{self, Processes};
use crate::state::SharedState;
use crate::{files, filesystem, rpc, watch};

/// Builds the pipeline with all services.
pub fn build(state: SharedState, processes: &Processes) -> Arc<Pipeline> {
    let rpc = process::register(rpc::Router::new(), processes);
    let rpc = watch::register(filesystem::register(rpc));
    let plain = endpoints::router(Arc::clone(&state)).merge(files::router());
    let control = control::router(Arc::clone(&state));
    Arc::new(Pipeline::new(state, rpc, plain, control))
}
