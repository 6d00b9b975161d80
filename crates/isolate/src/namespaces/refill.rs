//! Keeping the pool of pre-created sandboxes filled.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::host::Host;
use super::prepare::{Purpose, prepare};
use crate::Result;

/// Interval at which a waiting refill looks again, and its pause after each round.
const PAUSE: Duration = Duration::from_millis(20);
/// Pause after a pooled sandbox could not be created.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Interval at which the pool is checked without a start.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Keeps the pool filled for as long as the host exists.
pub(super) async fn keep_filled(host: Weak<Host>) {
    loop {
        let Some(host) = host.upgrade() else { return };
        let pause = match fill(&host).await {
            Ok(()) => {
                // A warm process that becomes ready is noticed at the next start, or after this interval.
                host.sandbox_pool.wait_for_start(CHECK_INTERVAL).await;
                PAUSE
            }
            Err(error) => {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "failed to create a pooled sandbox"
                );
                PAUSE_AFTER_FAILURE
            }
        };
        drop(host);
        tokio::time::sleep(pause).await;
    }
}

async fn fill(host: &Arc<Host>) -> Result<()> {
    while let Some(blueprint) = host.sandbox_pool.missing(&host.warm_processes) {
        while host.sandbox_pool.should_wait() {
            tokio::time::sleep(PAUSE).await;
        }
        let sandbox = prepare(host, Purpose::Pool(&blueprint)).await?;
        if let Some(unwanted) = host.sandbox_pool.put(&blueprint, sandbox) {
            host.discard(unwanted).await;
        }
    }
    Ok(())
}
