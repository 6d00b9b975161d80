//! The protocol on a pipe: one message on a line.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use sandcove_client::Client;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use crate::answer::answer;
use crate::message::Message;

/// Time to end what runs in sandboxes after the client has gone.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Answers the messages of `input` on `output` until `input` ends. Requests are answered side by side, and may be cancelled.
///
/// # Errors
/// If `input` cannot be read or `output` cannot be written.
pub async fn serve(
    client: &Client,
    input: impl AsyncRead + Unpin + Send + 'static,
    mut output: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let (send, mut receive) = mpsc::unbounded_channel();
    // A task, because reading a line is not safe to cancel.
    let (read, mut lines) = mpsc::channel(1);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut input = BufReader::new(input).lines();
        loop {
            let line = input.next_line().await.transpose();
            let Some(line) = line else { return };
            if read.send(line).await.is_err() {
                return;
            }
        }
    });
    let mut running: HashMap<String, AbortHandle> = HashMap::new();
    loop {
        tokio::select! {
            line = lines.recv() => {
                let Some(line) = line.transpose()? else { break };
                if line.trim().is_empty() {
                    continue;
                }
                let message = match Message::parse(line.as_bytes()) {
                    Ok(message) => message,
                    Err(answer) => {
                        write(&mut output, &answer).await?;
                        continue;
                    }
                };
                if let Some(id) = message.cancelled() {
                    if let Some(task) = running.remove(&id.to_string()) {
                        task.abort();
                    }
                    continue;
                }
                let Some(id) = message.id.as_ref().map(Value::to_string) else { continue };
                running.retain(|_, task| !task.is_finished());
                let (client, send) = (client.clone(), send.clone());
                let task = tasks.spawn(async move {
                    if let Some(answer) = answer(&client, message, send.clone()).await {
                        let _ = send.send(answer);
                    }
                });
                running.insert(id, task);
            }
            Some(message) = receive.recv() => write(&mut output, &message).await?,
        }
    }
    // The client has gone: what still runs in sandboxes is ended, and that takes requests.
    tasks.shutdown().await;
    drop(send);
    let rest = async { while receive.recv().await.is_some() {} };
    let _ = tokio::time::timeout(END_TIMEOUT, rest).await;
    Ok(())
}

async fn write(output: &mut (impl AsyncWrite + Unpin), message: &Value) -> io::Result<()> {
    output.write_all(format!("{message}\n").as_bytes()).await?;
    output.flush().await
}
