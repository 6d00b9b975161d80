//! Notifies pages of changes of the stored runs, by server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures_util::{Stream, stream};

use crate::shared::Shared;

/// The time between two looks at the version of the database, each of which reads one number.
const PERIOD: Duration = Duration::from_millis(500);

/// Counts changes until it is dropped.
pub(crate) async fn watch(shared: Arc<Shared>) {
    let mut watch = None;
    loop {
        let seen = match &mut watch {
            None => shared.library.watch().await.map(|fresh| {
                watch = Some(fresh);
                false
            }),
            Some(watch) => watch.changed().await,
        };
        match seen {
            Ok(true) => {
                shared.library.changed();
                shared.changes.send_modify(|count| *count += 1);
            }
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(%error, "failed to see whether results changed");
                watch = None;
            }
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// `init` at the start, then `update` after every change.
pub(crate) async fn events(
    State(shared): State<Arc<Shared>>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let changes = shared.changes.subscribe();
    let events = stream::unfold((changes, "init"), |(mut changes, name)| async move {
        if name == "update" {
            changes.changed().await.ok()?;
        }
        let count = *changes.borrow_and_update();
        Some((Ok(Event::default().event(name).data(count.to_string())), (changes, "update")))
    });
    Sse::new(events).keep_alive(KeepAlive::default())
}
