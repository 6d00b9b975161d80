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

/// An object that the server process refers to by a number.
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

/// The objects of a connection of the server process, by number.
#[derive(Default)]
pub(super) struct Objects(Mutex<Numbered>);

#[derive(Default)]
struct Numbered {
    objects: HashMap<Number, Object>,
    counts: HashMap<Kind, usize>,
    last: Number,
}

/// Kinds of objects. Each has a maximum: a server that holds more is none of ours, or was taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Sandbox,
    Prepared,
    Files,
    Upload,
    Import,
    Lease,
}

impl Kind {
    /// Maximum number of objects of this kind.
    fn max(self) -> usize {
        match self {
            // A few for each that a host can have.
            Self::Sandbox => 1 << 13,
            // One for each build in progress.
            Self::Prepared | Self::Import | Self::Files => 256,
            // One for each upload of a client.
            Self::Upload => 1024,
            // One for each image that no template names yet.
            Self::Lease => 1 << 12,
        }
    }
}

impl Object {
    fn kind(&self) -> Kind {
        match self {
            Self::Sandbox { .. } => Kind::Sandbox,
            Self::Prepared(_) => Kind::Prepared,
            Self::Files(_) => Kind::Files,
            Self::Upload(_) => Kind::Upload,
            Self::Import(_) => Kind::Import,
            Self::Lease { .. } => Kind::Lease,
        }
    }

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
        let kind = object.kind();
        let count = numbered.counts.entry(kind).or_default();
        if *count >= kind.max() {
            return None;
        }
        *count += 1;
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
        let mut numbered = self.lock();
        let object = numbered.objects.remove(&number)?;
        if let Some(count) = numbered.counts.get_mut(&object.kind()) {
            *count -= 1;
        }
        Some(object)
    }

    /// Releases all objects.
    pub(super) fn clear(&self) {
        let objects = {
            let mut numbered = self.lock();
            numbered.counts.clear();
            std::mem::take(&mut numbered.objects)
        };
        // Not under the lock: to drop some of them takes long.
        drop(objects);
    }

    fn lock(&self) -> MutexGuard<'_, Numbered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
