//! The queue of what is on its way to the collector: ended spans, or lines of the log. It is bounded, and what fills it never waits.

use std::time::Duration;

use http::Uri;
use opentelemetry_sdk::error::OTelSdkResult;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Maximum number of entries that wait; one has about a kilobyte.
const CAPACITY: usize = 8192;
/// Maximum number of entries in a batch.
const BATCH: usize = 512;
/// Time that a smaller batch waits for more entries.
const DELAY: Duration = Duration::from_millis(500);
/// Timeout of a batch, with all attempts.
const BATCH_TIMEOUT: Duration = Duration::from_secs(20);

/// A counter of what no collector accepted.
pub(super) type Dropped = Counter;

/// The sending end of a queue.
#[derive(Debug)]
pub(super) struct Queue<T> {
    entries: mpsc::Sender<T>,
    dropped: Dropped,
}

/// The receiving end of a queue.
pub(super) struct Waiting<T> {
    entries: mpsc::Receiver<T>,
    dropped: Dropped,
}

/// Sends batches to a collector.
pub(super) trait Export<T>: Send + Sync {
    /// Name of the entries, for the log.
    const WHAT: &str;

    /// Sends one batch.
    fn export(&self, batch: Vec<T>) -> impl Future<Output = OTelSdkResult> + Send;
}

impl<T> Queue<T> {
    /// An empty queue; `dropped` counts what it does not take, and what the collector does not.
    pub(super) fn new(dropped: Dropped) -> (Self, Waiting<T>) {
        let (sender, entries) = mpsc::channel(CAPACITY);
        (Self { entries: sender, dropped: dropped.clone() }, Waiting { entries, dropped })
    }

    /// Adds an entry, or drops it if the queue is full.
    pub(super) fn put(&self, entry: T) {
        if self.entries.try_send(entry).is_err() {
            self.dropped.inc();
        }
    }
}

/// Sends what waits until `stopping` is cancelled and nothing waits. Entries that the collector does not accept are dropped; the first
/// failure is logged, and the next success.
pub(super) async fn send<T, E: Export<T>>(
    exporter: E,
    mut waiting: Waiting<T>,
    stopping: CancellationToken,
    collector: Uri,
) {
    let what = E::WHAT;
    let mut reached = true;
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        tokio::select! {
            count = waiting.entries.recv_many(&mut batch, BATCH) => if count == 0 { return },
            () = stopping.cancelled(), if !waiting.entries.is_closed() => {
                waiting.entries.close();
                continue;
            }
        }
        if batch.len() < BATCH && stopping.run_until_cancelled(sleep(DELAY)).await.is_some() {
            while batch.len() < BATCH
                && let Ok(entry) = waiting.entries.try_recv()
            {
                batch.push(entry);
            }
        }
        let count = batch.len();
        let sent = timeout(BATCH_TIMEOUT, exporter.export(std::mem::take(&mut batch))).await;
        let failure = match sent {
            Ok(Ok(())) => None,
            Ok(Err(err)) => Some(err.to_string()),
            Err(_) => Some(format!("no answer within {} seconds", BATCH_TIMEOUT.as_secs())),
        };
        match failure {
            None if reached => {}
            None => tracing::warn!(%collector, "the collector takes {what} again"),
            Some(ref error) if reached => {
                tracing::warn!(%collector, error, "the collector did not take {what}, they are dropped until it does");
            }
            Some(_) => {}
        }
        reached = failure.is_none();
        if !reached {
            waiting.dropped.inc_by(count as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use opentelemetry_sdk::error::OTelSdkError;
    use tracing_subscriber::Layer;
    use tracing_subscriber::layer::{self, SubscriberExt};

    use super::*;

    /// A collector that accepts every batch, or none.
    #[derive(Debug)]
    struct Collector {
        takes: bool,
        got: Arc<AtomicUsize>,
    }

    impl Export<usize> for Collector {
        const WHAT: &str = "numbers";

        async fn export(&self, batch: Vec<usize>) -> OTelSdkResult {
            assert!(batch.len() <= BATCH);
            if self.takes {
                self.got.fetch_add(batch.len(), Ordering::Relaxed);
                Ok(())
            } else {
                Err(OTelSdkError::InternalFailure("it is away".into()))
            }
        }
    }

    /// Counts what is written to the log.
    #[derive(Clone, Default)]
    struct Warnings(Arc<AtomicUsize>);

    impl<S: tracing::Subscriber> Layer<S> for Warnings {
        fn on_event(&self, event: &tracing::Event<'_>, _: layer::Context<'_, S>) {
            assert_eq!(*event.metadata().level(), tracing::Level::WARN);
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Queues `count` entries before anything is sent, then sends and stops; what was taken and what was dropped.
    async fn ends(count: usize, takes: bool) -> (usize, u64) {
        let dropped = Dropped::default();
        let (queue, waiting) = Queue::new(dropped.clone());
        (0..count).for_each(|number| queue.put(number));
        let got = Arc::new(AtomicUsize::new(0));
        let stopping = CancellationToken::new();
        stopping.cancel();
        send(Collector { takes, got: got.clone() }, waiting, stopping, Uri::from_static("http://c/")).await;
        (got.load(Ordering::Relaxed), dropped.get())
    }

    #[tokio::test]
    async fn a_stop_sends_all_that_waits() {
        assert_eq!(ends(BATCH * 2 + 1, true).await, (BATCH * 2 + 1, 0));
    }

    #[tokio::test]
    async fn what_is_too_much_is_counted_and_nobody_waits() {
        assert_eq!(ends(CAPACITY + 7, true).await, (CAPACITY, 7));
    }

    #[tokio::test]
    async fn what_is_not_taken_is_counted_and_said_once() {
        let warnings = Warnings::default();
        let subscriber = tracing_subscriber::registry().with(warnings.clone());
        let guard = tracing::subscriber::set_default(subscriber);
        assert_eq!(ends(BATCH * 3, false).await, (0, BATCH as u64 * 3));
        drop(guard);
        assert_eq!(warnings.0.load(Ordering::Relaxed), 1);
    }
}
