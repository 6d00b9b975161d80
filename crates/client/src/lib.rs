//! A Rust client of the public API, like the official SDKs, for programs that are part of Sandcove or measure it. It speaks
//! HTTP/1.1, with TLS or without, to one server for both the API and the traffic of sandboxes.
#![forbid(unsafe_code)]

mod body;
mod command;
mod connect;
mod connector;
mod contexts;
mod error;
mod execution;
mod files;
mod filesystem;
mod forward;
mod lifecycle;
mod observe;
mod operator;
mod process;
mod sandbox;
mod secrets;
mod server;
mod stream;
mod templates;
pub mod traceback;
mod transport;
mod tree;
mod upload;
mod volumes;
mod webhooks;

pub use command::{Command, CommandEvent, CommandExit, Input, Program, TerminalSize};
pub use error::{Error, Result, server_of};
pub use execution::Execution;
pub use files::FileStart;
pub use filesystem::Watch;
pub use operator::{AuditFilter, Operator};
pub use process::{Controls, Process, ProcessEvent};
pub use sandbox::Sandbox;
pub use server::{Client, ListFilter, NewSandbox};
pub use templates::BuildEnd;
