//! Requests whose answers come over a line that all of them share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::McpError;

/// Requests that wait for their answers. Clones are of the same line.
#[derive(Clone)]
pub(super) struct Waiting(Arc<Line>);

struct Line {
    next: AtomicU64,
    /// Senders of the answers that are waited for, by the ids of their requests; nothing after
    /// the line has ended.
    waiting: Mutex<Option<HashMap<u64, oneshot::Sender<Value>>>>,
}

impl Waiting {
    pub(super) fn new() -> Self {
        Self(Arc::new(Line { next: AtomicU64::new(1), waiting: Mutex::new(Some(HashMap::new())) }))
    }

    /// Makes a request, which is to be sent, and a receiver of its answer.
    pub(super) fn begin(
        &self,
        method: &str,
        params: Value,
    ) -> Result<(Value, oneshot::Receiver<Value>), McpError> {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let (send, receive) = oneshot::channel();
        self.lock().as_mut().ok_or(McpError::Closed)?.insert(id, send);
        Ok((json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}), receive))
    }

    /// Hands an answer to who waits for it. Returns the answer to a request of the server.
    pub(super) fn hand_over(&self, message: Value) -> Option<Value> {
        if message.get("method").is_some() {
            return reply(&message);
        }
        let id = message.get("id").and_then(Value::as_u64)?;
        let waiter = self.lock().as_mut().and_then(|waiting| waiting.remove(&id));
        if let Some(waiter) = waiter {
            let _ = waiter.send(message);
        }
        None
    }

    /// Ends the line: nobody gets an answer any more.
    pub(super) fn end(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<HashMap<u64, oneshot::Sender<Value>>>> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answer to a request of the server; nothing to a notification.
fn reply(message: &Value) -> Option<Value> {
    let id = message.get("id").filter(|id| !id.is_null())?;
    Some(match message.get("method").and_then(Value::as_str) {
        Some("ping") => json!({"jsonrpc": "2.0", "id": id, "result": {}}),
        _ => json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "not supported"}}),
    })
}
