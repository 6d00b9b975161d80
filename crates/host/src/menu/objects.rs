//! What the host side holds for the server, by number.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sandcove_image::Lease;
use sandcove_image::files::Upload;
use sandcove_image::oci::{ImportJob, StoreImport};
use sandcove_isolate::{Handle, Prepared};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::message::Number;

/// Maximum number of objects: many for each sandbox that a host can have. A server that needs more is not the one that we wrote.
const MAX_OBJECTS: usize = 1 << 17;

/// Something that is held.
pub(super) enum Object {
    /// A running sandbox; the guard ends what waits for it.
    Sandbox { sandbox: SandboxObject, _guard: DropGuard },
    /// A sandbox for the pool.
    Prepared(Prepared),
    /// The files of a template.
    Files(OwnedFd),
    /// An unfinished upload to a volume.
    Upload(Upload),
    /// An import of an image.
    Import(StoreImport),
    /// A lease of an image.
    Lease { _lease: Lease },
}

/// A running sandbox.
#[derive(Clone)]
pub(super) struct SandboxObject {
    pub(super) handle: Handle,
    /// Cancelled when the server needs the handle no more.
    pub(super) released: CancellationToken,
}

/// All that is held.
#[derive(Default)]
pub(super) struct Objects(Mutex<Numbered>);

#[derive(Default)]
struct Numbered {
    objects: HashMap<Number, Object>,
    last: Number,
}

impl Object {
    pub(super) fn sandbox(handle: Handle) -> Self {
        let released = CancellationToken::new();
        let guard = released.clone().drop_guard();
        Self::Sandbox { sandbox: SandboxObject { handle, released }, _guard: guard }
    }
}

impl Objects {
    /// Adds an object; returns its number, or `None` when there are too many.
    pub(super) fn add(&self, object: Object) -> Option<Number> {
        let mut numbered = self.lock();
        if numbered.objects.len() >= MAX_OBJECTS {
            return None;
        }
        numbered.last += 1;
        let number = numbered.last;
        numbered.objects.insert(number, object);
        Some(number)
    }

    /// The sandbox with this number.
    pub(super) fn sandbox(&self, number: Number) -> Option<SandboxObject> {
        match self.lock().objects.get(&number)? {
            Object::Sandbox { sandbox, .. } => Some(sandbox.clone()),
            _ => None,
        }
    }

    /// The work of the import with this number.
    pub(super) fn import(&self, number: Number) -> Option<ImportJob> {
        match self.lock().objects.get(&number)? {
            Object::Import(import) => Some(import.job()),
            _ => None,
        }
    }

    /// Takes an object out.
    pub(super) fn take(&self, number: Number) -> Option<Object> {
        self.lock().objects.remove(&number)
    }

    /// Releases all objects.
    pub(super) fn clear(&self) {
        let objects = std::mem::take(&mut self.lock().objects);
        // Not under the lock: to drop some of them takes long.
        drop(objects);
    }

    fn lock(&self) -> MutexGuard<'_, Numbered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
