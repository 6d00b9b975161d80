//! The protocol of first-generation clients (contract: legacy-v0), over the agent and the code interpreter of a sandbox: nothing of theirs
//! is implemented here a second time.
//!
//! - `serve`: the entry, one function for both services;
//! - `daemon`: port 49982, JSON-RPC over a websocket (`session` and what it calls) and files over HTTP (`transfer`);
//! - `kernels`: port 8888, the kernel gateway: REST, and cells over a websocket (`channels`);
//! - `socket`: websockets, with `outbox` for what is sent;
//! - `rpc`: the messages of JSON-RPC, read from whatever comes;
//! - `guest`: the sandbox, and how much of the server its clients may use.
#![forbid(unsafe_code)]

mod answer;
mod daemon;
#[cfg(any(test, fuzzing, debug_assertions))]
pub mod fuzzing;
mod guest;
mod kernels;
mod outbox;
mod rpc;
mod serve;
mod socket;

pub use answer::{Body, RequestBody};
pub use guest::{Guest, Permit, Quota};
pub use serve::{Service, serve};
