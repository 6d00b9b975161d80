//! Connections that change their protocol, such as WebSockets: both ends are spliced, and the bytes are not interpreted.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use crate::sandboxes::{ConnectionPermit, LiveSession};

/// Bytes read at once, each way.
const BUFFER: usize = 64 * 1024;

/// The protocol a request or answer changes to.
pub(super) fn wanted(headers: &HeaderMap) -> Option<HeaderValue> {
    let changes = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|token| token.trim().eq_ignore_ascii_case("upgrade"));
    headers.get(header::UPGRADE).filter(|_| changes).cloned()
}

/// Passes bytes both ways until both ends have closed, or the sandbox ends.
pub(super) fn splice(
    client: OnUpgrade,
    sandbox: OnUpgrade,
    live: Arc<LiveSession>,
    permit: ConnectionPermit,
) {
    tokio::spawn(async move {
        let _permit = permit;
        let both = async {
            let (client, sandbox) = tokio::try_join!(client, sandbox)?;
            let (mut client, mut sandbox) = (TokioIo::new(client), TokioIo::new(sandbox));
            tokio::io::copy_bidirectional_with_sizes(&mut client, &mut sandbox, BUFFER, BUFFER).await?;
            Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
        };
        if let Some(Err(err)) = live.ended.run_until_cancelled(both).await {
            tracing::debug!(error = %err, "upgraded connection ended early");
        }
    });
}
