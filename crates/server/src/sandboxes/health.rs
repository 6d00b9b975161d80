//! The health check of a sandbox's agent.

use std::io;
use std::time::Duration;

use sandcove_host::Handle;
use sandcove_wire::boot::AGENT_PORT;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::live_session::LiveSession;

/// Time in which a healthy agent answers; a busy one takes milliseconds.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(3);
/// Time in which an agent answers that was just restored. One that does not loses its memory, so it gets as much as on a busy host.
const RESTORED_TIMEOUT: Duration = Duration::from_secs(30);
/// Time in which an agent answers before its sandbox is paused. The memory of one that does not is not resumed, so it gets more than a busy one needs.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which an agent that was heard needs no check before a pause, which would wait for it.
const HEARD: Duration = Duration::from_secs(5);

/// Whether the agent of a running sandbox answers its health check.
pub(super) async fn agent_answers(live: &LiveSession) -> bool {
    answers_within(HEALTH_TIMEOUT, &live.handle.0).await
}

/// Whether the agent of a sandbox that has just been restored answers its health check.
pub(super) async fn restored_agent_answers(handle: &Handle) -> bool {
    answers_within(RESTORED_TIMEOUT, handle).await
}

/// Whether the agent of a sandbox that is about to be paused is silent: it was not heard lately, and leaves its health check unanswered.
pub(super) async fn agent_is_silent(live: &LiveSession) -> bool {
    !live.agent_was_heard_within(HEARD)
        && tokio::time::timeout(PAUSE_TIMEOUT, check(&live.handle.0)).await.is_err()
}

async fn answers_within(timeout: Duration, handle: &Handle) -> bool {
    match tokio::time::timeout(timeout, check(handle)).await {
        Ok(Ok(is_healthy)) => is_healthy,
        Ok(Err(_)) | Err(_) => false,
    }
}

async fn check(handle: &Handle) -> io::Result<bool> {
    let mut stream = handle.connect(AGENT_PORT).await?;
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    let mut status = [0; b"HTTP/1.1 2".len()];
    stream.read_exact(&mut status).await?;
    Ok(status == *b"HTTP/1.1 2")
}
