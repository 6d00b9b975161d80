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

/// Time for answers to requests that were read before the end of the input.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
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
    // A client that has asked all it wants to ask, as a pipe has, still reads.
    let last_answers = async {
        loop {
            tokio::select! {
                biased;
                Some(message) = receive.recv() => write(&mut output, &message).await?,
                ended = tasks.join_next() => if ended.is_none() { return io::Result::Ok(()) },
            }
        }
    };
    let _ = tokio::time::timeout(LAST_ANSWERS, last_answers).await;
    // What still runs in sandboxes is ended, and that takes requests.
    tasks.shutdown().await;
    drop(send);
    let rest = async {
        while let Some(message) = receive.recv().await {
            write(&mut output, &message).await?;
        }
        io::Result::Ok(())
    };
    let _ = tokio::time::timeout(END_TIMEOUT, rest).await;
    Ok(())
}

async fn write(output: &mut (impl AsyncWrite + Unpin), message: &Value) -> io::Result<()> {
    output.write_all(format!("{message}\n").as_bytes()).await?;
    output.flush().await
}

#[cfg(test)]
mod tests {
    use sandcove_wire::secret::Secret;

    use super::*;

    #[tokio::test]
    async fn requests_of_an_input_that_ends_are_answered() {
        let client = Client::new("http://127.0.0.1:9", &Secret::new("e2b_0")).unwrap();
        let input =
            (1..=20).map(|id| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/list\"}}\n"));
        let input = std::io::Cursor::new(input.collect::<String>());
        let mut output = Vec::new();
        serve(&client, input, &mut output).await.unwrap();
        let answers = output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let mut ids: Vec<_> = answers
            .map(|line| serde_json::from_slice::<Value>(line).unwrap()["id"].as_u64().unwrap())
            .collect();
        ids.sort_unstable();
        assert_eq!(ids, (1..=20).collect::<Vec<_>>());
    }
}
