//! A jail is built out of a process, step by step: [`builder`] runs outside with the host's rights, [`clone`] clones the
//! first process, [`init`] is that first process inside; [`restore`] has CRIU restore processes instead. All of them are
//! single-threaded, block, and never touch an async runtime. [`crate::spawner`] shows how they talk to each other.

mod anchor;
pub(crate) mod builder;
mod capabilities;
mod clone;
mod counters;
mod devices;
pub(crate) mod file_systems;
mod handover;
mod init;
mod masks;
mod metadata;
mod mounts;
mod network;
mod restore;
mod seccomp;

pub(crate) use builder::user_namespace;
pub(crate) use capabilities::{drop_bounding_set, kept_mask};
pub(crate) use clone::{Parent, hold_user_namespace};
pub(crate) use counters::{INOTIFY_INSTANCES, INOTIFY_WATCHES};
pub(crate) use handover::{
    BuildRequest, CRIU, EMPTY, FOREIGN, Failure, GIVEN, ID_COUNT, JailKind, LAYERS, Launch, MAX_LAYERS,
    NEW_ROOT, PROGRAMS, Proceed, Reply, Restore, SESSIONS, UPPER, USED, VolumeMount,
};
pub(crate) use mounts::TERMINALS;
pub(crate) use seccomp::{
    load_for_egress, load_for_server, load_for_unpacker, prepare as prepare_filters, refusals,
};
