//! Reports of metrics to a collector, for as long as the server serves.

use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::http::metrics_text;
use crate::otlp::{self, STOP_TIMEOUT};
use crate::state::App;
use crate::telemetry::Form;

/// The task that reports.
pub(super) struct Report {
    stopping: CancellationToken,
    sending: JoinHandle<()>,
}

impl Report {
    /// Begins to report; `None` without a collector of metrics.
    pub(super) fn start(app: &App) -> Option<Self> {
        let to = app.config().metrics_to.clone()?;
        let (app, stopping) = (app.clone(), CancellationToken::new());
        let until = stopping.clone();
        let read = move || -> BoxFuture<'static, String> {
            let app = app.clone();
            Box::pin(async move { metrics_text(&app, Form::Open).await })
        };
        let sending = tokio::spawn(async move {
            let sent = otlp::send_metrics(&to, read, until).await;
            if let Err(error) = sent {
                tracing::error!(%error, "metrics are not sent");
            }
        });
        Some(Self { stopping, sending })
    }

    /// Reports once more, within a short timeout.
    pub(super) async fn end(self) {
        self.stopping.cancel();
        let ending = self.sending.abort_handle();
        if timeout(STOP_TIMEOUT, self.sending).await.is_err() {
            ending.abort();
        }
    }
}
