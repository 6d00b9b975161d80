#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod body;
mod builder;
mod command;
mod connect;
mod connector;
mod contexts;
mod error;
mod execution;
mod files;
mod filesystem;
mod forward;
mod keys;
mod lifecycle;
mod network;
mod new_sandbox;
mod observe;
mod operator;
mod output;
mod process;
mod query;
mod retry;
mod sandbox;
mod secrets;
mod server;
mod signed;
mod stream;
mod tags;
mod templates;
pub mod traceback;
mod transport;
mod tree;
mod upload;
mod volume_files;
mod volumes;
mod webhooks;

pub use builder::ClientBuilder;
pub use command::{Command, CommandEvent, CommandExit, Input, Program, TerminalSize};
pub use error::{Error, Result, server_of};
pub use execution::Execution;
pub use files::FileStart;
pub use filesystem::Watch;
pub use keys::TeamActivity;
pub use new_sandbox::NewSandbox;
pub use operator::{AuditFilter, Operator};
pub use output::{CodeOutput, CommandOutput};
pub use process::{Controls, Process, ProcessEvent};
pub use query::LogFilter;
pub use sandbox::Sandbox;
#[doc(no_inline)]
pub use sandcove_wire::envd::{
    filesystem::{EntryInfo, EventType, FileType, FilesystemEvent},
    process::{ProcessConfig, ProcessInfo},
};
#[doc(no_inline)]
pub use sandcove_wire::{api, id::SandboxId, interpreter, interpreter::ExecutionRequest, secret::Secret};
pub use server::{Client, ListFilter};
pub use tags::{TagFilter, TagOrder};
pub use templates::BuildEnd;
pub use volume_files::VolumeFiles;
pub use webhooks::{DeliveryFilter, EventFilter};
