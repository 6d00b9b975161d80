//! The inotify instance, and its events as values.

use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

/// Bytes read at a time: some hundred events.
const BUFFER: usize = 16 << 10;

/// The events watched in a directory: everything but opening, closing and reading.
const CHANGES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::ONLYDIR);

/// The kernel's number of a watched directory, which is the same for all watchers of that directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Watch(i32);

#[cfg(test)]
impl Watch {
    pub(super) fn numbered(number: i32) -> Self {
        Self(number)
    }
}

/// An event in a watched directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RawEvent {
    pub(super) watch: Watch,
    pub(super) flags: ReadFlags,
    /// Number that both events of a rename share.
    pub(super) cookie: u32,
    /// Name of the entry; absent when the event is about the directory itself.
    pub(super) name: Option<OsString>,
}

/// Whether the last component of a path may be a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    /// A link to a directory is followed.
    Follow,
    /// A link is an error.
    Refuse,
}

/// An inotify instance.
#[derive(Debug)]
pub(super) struct Kernel(OwnedFd);

impl Kernel {
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?))
    }

    /// Watches the directory at `path`.
    pub(super) fn add(&self, path: &Path, links: Links) -> Result<Watch, Errno> {
        let flags = match links {
            Links::Follow => CHANGES,
            Links::Refuse => CHANGES | WatchFlags::DONT_FOLLOW,
        };
        inotify::add_watch(&self.0, path, flags).map(Watch)
    }

    /// Stops watching, which the kernel may have done already when the directory was removed.
    pub(super) fn remove(&self, watch: Watch) {
        if let Err(error) = inotify::remove_watch(&self.0, watch.0)
            && error != Errno::INVAL
        {
            tracing::warn!(%error, "failed to remove a watch");
        }
    }

    /// Waits for events, at most for `limit`.
    pub(super) fn wait(&self, limit: Option<Duration>) {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        // If it was interrupted or failed, the next read reports it.
        let _ = rustix::event::poll(&mut [PollFd::new(&self.0, PollFlags::IN)], limit.as_ref());
    }

    /// Passes all available events to `handle`.
    pub(super) fn read(&self, mut handle: impl FnMut(RawEvent)) -> io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut reader = Reader::new(&self.0, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => handle(RawEvent {
                    watch: Watch(event.wd()),
                    flags: event.events(),
                    cookie: event.cookie(),
                    name: event
                        .file_name()
                        .map(|name| OsStrExt::from_bytes(name.to_bytes()))
                        .map(std::ffi::OsStr::to_owned),
                }),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
