//! The queue of ended spans on their way to the collector. It is bounded, and ending a span never waits.

use std::time::Duration;

use http::Uri;
use opentelemetry::Context;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter, SpanProcessor};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Maximum number of spans that wait; one has about a kilobyte.
const CAPACITY: usize = 8192;
/// Maximum number of spans in a batch.
const BATCH: usize = 512;
/// Time that a smaller batch waits for more spans.
const DELAY: Duration = Duration::from_millis(500);
/// Timeout of a batch, with all attempts.
const BATCH_TIMEOUT: Duration = Duration::from_secs(20);

/// The counter of spans that no collector accepted.
pub(super) type Dropped = Counter;

/// The sending end of the queue.
#[derive(Debug)]
pub(super) struct Queue {
    spans: mpsc::Sender<SpanData>,
    dropped: Dropped,
}

/// The receiving end of the queue.
pub(super) struct Waiting {
    spans: mpsc::Receiver<SpanData>,
    dropped: Dropped,
}

impl Queue {
    pub(super) fn new(dropped: Dropped) -> (Self, Waiting) {
        let (sender, spans) = mpsc::channel(CAPACITY);
        (Self { spans: sender, dropped: dropped.clone() }, Waiting { spans, dropped })
    }
}

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() && self.spans.try_send(span).is_err() {
            self.dropped.inc();
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Sends `waiting` spans until `stopping` is cancelled and no span waits. Spans that the collector does not accept are
/// dropped; the first failure is logged, and the next success.
pub(super) async fn send(
    exporter: impl SpanExporter,
    mut waiting: Waiting,
    stopping: CancellationToken,
    collector: Uri,
) {
    let mut reached = true;
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        tokio::select! {
            count = waiting.spans.recv_many(&mut batch, BATCH) => if count == 0 { return },
            () = stopping.cancelled(), if !waiting.spans.is_closed() => {
                waiting.spans.close();
                continue;
            }
        }
        if batch.len() < BATCH && stopping.run_until_cancelled(sleep(DELAY)).await.is_some() {
            while batch.len() < BATCH
                && let Ok(span) = waiting.spans.try_recv()
            {
                batch.push(span);
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
            None => tracing::warn!(%collector, "the collector takes traces again"),
            Some(ref error) if reached => {
                tracing::warn!(%collector, error, "the collector did not take traces, they are dropped until it does");
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

    use opentelemetry::trace::{Span as _, Tracer, TracerProvider};
    use opentelemetry_sdk::error::OTelSdkError;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing_subscriber::Layer;
    use tracing_subscriber::layer::{self, SubscriberExt};

    use super::*;

    /// A collector that accepts every batch, or none.
    #[derive(Debug)]
    struct Collector {
        takes: bool,
        got: Arc<AtomicUsize>,
    }

    impl SpanExporter for Collector {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
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

    /// Ends `count` spans before anything is sent, then sends and stops; what was taken and what was dropped.
    async fn ends(count: usize, takes: bool) -> (usize, u64) {
        let dropped = Dropped::default();
        let (queue, waiting) = Queue::new(dropped.clone());
        let provider = SdkTracerProvider::builder().with_span_processor(queue).build();
        let tracer = provider.tracer("test");
        (0..count).for_each(|_| tracer.start("span").end());
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
