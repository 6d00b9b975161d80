//! Keeping the pool of pre-created sandboxes filled.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::host::Host;
use super::prepare::{Purpose, prepare};
use super::restore::restore_pooled;
use super::unassigned::UnassignedSandbox;
use crate::{Blueprint, Error, Result, WarmState};

/// Interval at which a waiting refill looks again, and its pause after each round.
const PAUSE: Duration = Duration::from_millis(20);
/// Pause after a pooled sandbox could not be created.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Interval at which the pool is checked without a start.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which a bucket with a task of its own is checked.
const OWN_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Failures in a row after which the sandboxes of such a bucket are not kept any more.
const MAX_FAILURES: u32 = 3;
/// Slots that a pool that grows leaves free.
const MIN_FREE_SLOTS: usize = 32;

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

/// Keeps the bucket of one blueprint filled for as long as it is kept and its sandboxes can be created.
pub(super) async fn keep_own_filled(host: Weak<Host>, blueprint: Blueprint) {
    let mut failures = 0;
    loop {
        let Some(host) = host.upgrade() else { return };
        let Some(is_missing) = host.sandbox_pool.is_missing(&blueprint, has_room(&host)) else { return };
        let state = host.warm_processes.state(&blueprint.layers).map(|(state, _)| state);
        let is_cold = blueprint.wants_warm() && state == Some(WarmState::Starting);
        if !is_missing || is_cold || host.sandbox_pool.should_own_wait() {
            drop(host);
            tokio::time::sleep(OWN_CHECK_INTERVAL).await;
            continue;
        }
        match pooled(&host, &blueprint).await {
            Ok(sandbox) => {
                failures = 0;
                put(&host, &blueprint, sandbox).await;
            }
            Err(error) => {
                failures += 1;
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "failed to create a pooled sandbox"
                );
                if failures == MAX_FAILURES {
                    for sandbox in host.sandbox_pool.remove_one(&blueprint) {
                        host.discard(sandbox).await;
                    }
                    return;
                }
                tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
            }
        }
    }
}

async fn fill(host: &Arc<Host>) -> Result<()> {
    while let Some(blueprint) = host.sandbox_pool.missing(&host.warm_processes, has_room(host)) {
        while host.sandbox_pool.should_wait() {
            tokio::time::sleep(PAUSE).await;
        }
        let sandbox = pooled(host, &blueprint).await?;
        put(host, &blueprint, sandbox).await;
    }
    while !host.sandbox_pool.should_wait()
        && let Some(surplus) = host.sandbox_pool.take_surplus()
    {
        host.discard(surplus).await;
    }
    Ok(())
}

/// Creates a sandbox for the pool: one that continues after the start command of its template, where that is kept, or one that boots.
async fn pooled(host: &Arc<Host>, blueprint: &Blueprint) -> Result<UnassignedSandbox> {
    if let Some(snapshot) = &blueprint.started {
        match restore_pooled(host, blueprint, snapshot).await {
            Err(Error::NotStored { reason }) => tracing::debug!(snapshot, reason, "a pooled sandbox boots"),
            other => return other,
        }
    }
    prepare(host, Purpose::Pool(blueprint), None).await
}

/// Whether there are slots for more pooled sandboxes than are configured, beside those that clients may ask for next.
fn has_room(host: &Host) -> bool {
    host.slots.free() > MIN_FREE_SLOTS
}

async fn put(host: &Arc<Host>, blueprint: &Blueprint, sandbox: UnassignedSandbox) {
    let memory = memory_of(host, &sandbox);
    if let Some(unwanted) = host.sandbox_pool.put(blueprint, sandbox, memory) {
        host.discard(unwanted).await;
    }
}

/// Memory of a sandbox, bytes. What it shares with its warm process is not in it.
pub(super) fn memory_of(host: &Host, sandbox: &UnassignedSandbox) -> u64 {
    host.cgroups.usage(sandbox.slot).map_or(0, |usage| usage.memory_bytes)
}
