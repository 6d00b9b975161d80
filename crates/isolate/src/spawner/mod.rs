//! The spawner: the process that forks the builders of jails. It is small and single-threaded, and lives in a mount
//! namespace that holds nothing of the host but the storage pool and the guest programs.
//!
//! The spawner outlives its server while sandboxes run, so that a killed server leaves no orphans to the host's init.
//!
//! # The processes of a start
//!
//! | process | code | started by | runs as | ends |
//! | --- | --- | --- | --- | --- |
//! | server | [`crate::namespaces`], `client.rs` | the operator | root of the host, async, many threads | when stopped |
//! | spawner | `process.rs` | the server, once: `sandcove __spawner` | root of the host, one thread, own mount namespace | after the server and the last sandbox |
//! | builder | [`crate::jail`], `builder.rs` | the spawner, per jail: `fork` | as the spawner | when PID 1 has executed the agent, or a step has failed |
//! | intermediate process | [`crate::jail`], `clone.rs` | the builder, only below a warm process: `fork` | root of the warm process's user namespace | when it has cloned PID 1 |
//! | PID 1 | [`crate::jail`], `init.rs`, then the agent | the builder or the intermediate process: `clone3` with new user, mount, PID, network, IPC and UTS namespaces | root of the sandbox | with the sandbox |
//!
//! A warm process ([`crate::namespaces`], `warm.rs`) is started the same way, without a PID namespace of its own.
//!
//! # The sequence of a start
//!
//! Arrows are packets ([`crate::packet`]) of the messages in [`crate::jail`], unless they say otherwise. `+` marks
//! descriptors.
//!
//! ```text
//!  server                spawner             builder             intermediate          PID 1
//!    |                      |                                      (only below
//!    |<- Greeting::Ready ---|                                    a warm process)
//!    |                      |
//!    |-- BuildRequest ----->|
//!    |   + reply socket     |------ fork ------>|
//!    |   + user namespace   |                   |------ fork ------->|
//!    |     of the warm      |                   |                    |--- clone3 ------->| waits
//!    |     process, if any  |                   |                    |    writes id maps |
//!    |                      |                   |<- pid or Failure --|                   |
//!    |<------- Reply::Cloned { pid } -----------|                  ends                  |
//!    |                                          |                                        |
//!    | puts PID 1 into its control group,       |                                        |
//!    | creates network pair and upper,          |                                        |
//!    | has the warm process fork into the jail  |                                        |
//!    |                                          |                                        |
//!    |-- Launch + log, control, boot, zygote -->|                                        |
//!    |                                          | mounts the root and the volumes        |
//!    |                                          |-- Launch + same + volumes, root ------>|
//!    |                                          |                                        | mounts, pivots,
//!    |                                          |                                        | drops rights,
//!    |                                          |                                        | loads seccomp
//!    |                                          |<-- Failure, or the socket closes ------| execs the agent
//!    |<-- Reply::Launched or Reply::Failed -----|
//!    |                                        ends
//!    |-- Boot, one JSON line on descriptor 4 ------------------------------------------->|
//!    |<- one byte: READY ----------------------------------------------------------------|
//!    |-- Assignment, one JSON line, when the sandbox gets its id ------------------------>|
//!    |<- one byte: READY ----------------------------------------------------------------|
//! ```
//!
//! Without a warm process the builder itself clones PID 1 and writes its id maps. A process that dies closes its sockets:
//! each wait above ends with an error then, and PID 1 exits when nobody is left to launch it.

mod client;
mod greeting;
mod process;

pub(crate) use client::{Launcher, Spawner, SpawnerConfig};
pub use process::spawner_main;
