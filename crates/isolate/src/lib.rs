//! The host side of a sandbox: namespaces, cgroups, network slots, storage pool. The crate takes a [`SandboxSpec`] and
//! returns a [`Handle`]; it knows nothing of HTTP, teams or the database.
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
pub use namespaces::{Config, Extent, create_log, purge};
pub use net::{descriptor_limit, is_public, notice_lost_peer, wake_at};
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
