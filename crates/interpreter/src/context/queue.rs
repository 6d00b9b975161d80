//! The queues of the task of a context: executions in order, and controls, which do not wait for executions.

use std::collections::BTreeMap;

use sandcove_wire::interpreter::Event;
use sandcove_wire::secret::Secret;
use tokio::sync::{mpsc, oneshot};

use crate::kernel::StartError;

/// Executions that wait for their turn. A client that sends more waits with its request until there is room.
pub(super) const MAX_WAITING_EXECUTIONS: usize = 256;
/// Controls that wait for their turn, with the same effect.
pub(super) const MAX_WAITING_CONTROLS: usize = 16;

/// A request to run code.
#[derive(Debug)]
pub(super) struct Execution {
    pub(super) code: String,
    /// Variables of this execution only.
    pub(super) variables: BTreeMap<String, String>,
    /// The client's token for the agent, for as long as the global variables have not been read (see `driver`).
    pub(super) token: Option<Secret>,
    pub(super) events: mpsc::Sender<Event>,
}

/// A request about the context itself.
#[derive(Debug)]
pub(super) enum Control {
    /// Starts a kernel, if there is none.
    Start(oneshot::Sender<Result<(), StartError>>),
    /// Ends the running execution and starts a new kernel.
    Restart(oneshot::Sender<Result<(), StartError>>),
    /// Ends all executions and the kernel.
    Close(oneshot::Sender<()>),
}
