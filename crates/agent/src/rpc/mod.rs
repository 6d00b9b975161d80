//! The server side of the Connect protocol, as far as E2B clients use it (contract: envd, section 1.1).
//!
//! `codec`, `envelope` and `headers` are pure; `router` knows the RPCs; `exchange` reads requests and writes answers.
//! Handlers are plain functions from a [`RequestContext`](crate::state::RequestContext) and a message to a [`Result`]:
//!
//! ```text
//! router
//!     .unary("/filesystem.Filesystem/Stat", stat)          // async fn(RequestContext, StatRequest) -> Result<StatResponse>
//!     .server_stream("/process.Process/Start", start)      // .. -> Result<impl Stream<Item = Result<StartResponse>>>
//!     .client_stream("/process.Process/StreamInput", input) // async fn(RequestContext, Requests<..>) -> Result<..>
//! ```

pub mod codec;
pub mod envelope;
mod exchange;
pub mod headers;
mod json;
mod keepalive;
mod router;

pub use crate::error::{Code, Error, Result};
pub use codec::{Codec, Message};
pub use exchange::{Requests, error_response, stream_error_response};
pub use keepalive::with_keepalive;
pub use router::{Router, Rpc};
