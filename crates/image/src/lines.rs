//! Running a program and handing on what it writes, line by line.

use std::process::{ExitStatus, Stdio};

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::Command;

/// Runs `command` to its end. Lines of both its streams go to `output` as they come; bytes that are not UTF-8 are
/// replaced. Dropping the future kills the program.
///
/// # Errors
/// When it could not be started or waited for.
pub async fn run(
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
