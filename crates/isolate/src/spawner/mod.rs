//! The spawner: the one process that clones. It is single-threaded and small, lives in a mount namespace of its own that
//! shows nothing of the host but the pool and the guest programs, and forks one short-lived builder per sandbox.
//!
//! It outlives the server that started it for as long as it has sandboxes to reap, so that a killed server leaves no
//! orphan behind that the host's init would have to collect.
//!
//! ```text
//! server <---- Greeting::Ready | Greeting::Failed ---- spawner (once, at its start)
//! server --[BuildRequest + reply socket]--> spawner --fork--> builder (crate::jail::builder)
//! server <------------- Reply::Cloned { pid } -------------- builder
//! server --------------- Launch + 4 descriptors -----------> builder   (cgroups and network are ready)
//! server <------- Reply::Launched | Reply::Failed ---------- builder
//! ```

mod client;
mod greeting;
mod process;

pub(crate) use client::{Launcher, Spawner, SpawnerConfig};
pub use process::spawner_main;
