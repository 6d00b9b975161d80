//! Servers that are programs: a message on a line of their input and output.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::McpError;
use crate::model::Object;
use crate::reading::files;
use crate::script::Workers;
use crate::template::value::to_text;

/// Requests that wait for their answers, by their ids; nothing after the program has ended.
pub(super) type Waiting = Arc<Mutex<Option<HashMap<u64, oneshot::Sender<Value>>>>>;
type Input = Arc<tokio::sync::Mutex<ChildStdin>>;

/// A running program. It ends when this is dropped.
pub struct Pipe {
    input: Input,
    waiting: Waiting,
    next: AtomicU64,
    reader: JoinHandle<()>,
    _child: Child,
}

impl Pipe {
    /// Starts a program in the directory of the suite. What it says on standard error is not kept.
    pub fn start(settings: &Object, workers: &Workers) -> Result<Self, McpError> {
        let (program, arguments) = command(settings, workers);
        let failed = |error| McpError::Start { program: program.clone(), error };
        let mut command = Command::new(&program);
        command
            .args(arguments)
            .current_dir(workers.base())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true);
        let own = settings.get("env").and_then(Value::as_object).into_iter().flatten();
        for (key, value) in workers.env().own().iter().chain(own) {
            command.env(key, to_text(value));
        }
        let mut child = command.spawn().map_err(failed)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(McpError::Closed);
        };
        let input: Input = Arc::new(input.into());
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let reader = tokio::spawn(read(output, Arc::clone(&waiting), Arc::clone(&input)));
        Ok(Self { input, waiting, next: AtomicU64::new(1), reader, _child: child })
    }

    /// Returns the answer to a request.
    pub async fn request(&self, method: &str, params: Value) -> Result<Value, McpError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (send, receive) = oneshot::channel();
        match self.waiting.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            Some(waiting) => drop(waiting.insert(id, send)),
            None => return Err(McpError::Closed),
        }
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await?;
        receive.await.map_err(|_| McpError::Closed)
    }

    /// Sends a message.
    pub async fn send(&self, message: &Value) -> Result<(), McpError> {
        write(&self.input, message).await.map_err(|_| McpError::Closed)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

fn command(settings: &Object, workers: &Workers) -> (String, Vec<String>) {
    let text = |key: &str| settings.get(key).and_then(Value::as_str);
    if let Some(program) = text("command") {
        let arguments = settings.get("args").and_then(Value::as_array).into_iter().flatten();
        return (program.to_owned(), arguments.map(to_text).collect());
    }
    let path = files::resolve(workers.base(), text("path").unwrap_or_default());
    let python = || workers.env().get("PROMPTFOO_PYTHON").unwrap_or_else(|| "python3".to_owned());
    let is_python = path.extension().is_some_and(|extension| extension == "py");
    let program = if is_python { python() } else { "node".to_owned() };
    (program, vec![path.display().to_string()])
}

async fn write(input: &Input, message: &Value) -> std::io::Result<()> {
    let mut input = input.lock().await;
    input.write_all(format!("{message}\n").as_bytes()).await?;
    input.flush().await
}

/// Hands answers to those who wait for them, and answers what the program asks, until it ends.
async fn read(output: ChildStdout, waiting: Waiting, input: Input) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        // Programs that print something else on their output are not rare.
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        if message.get("method").is_some() {
            if let Some(reply) = reply(&message) {
                let _ = write(&input, &reply).await;
            }
        } else if let Some(id) = message.get("id").and_then(Value::as_u64) {
            let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(waiter) = waiting.as_mut().and_then(|waiting| waiting.remove(&id)) {
                let _ = waiter.send(message);
            }
        }
    }
    *waiting.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// The answer to a request of the server; nothing to a notification.
pub(super) fn reply(message: &Value) -> Option<Value> {
    let id = message.get("id").filter(|id| !id.is_null())?;
    Some(match message.get("method").and_then(Value::as_str) {
        Some("ping") => json!({"jsonrpc": "2.0", "id": id, "result": {}}),
        _ => json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "not supported"}}),
    })
}
