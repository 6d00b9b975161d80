//! The messages on the socket for requests, in each direction. (The host process starts and stops the server process over
//! another socket, with messages of its own: `split` in the crate `cli`.)

use serde::{Deserialize, Serialize};

use crate::message::{Answer, Number, Order, Request};
use crate::outcome::FailureText;

/// A message to the host process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToHost<O = Order> {
    /// A request with the id of its answer.
    Ask(u64, Request),
    /// A message that is not answered.
    Order(O),
}

/// A message of the host process: the answer to a request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ToServer {
    /// Id of the request.
    pub(crate) id: u64,
    /// The answer, or the reason why there is none.
    pub(crate) outcome: Result<Answer, FailureText>,
    /// Number of what the host side holds from now on.
    pub(crate) number: Option<Number>,
}
