//! A jail is built out of a process, step by step: [`builder`] runs outside with the host's rights, [`clone`] clones the
//! first process, [`init`] is that first process inside. All of them are single-threaded, block, and never touch an async
//! runtime. [`crate::spawner`] shows how they talk to each other.

pub(crate) mod builder;
mod capabilities;
mod clone;
mod counters;
mod handover;
mod init;
mod mounts;
mod seccomp;

pub(crate) use capabilities::kept_mask;
pub(crate) use counters::{INOTIFY_INSTANCES, INOTIFY_WATCHES};
pub(crate) use handover::{
    BuildRequest, DEVICES, Failure, ID_COUNT, JailKind, LAYERS, Launch, MAX_LAYERS, NEW_ROOT, Reply, UPPER,
    VolumeMount,
};
pub(crate) use seccomp::refusals;
