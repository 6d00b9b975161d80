//! Limits on space. With simple quotas a subvolume is alone in a group of level 1, which has the limit: subvolumes that are
//! created in it join the group by themselves, so that they share the limit. Groups of level 2, accounts, count what several
//! subvolumes take together, deleted ones included for as long as a snapshot needs their data.
//!
//! `pool` is a descriptor of the pool itself: a change of a group is charged to the subvolume of the descriptor that it is asked
//! for by, and a full one would refuse it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use crate::sys::{self, Group, QuotaMode};

/// Space above what a full subvolume uses that deleting others in it may take, bytes.
const DELETE_ROOM: u64 = 16 << 20;

/// Way in which a pool limits the space of a subvolume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quota {
    /// There are no limits.
    Off,
    /// The limit is the subvolume's own; nested subvolumes have none.
    Single,
    /// The limit is that of a group, which nested subvolumes join.
    Grouped,
}

impl Quota {
    /// Enables quotas on the file system of `fd`, simple ones where the kernel has them; enabled ones are left as they are.
    pub(super) fn enable(fd: BorrowedFd<'_>) -> Self {
        let modes = [QuotaMode::Simple, QuotaMode::Full];
        if !modes.into_iter().any(|mode| sys::enable_quota(fd, mode).is_ok()) {
            tracing::warn!("failed to enable quotas of the pool: sandboxes get no disk limit");
            return Self::Off;
        }
        match sys::quota_mode(fd) {
            Ok(QuotaMode::Simple) => Self::Grouped,
            Ok(QuotaMode::Full) | Err(_) => Self::Single,
        }
    }

    /// Limits the subvolume of `fd` and everything nested in it to `bytes`; replaces an earlier limit.
    pub(super) fn limit(self, pool: BorrowedFd<'_>, fd: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
        match self {
            Self::Off => Ok(()),
            Self::Single => sys::set_limit(pool, own(fd)?, Some(bytes)),
            Self::Grouped => {
                let number = sys::subvolume_id(fd)?;
                let group = with_nested(number);
                sys::create_group(pool, group)?;
                sys::set_limit(pool, group, Some(bytes))?;
                sys::join_group(pool, Group::of_subvolume(number), group)
            }
        }
    }

    /// Raises the limit of the subvolume of `fd`, so that what is nested in it can be deleted: deleting needs space too.
    pub(super) fn make_room(self, pool: BorrowedFd<'_>, fd: BorrowedFd<'_>) -> io::Result<()> {
        let used = self.used(fd)?;
        self.limit(pool, fd, used.saturating_add(DELETE_ROOM))
    }

    /// Space that the subvolume of `fd` uses with everything nested in it, bytes; 0 without quotas.
    pub(super) fn used(self, fd: BorrowedFd<'_>) -> io::Result<u64> {
        let group = match self {
            Self::Off => return Ok(0),
            Self::Single => own(fd)?,
            Self::Grouped => with_nested(sys::subvolume_id(fd)?),
        };
        sys::group_usage(fd, group)?.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The limit of the subvolume of `fd`, bytes, if it has one.
    pub(super) fn limit_of(self, fd: BorrowedFd<'_>) -> io::Result<Option<u64>> {
        match self {
            Self::Off => Ok(None),
            Self::Single => sys::limit_of(fd, own(fd)?),
            Self::Grouped => sys::limit_of(fd, with_nested(sys::subvolume_id(fd)?)),
        }
    }

    /// Counts the subvolume of `fd` in `account` from now on. Without groups there are no accounts.
    pub(super) fn charge(self, pool: BorrowedFd<'_>, fd: BorrowedFd<'_>, account: u64) -> io::Result<()> {
        if self != Self::Grouped {
            return Ok(());
        }
        let number = sys::subvolume_id(fd)?;
        let (group, account) = (with_nested(number), Group::at_level(2, account));
        // A subvolume that has no limit has no group yet.
        sys::create_group(pool, group)?;
        sys::join_group(pool, Group::of_subvolume(number), group)?;
        sys::create_group(pool, account)?;
        sys::join_group(pool, group, account)
    }

    /// Space that `account` is charged for, bytes; `None` when it cannot be known.
    pub(super) fn charged(self, pool: BorrowedFd<'_>, account: u64) -> Option<u64> {
        if self != Self::Grouped {
            return None;
        }
        sys::group_usage(pool, Group::at_level(2, account)).ok().map(Option::unwrap_or_default)
    }

    /// Moves the limits of the subvolumes in `directory` to groups, with everything that is nested in them: an earlier version
    /// limited the subvolumes alone.
    pub(super) fn adopt(self, pool: BorrowedFd<'_>, directory: &Path) {
        if self != Self::Grouped {
            return;
        }
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if let Err(error) = File::open(&path).and_then(|fd| adopt(pool, fd.as_fd())) {
                tracing::warn!(%error, path = %path.display(), "failed to move a disk limit to a group");
            }
        }
    }

    /// Removes groups of subvolumes that are gone.
    pub(super) fn remove_unused(self, pool: BorrowedFd<'_>) {
        if self != Self::Grouped {
            return;
        }
        match sys::unused_groups(pool) {
            // The kernel refuses while data is being freed; a later call removes the group.
            Ok(groups) => groups.into_iter().for_each(|group| drop(sys::remove_group(pool, group))),
            Err(error) => tracing::warn!(%error, "failed to look for unused quota groups"),
        }
    }

    /// Removes the groups of a deleted subvolume. The kernel refuses while its data is being freed; a later call of
    /// [`Quota::remove_unused`] removes them then.
    pub(super) fn forget(self, pool: BorrowedFd<'_>, number: u64) {
        if self == Self::Off {
            return;
        }
        let _ = sys::remove_group(pool, Group::of_subvolume(number));
        if self == Self::Grouped {
            let _ = sys::remove_group(pool, with_nested(number));
        }
    }
}

/// The numbers of all subvolumes nested in the subvolume `number` at any depth, outer ones first.
pub(super) fn all_nested(fd: BorrowedFd<'_>, number: u64) -> io::Result<Vec<u64>> {
    let mut nested = sys::nested_in(fd, number)?;
    let mut next = 0;
    while let Some(outer) = nested.get(next) {
        let inner = sys::nested_in(fd, *outer)?;
        nested.extend(inner);
        next += 1;
    }
    Ok(nested)
}

/// The group of a subvolume and everything nested in it.
fn with_nested(number: u64) -> Group {
    Group::at_level(1, number)
}

fn own(fd: BorrowedFd<'_>) -> io::Result<Group> {
    Ok(Group::of_subvolume(sys::subvolume_id(fd)?))
}

fn adopt(pool: BorrowedFd<'_>, fd: BorrowedFd<'_>) -> io::Result<()> {
    let number = sys::subvolume_id(fd)?;
    let group = with_nested(number);
    let own = Group::of_subvolume(number);
    let Some(limit) = sys::limit_of(fd, own)? else { return Ok(()) };
    Quota::Grouped.limit(pool, fd, limit)?;
    for nested in all_nested(fd, number)? {
        sys::join_group(pool, Group::of_subvolume(nested), group)?;
    }
    // Last: its absence says that all is done.
    sys::set_limit(pool, own, None)
}
