//! The RPC handlers of watches: one that streams, and three that let a client poll.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::{Stream, StreamExt, stream};
use sandcove_wire::envd::filesystem::watch_dir_response::{Event, KeepAlive, StartEvent};
use sandcove_wire::envd::filesystem::{
    CreateWatcherRequest, CreateWatcherResponse, FilesystemEvent, GetWatcherEventsRequest,
    GetWatcherEventsResponse, RemoveWatcherRequest, RemoveWatcherResponse, WatchDirRequest, WatchDirResponse,
};

use super::hub::{Hub, Watcher};
use super::mounts;
use super::tables::Options;
use crate::filesystem::{blocking, check_directory};
use crate::path;
use crate::rpc::{Error, Result, Router, with_keepalive};
use crate::state::RequestContext;

/// Adds the RPCs of this module to `router`.
pub fn register(router: Router) -> Router {
    let service = Arc::new(Service::default());
    let [create, events, remove, stream] = std::array::from_fn(|_| Arc::clone(&service));
    router
        .unary("/filesystem.Filesystem/CreateWatcher", move |context, request| {
            create_watcher(Arc::clone(&create), context, request)
        })
        .unary("/filesystem.Filesystem/GetWatcherEvents", move |context, request| {
            get_watcher_events(Arc::clone(&events), context, request)
        })
        .unary("/filesystem.Filesystem/RemoveWatcher", move |_, request| {
            std::future::ready(remove_watcher(&remove, &request))
        })
        .server_stream("/filesystem.Filesystem/WatchDir", move |context, request| {
            watch_dir(Arc::clone(&stream), context, request)
        })
}

#[derive(Default)]
struct Service {
    hub: Hub,
    /// Watchers of clients that poll, which exist until they are removed.
    polled: Mutex<HashMap<String, Arc<Watcher>>>,
}

impl Service {
    fn polled(&self) -> MutexGuard<'_, HashMap<String, Arc<Watcher>>> {
        self.polled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn watch(self: &Arc<Self>, context: &RequestContext, wanted: WatchRequest) -> Result<Watcher> {
        let root = PathBuf::from(path::clean(&context.resolve(&wanted.path)?));
        let service = Arc::clone(self);
        blocking(move || {
            check_directory(&root)?;
            let failed =
                |e| Error::internal(format!("failed to look at the mount of '{}': {e}", root.display()));
            if !wanted.allow_network_mounts && mounts::is_network(&root).map_err(failed)? {
                let text = format!("cannot watch path '{}', which is on a network mount", root.display());
                return Err(Error::invalid_argument(text));
            }
            let (recursive, include_entry) = (wanted.recursive, wanted.include_entry);
            service.hub.watch(Options { root, recursive, include_entry })
        })
        .await
    }
}

/// The fields of both kinds of request.
struct WatchRequest {
    path: String,
    recursive: bool,
    include_entry: bool,
    allow_network_mounts: bool,
}

impl From<WatchDirRequest> for WatchRequest {
    fn from(request: WatchDirRequest) -> Self {
        let WatchDirRequest { path, recursive, include_entry, allow_network_mounts } = request;
        Self { path, recursive, include_entry, allow_network_mounts }
    }
}

impl From<CreateWatcherRequest> for WatchRequest {
    fn from(request: CreateWatcherRequest) -> Self {
        let CreateWatcherRequest { path, recursive, include_entry, allow_network_mounts } = request;
        Self { path, recursive, include_entry, allow_network_mounts }
    }
}

async fn watch_dir(
    service: Arc<Service>,
    context: RequestContext,
    request: WatchDirRequest,
) -> Result<impl Stream<Item = Result<WatchDirResponse>> + Send> {
    let watcher = service.watch(&context, request.into()).await?;
    let legacy = context.legacy;
    let batches = stream::unfold(Some(watcher), |watcher| async {
        let watcher = watcher?;
        match watcher.queue().next().await {
            Ok(events) => Some((events.into_iter().map(Ok).collect::<Vec<_>>(), Some(watcher))),
            Err(error) => Some((vec![Err(error)], None)),
        }
    });
    let events = batches
        .flat_map(stream::iter)
        .map(move |event| event.map(|event| Event::Filesystem(shown(legacy, event))));
    let start = stream::once(std::future::ready(Ok(Event::Start(StartEvent {}))));
    let messages = start.chain(events).map(|event| event.map(message));
    Ok(with_keepalive(messages, context.keepalive, || message(Event::Keepalive(KeepAlive {}))))
}

fn message(event: Event) -> WatchDirResponse {
    WatchDirResponse { event: Some(event) }
}

/// Removes fields that the oldest clients cannot read.
fn shown(legacy: bool, event: FilesystemEvent) -> FilesystemEvent {
    if legacy { FilesystemEvent { entry: None, ..event } } else { event }
}

async fn create_watcher(
    service: Arc<Service>,
    context: RequestContext,
    request: CreateWatcherRequest,
) -> Result<CreateWatcherResponse> {
    let watcher = service.watch(&context, request.into()).await?;
    let watcher_id = new_id();
    service.polled().insert(watcher_id.clone(), Arc::new(watcher));
    Ok(CreateWatcherResponse { watcher_id })
}

async fn get_watcher_events(
    service: Arc<Service>,
    context: RequestContext,
    request: GetWatcherEventsRequest,
) -> Result<GetWatcherEventsResponse> {
    let watcher = service.polled().get(&request.watcher_id).cloned();
    let watcher = watcher.ok_or_else(|| unknown(&request.watcher_id))?;
    let events = blocking(move || {
        watcher.catch_up();
        watcher.queue().take()
    });
    let events = events.await?.into_iter().map(|event| shown(context.legacy, event)).collect();
    Ok(GetWatcherEventsResponse { events })
}

fn remove_watcher(service: &Service, request: &RemoveWatcherRequest) -> Result<RemoveWatcherResponse> {
    let removed = service.polled().remove(&request.watcher_id);
    removed.map(|_| RemoveWatcherResponse {}).ok_or_else(|| unknown(&request.watcher_id))
}

fn unknown(id: &str) -> Error {
    Error::not_found(format!("watcher with id '{id}' not found"))
}

/// Makes an id of `w` and twenty letters and digits that cannot be guessed: the standard library keys its hash maps with random
/// bits.
fn new_id() -> String {
    const ALPHABET: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let keys = RandomState::new();
    let letter = |position: u32| char::from(ALPHABET[(keys.hash_one(position) % 36) as usize]);
    std::iter::once('w').chain((0..20).map(letter)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_the_form_of_the_original() {
        let (one, two) = (new_id(), new_id());
        assert_ne!(one, two);
        assert_eq!(one.len(), 21);
        assert!(
            one.starts_with('w') && one[1..].bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        );
    }
}
