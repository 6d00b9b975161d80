//! Operations that a test fails or holds.

use std::sync::Arc;

use tokio::sync::{Notify, watch};

/// Operations of the backend that a test can fail or hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Creation: [`crate::Backend::create`].
    Create,
    /// Adoption: [`crate::Backend::adopt`].
    Adopt,
    /// Pausing: [`crate::Handle::pause`].
    Pause,
    /// Resuming: [`crate::Handle::resume`].
    Resume,
    /// Taking a snapshot: [`crate::Handle::snapshot`].
    Snapshot,
    /// Shutting down: [`crate::Handle::shut_down`].
    ShutDown,
    /// Storing memory: [`crate::Handle::park`].
    Park,
    /// Replacing the network policy: [`crate::Handle::set_network`].
    SetNetwork,
    /// Destroying: [`crate::Handle::destroy`].
    Destroy,
    /// Deleting a volume: [`crate::Backend::delete_volume`].
    DeleteVolume,
    /// Publishing a layer: [`crate::Backend::publish_layer`].
    PublishLayer,
    /// Opening the files of a template: [`crate::Backend::open_files`].
    OpenFiles,
}

/// Point where uses of a held operation wait.
#[derive(Debug, Default)]
pub(super) struct HoldPoint {
    pub(super) reached: Notify,
    pub(super) open: watch::Sender<bool>,
}

/// Guard of a held operation: every use of the operation waits until the guard is dropped.
#[derive(Debug)]
pub struct Hold(pub(super) Arc<HoldPoint>);

impl Hold {
    /// Waits until a use of the operation is held.
    pub async fn reached(&self) {
        self.0.reached.notified().await;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.open.send_replace(true);
    }
}
