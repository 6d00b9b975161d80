//! Servers that are programs: a message on a line of their input and output.

use std::process::Stdio;
use std::sync::Arc;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

use super::McpError;
use super::waiting::Waiting;
use crate::model::Object;
use crate::reading::files;
use crate::script::Workers;
use crate::template::value::to_text;

type Input = Arc<tokio::sync::Mutex<ChildStdin>>;

/// A running program. It ends when this is dropped.
pub struct Pipe {
    input: Input,
    waiting: Waiting,
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
        let waiting = Waiting::new();
        let reader = tokio::spawn(read(output, waiting.clone(), Arc::clone(&input)));
        Ok(Self { input, waiting, reader, _child: child })
    }

    /// Returns the answer to a request.
    pub async fn request(&self, method: &str, params: Value) -> Result<Value, McpError> {
        let (request, answer) = self.waiting.begin(method, params)?;
        self.send(&request).await?;
        answer.await.map_err(|_| McpError::Closed)
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
        if let Some(reply) = waiting.hand_over(message) {
            let _ = write(&input, &reply).await;
        }
    }
    waiting.end();
}
