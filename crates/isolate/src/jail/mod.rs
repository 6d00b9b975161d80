//! Making a sandbox out of a process, step by step: [`builder`] runs with the host's rights outside, [`init`] is the
//! future PID 1 inside. Both are single-threaded, block, and never touch an async runtime.

mod birth;
pub(crate) mod builder;
mod capabilities;
mod counters;
mod init;
mod mounts;
mod seccomp;

pub(crate) use builder::ID_COUNT;
pub(crate) use capabilities::kept_mask;
pub(crate) use counters::{INSTANCES as INOTIFY_INSTANCES, WATCHES as INOTIFY_WATCHES};
pub(crate) use seccomp::refusals;
