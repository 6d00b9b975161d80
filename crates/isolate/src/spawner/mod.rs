//! The spawner: the process that forks the builders of jails. It is small and single-threaded, and lives in a mount
//! namespace that holds nothing of the host but the storage pool and the guest programs.
//!
//! The spawner outlives its server while sandboxes run, so that a killed server leaves no orphans to the host's init.
//!
//! # The processes of a start
//!
//! | process | code | started by | ends |
//! | --- | --- | --- | --- |
//! | host process, *server* below | `namespaces/`, `spawner/client.rs` | the operator | when it is stopped |
//! | spawner | `spawner/process.rs` | the server: `sandcove __spawner` | after the server and the last sandbox |
//! | builder | `jail/builder.rs` | the spawner, per jail: `fork` | when PID 1 has executed the agent |
//! | intermediate | `jail/clone.rs` | the builder, below a warm process: `fork` | when it has cloned PID 1 |
//! | PID 1 | `jail/init.rs`, then the agent | builder or intermediate: `clone3` | with the sandbox |
//! | anchor | `jail/anchor.rs` | the builder of a warm process: `clone3` | after the last sandbox below it |
//! | warm process | `jail/init.rs`, then Python | an intermediate: `clone3` | when its template is not kept any more |
//!
//! *Server*, in this crate, is the process that has the host side: with two processes, as by default, the one that runs as root
//! (`sandcove serve`) and executes the requests of the other. The first three run as root of the host. Only the server has threads.
//! PID 1 becomes a child of the spawner when its builder ends, and below a warm process a child of the anchor. The intermediate process has all rights in the
//! warm process's user and PID namespaces; it exists because a process cannot come back from a user namespace. PID 1 starts
//! in new user, mount, PID, IPC and UTS namespaces and is root there. Its network namespace is new, too, but belongs to the
//! user namespace above: the builder configures it, and nobody inside can.
//!
//! A warm process (`namespaces/keep_warm.rs`) is started like a PID 1, in the user and PID namespaces of an anchor, and forked into
//! a sandbox once the agent is executed there.
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
//!    | creates network pair, upper and sockets  |                                        |
//!    |                                          |                                        |
//!    |-- Launch + log, control, boot, zygote -->|                                        |
//!    |                                          | configures the network, mounts         |
//!    |                                          | volumes, root, /dev, /sys, programs    |
//!    |                                          |-- Launch + same + these mounts ------->|
//!    |                                          |                                        | mounts, pivots,
//!    |                                          |                                        | loads seccomp,
//!    |                                          |                                        | drops rights,
//!    |                                          |<-- Failure, or the socket closes ------| execs the agent
//!    |<-- Reply::Launched or Reply::Failed -----|
//!    |                                        ends
//!    | has the warm process fork into the sandbox, and puts the fork into its control group; meanwhile:
//!    |-- Boot, one JSON line on descriptor 4 ------------------------------------------->|
//!    |<- one byte: READY ----------------------------------------------------------------|
//!    |-- Assignment, one JSON line, when the sandbox gets its id ------------------------>|
//!    |<- one byte: READY ----------------------------------------------------------------|
//! ```
//!
//! The builder, or the intermediate process, makes the network namespace just before it clones PID 1. The sockets are control, boot
//! and zygote: the server makes them on a thread in that namespace (`net/dialer.rs`).
//!
//! Without a warm process the builder itself clones PID 1 and writes its id maps. A restore has other steps: `jail/restore.rs`. A process that dies closes its sockets:
//! each wait above ends with an error then, and PID 1 exits when nobody is left to launch it.

mod client;
mod greeting;
mod process;

pub(crate) use client::{Launcher, Spawner, SpawnerConfig};
pub use process::spawner_main;
