//! Whether a sandbox's agent answers.

use std::io;
use std::time::Duration;

use sandcove_wire::boot::AGENT_PORT;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::live::Live;

/// How long a healthy agent may take; a busy one answers in milliseconds.
const PATIENCE: Duration = Duration::from_secs(3);

/// Asks the agent of a running sandbox how it is.
pub(super) async fn agent_answers(live: &Live) -> bool {
    match tokio::time::timeout(PATIENCE, ask(live)).await {
        Ok(Ok(is_well)) => is_well,
        Ok(Err(_)) | Err(_) => false,
    }
}

async fn ask(live: &Live) -> io::Result<bool> {
    let mut stream = live.handle.0.connect(AGENT_PORT).await?;
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    let mut status = [0; b"HTTP/1.1 2".len()];
    stream.read_exact(&mut status).await?;
    Ok(status == *b"HTTP/1.1 2")
}
