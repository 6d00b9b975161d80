//! Quota groups of btrfs, by ioctl. A group is a number with a level in its upper 16 bits: the group of a subvolume has level 0
//! and the subvolume's number, and groups of a higher level contain groups of lower ones. Structure layouts: `linux/btrfs.h`.

use std::io;
use std::os::fd::BorrowedFd;

use super::btrfs::{ioctl, ior, iow, iowr};
use super::btrfs_tree::{Key, QUOTA_TREE, number, search, subvolume_exists};

const STATUS: u32 = 240;
const INFO: u32 = 242;
const LIMIT: u32 = 244;
const LEVEL_SHIFT: u32 = 48;

/// Modes of quotas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuotaMode {
    /// Simple quotas, Linux 6.7 and later: cheap; data is charged to the subvolume that wrote it first, and a subvolume joins
    /// the groups of the one it is created in.
    Simple,
    /// Classic quota groups.
    Full,
}

/// Number of a quota group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group(u64);

impl Group {
    /// The group of a subvolume alone.
    pub(crate) fn of_subvolume(number: u64) -> Self {
        Self(number)
    }

    /// A group of a higher level; of `number`, 48 bits count.
    pub(crate) fn at_level(level: u16, number: u64) -> Self {
        Self((u64::from(level) << LEVEL_SHIFT) | (number & ((1 << LEVEL_SHIFT) - 1)))
    }

    fn level(self) -> u64 {
        self.0 >> LEVEL_SHIFT
    }

    fn number(self) -> u64 {
        self.0 & ((1 << LEVEL_SHIFT) - 1)
    }
}

#[repr(C)]
struct QuotaCtl {
    cmd: u64,
    status: u64,
}

#[repr(C)]
#[derive(Default)]
struct QgroupLimit {
    qgroupid: u64,
    flags: u64,
    max_referenced: u64,
    max_exclusive: u64,
    reserved_referenced: u64,
    reserved_exclusive: u64,
}

#[repr(C)]
struct QgroupCreate {
    create: u64,
    qgroupid: u64,
}

#[repr(C)]
struct QgroupAssign {
    assign: u64,
    source: u64,
    destination: u64,
}

/// Enables quotas; enabled ones are left as they are.
pub(crate) fn enable_quota(fd: BorrowedFd<'_>, mode: QuotaMode) -> io::Result<()> {
    let cmd = match mode {
        QuotaMode::Simple => 4,
        QuotaMode::Full => 1,
    };
    existing(ioctl(fd, iowr(40, size_of::<QuotaCtl>()), &mut QuotaCtl { cmd, status: 0 }))
}

/// The mode of the enabled quotas.
pub(crate) fn quota_mode(fd: BorrowedFd<'_>) -> io::Result<QuotaMode> {
    const SIMPLE: u64 = 1 << 3;
    // Version, generation, flags.
    const FLAGS: usize = 16;
    let flags = read(fd, STATUS, Group(0), FLAGS)?.unwrap_or_default();
    Ok(if flags & SIMPLE != 0 { QuotaMode::Simple } else { QuotaMode::Full })
}

/// Creates a group; an existing one is left as it is.
pub(crate) fn create_group(fd: BorrowedFd<'_>, group: Group) -> io::Result<()> {
    existing(ioctl(
        fd,
        iow(42, size_of::<QgroupCreate>()),
        &mut QgroupCreate { create: 1, qgroupid: group.0 },
    ))
}

/// Removes a group. The kernel refuses this while the group contains others or is charged for anything.
pub(crate) fn remove_group(fd: BorrowedFd<'_>, group: Group) -> io::Result<()> {
    ioctl(fd, iow(42, size_of::<QgroupCreate>()), &mut QgroupCreate { create: 0, qgroupid: group.0 })
}

/// Puts a group into one of a higher level; a group that is in it already stays.
pub(crate) fn join_group(fd: BorrowedFd<'_>, group: Group, parent: Group) -> io::Result<()> {
    let mut args = QgroupAssign { assign: 1, source: group.0, destination: parent.0 };
    existing(ioctl(fd, iow(41, size_of::<QgroupAssign>()), &mut args))
}

/// Limits the space of a group, in bytes; `None` removes the limit.
pub(crate) fn set_limit(fd: BorrowedFd<'_>, group: Group, bytes: Option<u64>) -> io::Result<()> {
    const MAX_REFERENCED: u64 = 1;
    // The highest number stands for no limit.
    let max_referenced = bytes.unwrap_or(u64::MAX);
    let mut args =
        QgroupLimit { qgroupid: group.0, flags: MAX_REFERENCED, max_referenced, ..QgroupLimit::default() };
    ioctl(fd, ior(43, size_of::<QgroupLimit>()), &mut args)
}

/// Reads the limit of a group, in bytes; `None` without one.
pub(crate) fn limit_of(fd: BorrowedFd<'_>, group: Group) -> io::Result<Option<u64>> {
    // Flags, maximum of referenced space.
    Ok(read(fd, LIMIT, group, 8)?.filter(|bytes| *bytes > 0))
}

/// Reads the space that a group uses, in bytes; `None` for an unknown group.
pub(crate) fn group_usage(fd: BorrowedFd<'_>, group: Group) -> io::Result<Option<u64>> {
    // Generation, referenced space.
    read(fd, INFO, group, 8)
}

/// Lists groups of levels 0 and 1 whose subvolume is gone and that are charged for nothing.
pub(crate) fn unused_groups(fd: BorrowedFd<'_>) -> io::Result<Vec<Group>> {
    let min = Key { object: 0, kind: INFO, offset: 0 };
    let mut empty = Vec::new();
    search(fd, QUOTA_TREE, min, Key { offset: u64::MAX, ..min }, |key, item| {
        let group = Group(key.offset);
        if number(item, 8) == Some(0) && group.level() < 2 {
            empty.push(group);
        }
    })?;
    let mut unused = Vec::new();
    for group in empty {
        // What a new subvolume is charged for is written some seconds later.
        if !subvolume_exists(fd, group.number())? {
            unused.push(group);
        }
    }
    Ok(unused)
}

fn read(fd: BorrowedFd<'_>, kind: u32, group: Group, at: usize) -> io::Result<Option<u64>> {
    let key = Key { object: 0, kind, offset: group.0 };
    let mut found = None;
    search(fd, QUOTA_TREE, key, key, |_, item| found = number(item, at))?;
    Ok(found)
}

fn existing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        other => other,
    }
}
