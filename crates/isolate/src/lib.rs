//! The host side of a sandbox: namespaces, cgroups, network slots, storage pool. The crate takes a [`SandboxSpec`] and
//! returns a [`Handle`]; it knows nothing of HTTP, teams or the database. Modules import downwards only:
//!
//! ```text
//!  backend                                   the ways to isolate; what callers see
//!  namespaces    fake                        sandboxes of namespaces: start, pause, snapshot, pool, end; one in memory, for tests
//!  spawner                                   the process that forks the builders of jails, and its messages
//!  instance, unpackers, unprivileged         number of a server on this host; processes that unpack images; processes without rights
//!  checkpoint                                processes of a sandbox on disk, and back
//!  cgroup, fairness   net   pool, disk       limits; networks, firewall, connections into sandboxes; files and space
//!  jail                                      what a jail is made of, from outside (builder) and inside (init), with its filters
//!  hosts, precedence, secrets                look-ups of names; priority of the server; keys of egress proxies
//!  criu, packet, crash                       the program that stores processes; messages with descriptors; points to crash at, for tests
//!  error, spec, sys                          errors; descriptions of sandboxes; system calls
//! ```
//!
//! A start is read from `namespaces/create.rs` by `namespaces/prepare.rs` to `spawner/mod.rs`, which draws the processes, and from there to
//! `jail/builder.rs` and `jail/init.rs`.
#![deny(unsafe_code)]

mod backend;
mod cgroup;
mod checkpoint;
pub mod crash;
mod criu;
mod disk;
mod error;
mod fairness;
pub mod fake;
mod hosts;
mod instance;
mod jail;
pub mod namespaces;
mod net;
mod packet;
mod pool;
mod precedence;
mod secrets;
mod spawner;
mod spec;
mod sys;
mod unpackers;
mod unprivileged;

pub use backend::{Backend, Handle, Prepared};
pub use criu::probe_criu;
pub use disk::{DiskSpace, disk_space};
pub use error::{Error, Result};
pub use hosts::use_hosts_file_and_dns;
pub use namespaces::kernel_settings::lacking_kernel_settings;
pub use namespaces::{Config, Extent, create_log, purge};
pub use net::{bound_received, bound_unsent, descriptor_limit, is_public, notice_lost_peer, wake_at};
pub use packet::passed_socket;
pub use pool::PoolQuotas;
pub use pool::backup::{Copies, Kept, Refill, Shelf};
pub use precedence::take_precedence;
pub use sandcove_egress::{
    Connection, HostRule, Identity, PLACEHOLDER_END, PublicKey, SECRET_PLACEHOLDER, SealedSecret,
    TOKEN_PLACEHOLDER, Upstream, UpstreamTls, authorities,
};
pub use secrets::{rotate_identity_keys, rotate_secret_keys};
pub use spawner::spawner_main;
pub use spec::{
    Blueprint, ExitReason, Few, Files, Known, Limits, Mount, Mounted, NetworkPolicy, PoolState, Rates,
    Record, SandboxSpec, SnapshotMemory, SnapshotReport, StartPhase, StartPhaseKind, SweepReport, Usage,
    WarmState,
};
pub use unpackers::{Unpackers, enter_tree};
pub use unprivileged::{Objection, Unprivileged, cannot_become, pass_on_no_descriptors, renounce};
