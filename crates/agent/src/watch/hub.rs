//! The one inotify instance that all watchers share, and the thread that waits for it.
//!
//! The tables are under one lock. Registering and removing large trees takes it anew for each directory, so that events
//! of other watchers keep flowing meanwhile.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::kernel::Kernel;
use super::queue::Queue;
use super::tables::{Id, MOVE_PAIRING, Options, Tables};
use crate::rpc::{Error, Result};

/// The watchers of the agent.
#[derive(Default)]
pub(super) struct Hub {
    shared: Mutex<Option<Arc<Shared>>>,
}

struct Shared {
    kernel: Kernel,
    tables: Mutex<Tables>,
}

impl Hub {
    /// Starts watching. Blocks until all directories have been listed.
    pub(super) fn watch(&self, options: Options) -> Result<Watcher> {
        let shared = self.shared()?;
        let watcher = shared.lock().admit(options);
        let watcher = Watcher { id: watcher.0, queue: watcher.1, shared };
        // Dropped on failure, which removes what is registered so far.
        watcher.shared.register_root(watcher.id)?;
        Ok(watcher)
    }

    fn shared(&self) -> Result<Arc<Shared>> {
        let mut slot = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = &*slot {
            return Ok(Arc::clone(shared));
        }
        let failed = |e: io::Error| Error::internal(format!("failed to start watching: {e}"));
        let shared = Arc::new(Shared { kernel: Kernel::open().map_err(failed)?, tables: Mutex::default() });
        let waiting = Arc::clone(&shared);
        std::thread::Builder::new().name("watch".into()).spawn(move || waiting.run()).map_err(failed)?;
        Ok(Arc::clone(slot.insert(shared)))
    }
}

/// A watcher, which is removed when this is dropped.
pub(super) struct Watcher {
    id: Id,
    queue: Arc<Queue>,
    shared: Arc<Shared>,
}

impl Watcher {
    /// The events of this watcher.
    pub(super) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Reads the events that the kernel has up to now, for clients that poll.
    pub(super) fn catch_up(&self) {
        self.shared.pump();
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let (shared, id) = (Arc::clone(&self.shared), self.id);
        let remove = move || {
            // The lock is taken for each statement, so that others get it in between.
            let watches = shared.lock().dismiss(id);
            for (node, watch) in watches {
                shared.lock().release(&shared.kernel, id, node, watch);
            }
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut limit = None;
        loop {
            self.kernel.wait(limit);
            limit = self.pump().then_some(MOVE_PAIRING);
        }
    }

    /// Handles all available events. Returns whether it must be called again soon, even without further events.
    fn pump(&self) -> bool {
        let mut tables = self.lock();
        let mut describer = None;
        let read = self.kernel.read(|event| tables.handle(&self.kernel, &mut describer, event));
        if let Err(error) = read {
            tables.fail_all(&Error::internal(format!("failed to read events: {error}")));
        }
        tables.settle(&self.kernel)
    }

    fn register_root(&self, id: Id) -> Result<()> {
        let mut left = self.lock().register(&self.kernel, id, None, &mut |_, _| {})?;
        while let Some(found) = left.pop() {
            // Nothing is reported: these entries are older than the watcher.
            left.extend(self.lock().register(&self.kernel, id, Some(found), &mut |_, _| {})?);
        }
        Ok(())
    }
}
