//! Runs a program and passes on its output, line by line.

use std::collections::VecDeque;
use std::process::{ExitStatus, Stdio};

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::Command;

/// Maximum number of output lines that an error shows.
const MAX_LINES: usize = 30;

/// Runs `command` to its end and passes each line of both output streams to `output` as it arrives. Bytes that are not
/// UTF-8 are replaced. Dropping the future kills the program.
///
/// # Errors
/// When the program cannot be started or waited for.
pub(crate) async fn run(
    command: &mut Command,
    output: &mut (dyn FnMut(&str) + Send),
) -> std::io::Result<ExitStatus> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut streams: Vec<BufReader<Box<dyn AsyncRead + Send + Unpin>>> = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        streams.push(BufReader::new(Box::new(stdout)));
    }
    if let Some(stderr) = child.stderr.take() {
        streams.push(BufReader::new(Box::new(stderr)));
    }
    let (sender, mut lines) = tokio::sync::mpsc::channel::<String>(64);
    let mut readers = tokio::task::JoinSet::new();
    for mut stream in streams {
        let sender = sender.clone();
        readers.spawn(async move {
            let mut line = Vec::new();
            while matches!(stream.read_until(b'\n', &mut line).await, Ok(1..)) {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                line.clear();
                if sender.send(text).await.is_err() {
                    break;
                }
            }
        });
    }
    drop(sender);
    while let Some(line) = lines.recv().await {
        output(&line);
    }
    child.wait().await
}

/// The last lines of a program's output, for its error.
#[derive(Default)]
pub(crate) struct Tail(VecDeque<String>);

impl Tail {
    /// The lines, joined.
    pub(crate) fn text(&self) -> String {
        self.0.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }

    /// Adds a line and drops the oldest one when there are too many.
    pub(crate) fn push(&mut self, line: &str) {
        if self.0.len() == MAX_LINES {
            self.0.pop_front();
        }
        self.0.push_back(line.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_of_both_streams_and_the_status_arrive() {
        let mut seen = Vec::new();
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; printf tail; exit 3"]);
        let status = run(&mut command, &mut |line| seen.push(line.to_owned())).await.unwrap();
        seen.sort();
        assert_eq!(seen, ["err", "out", "tail"]);
        assert_eq!(status.code(), Some(3));
    }
}
