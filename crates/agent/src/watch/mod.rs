//! Watches of directories (contract: envd, sections 3.2 and 3.3).
//!
//! The whole agent has one inotify instance, because Linux allows a user only a few of them, and one thread that waits
//! for it, started with the first watcher. `kernel` reads it, `tree` has the directories of one watcher, `tables` distributes
//! events to watchers, `hub` owns all of these, `queue` keeps events until a client takes them.

mod event;
mod hub;
mod kernel;
mod mounts;
mod queue;
mod service;
mod tables;
mod tree;

pub use service::register;
