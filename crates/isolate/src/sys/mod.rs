//! The only `unsafe` code of this crate: system calls without a safe wrapper. Every function here is a thin, checked wrapper
//! of one system call.
#![expect(unsafe_code, reason = "system calls without a safe wrapper; each block states its invariant")]

mod btrfs;
mod btrfs_tree;
mod handle;
mod hosts;
mod ifaddr;
mod loopdev;
mod mount;
mod process;
mod quota;
mod sched;
mod seccomp;
mod socket;

pub(crate) use btrfs::{
    copy_subvolume, create_subvolume, delete_subvolume, delete_subvolume_by_id, is_btrfs, path_of_inode,
    subvolume_id,
};
pub(crate) use btrfs_tree::nested_in;
pub(crate) use handle::{FileHandle, handle_of, open_handle};
pub(crate) use hosts::use_hosts_file_and_dns;
pub(crate) use ifaddr::{add_default_route, interface_up, set_address};
pub(crate) use loopdev::{attach as attach_loop, bound_to as loop_of, detach as detach_loop};
pub(crate) use mount::{MountRights, idmap_mount};
pub(crate) use process::{
    CloneFlags, Forked, become_root, clone_child, close_from, close_on_exec_from, exec, exit_now, fork,
    is_same_file, place_fds, reset_signals, set_effective_ids, set_file_identity, set_reaps_children,
    start_without_precedence, unshare,
};
pub(crate) use quota::{
    Group, QuotaMode, create_group, enable_quota, group_usage, join_group, limit_of, quota_mode,
    remove_group, set_limit, unused_groups,
};
pub(crate) use sched::{Children, io_priority, set_io_priority, set_schedule};
pub(crate) use seccomp::{RefusedCalls, install_filter};
pub(crate) use socket::{mark, set_socket_option, socket_option, tcp_socket, watch};

use std::io;

/// Converts the result of a raw system call; `-1` stands for the error in `errno`.
fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
