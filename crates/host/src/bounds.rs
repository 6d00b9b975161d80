//! Bounds on what requests take at once: a server that was taken over cannot have the host side hold memory, threads or tasks without end.
//! Requests beyond a bound wait.

use std::sync::Arc;

use sandcove_channel::MAX_TEXT;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::message::{Request, SandboxRequest, VolumeRequest};

/// Requests in progress at once.
const MAX_REQUESTS: usize = 1024;
/// Length of the texts of all requests in progress, KiB: two of the longest. What a text becomes takes a small multiple of it.
const MAX_TEXTS: usize = 2 * (MAX_TEXT >> 10);
/// Requests at once that wait for a sandbox to end: a few for each sandbox that a host can have.
const MAX_WAITS: usize = 1 << 13;
/// Answers at once that may be long, from the begin of their requests until they are sent.
const MAX_LISTS: usize = 8;
/// Layers that are unpacked at once. Each may take a window of 128 MiB.
const MAX_UNPACKED: usize = 4;

/// The effort that a request takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effort {
    /// A task for as long as a sandbox lives.
    Wait,
    /// A short answer, soon.
    Little,
    /// An answer as long as what it lists.
    List,
    /// Memory of a decoder.
    Unpack,
}

impl Effort {
    fn of(request: &Request) -> Self {
        match request {
            Request::Sandbox(_, SandboxRequest::Wait) => Self::Wait,
            Request::Sandbox(_, SandboxRequest::EgressLog) => Self::List,
            Request::Volume(_, VolumeRequest::List(..) | VolumeRequest::Clean)
            | Request::CollectLayers(_)
            | Request::LayerNames
            | Request::Measure { .. }
            | Request::Stop
            | Request::Sweep(_)
            | Request::VolumeNames => Self::List,
            Request::UnpackLayer { .. } => Self::Unpack,
            _ => Self::Little,
        }
    }
}

/// The bounds of one connection.
pub(crate) struct Bounds {
    requests: Arc<Semaphore>,
    texts: Arc<Semaphore>,
    waits: Arc<Semaphore>,
    lists: Arc<Semaphore>,
    unpacked: Arc<Semaphore>,
}

/// The right to make an effort; released when it is dropped.
pub(crate) type Permits = Vec<OwnedSemaphorePermit>;

impl Default for Bounds {
    fn default() -> Self {
        let bound = |permits| Arc::new(Semaphore::new(permits));
        Self {
            requests: bound(MAX_REQUESTS),
            texts: bound(MAX_TEXTS),
            waits: bound(MAX_WAITS),
            lists: bound(MAX_LISTS),
            unpacked: bound(MAX_UNPACKED),
        }
    }
}

impl Bounds {
    /// Waits until a request with a text of `length` bytes may be in progress. No other one should be read before.
    pub(crate) async fn admit(&self, request: &Request, length: usize) -> Permits {
        if Effort::of(request) == Effort::Wait {
            return take(&self.waits, 1).await;
        }
        let mut permits = take(&self.requests, 1).await;
        permits.extend(take(&self.texts, length.div_ceil(1024).clamp(1, MAX_TEXTS)).await);
        permits
    }

    /// Waits until the effort for an admitted request may be made. Others may overtake it.
    pub(crate) async fn begin(&self, request: &Request) -> Permits {
        match Effort::of(request) {
            Effort::List => take(&self.lists, 1).await,
            Effort::Unpack => take(&self.unpacked, 1).await,
            Effort::Wait | Effort::Little => Permits::new(),
        }
    }
}

async fn take(bound: &Arc<Semaphore>, permits: usize) -> Permits {
    let permits = u32::try_from(permits).unwrap_or(u32::MAX);
    // Nobody closes the semaphores.
    bound.clone().acquire_many_owned(permits).await.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::task::unconstrained;

    use super::*;

    /// How many of a request get through, with what they hold.
    async fn admitted(bounds: &Bounds, request: &Request, length: usize) -> Vec<Permits> {
        let mut admitted = Vec::new();
        while let Some(mut permits) = unconstrained(bounds.admit(request, length)).now_or_never() {
            if let Some(more) = unconstrained(bounds.begin(request)).now_or_never() {
                permits.extend(more);
                admitted.push(permits);
            } else {
                break;
            }
        }
        admitted
    }

    #[tokio::test]
    async fn each_effort_has_a_bound() {
        let list = Request::Volume("v".into(), VolumeRequest::List("/".into(), 1));
        for (request, expected) in [
            (Request::HoldsAnything, MAX_REQUESTS),
            (Request::Sandbox(1, SandboxRequest::Wait), MAX_WAITS),
            (list, MAX_LISTS),
            (Request::LayerNames, MAX_LISTS),
        ] {
            assert_eq!(admitted(&Bounds::default(), &request, 10).await.len(), expected, "{request:?}");
        }
    }

    #[tokio::test]
    async fn long_requests_are_few() {
        let bounds = Bounds::default();
        let two = admitted(&bounds, &Request::HoldsAnything, MAX_TEXT).await;
        assert_eq!(two.len(), 2);
        assert!(bounds.admit(&Request::HoldsAnything, 1).now_or_never().is_none());
        drop(two);
        assert!(bounds.admit(&Request::HoldsAnything, 1).now_or_never().is_some());
    }

    #[tokio::test]
    async fn what_waits_for_a_list_holds_up_nothing_else() {
        let bounds = Bounds::default();
        let lists = admitted(&bounds, &Request::LayerNames, 10).await;
        assert!(bounds.begin(&Request::LayerNames).now_or_never().is_none());
        assert_eq!(lists.len(), MAX_LISTS);
        let little = bounds.admit(&Request::HoldsAnything, 10).now_or_never();
        assert!(little.is_some() && bounds.begin(&Request::HoldsAnything).now_or_never().is_some());
    }
}
