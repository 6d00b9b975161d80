//! Idmapped mounts: `mount_setattr(2)`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::check;

#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Rights of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MountRights {
    /// Reading only.
    ReadOnly,
    /// Reading and writing; set-user-id programs work.
    Programs,
    /// Reading and writing; set-user-id bits are ignored.
    Data,
    /// Like `Data`, and no program is executed.
    Unpacking,
}

/// Maps the ids of the detached mount `tree` through `user_namespace` and limits it to `rights`.
pub(crate) fn idmap_mount(
    tree: BorrowedFd<'_>,
    user_namespace: BorrowedFd<'_>,
    rights: MountRights,
) -> io::Result<()> {
    let mut set = libc::MOUNT_ATTR_IDMAP | libc::MOUNT_ATTR_NODEV;
    match rights {
        MountRights::ReadOnly => set |= libc::MOUNT_ATTR_RDONLY,
        MountRights::Programs => {}
        MountRights::Data => set |= libc::MOUNT_ATTR_NOSUID,
        MountRights::Unpacking => set |= libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC,
    }
    let attr = MountAttr {
        attr_set: set,
        attr_clr: 0,
        propagation: 0,
        userns_fd: user_namespace.as_raw_fd() as u64,
    };
    // SAFETY: the path is a valid empty C string and `attr` is a mount_attr of the given size.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            std::ptr::from_ref(&attr),
            std::mem::size_of::<MountAttr>(),
        )
    })
    .map(drop)
}
