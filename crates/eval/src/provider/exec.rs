//! Programs as providers: the prompt is an argument, standard output the answer.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::json;

use super::{Call, Provider};
use crate::model::ProviderResponse;

/// `exec:program arguments…`
pub struct Exec {
    id: String,
    command: Vec<String>,
    base: PathBuf,
    options: serde_json::Value,
}

impl Exec {
    /// Of the command after `exec:`.
    pub fn new(id: &str, command: &str, base: PathBuf, options: serde_json::Value) -> Self {
        Self { id: id.to_owned(), command: words(command), base, options }
    }
}

impl Provider for Exec {
    fn id(&self) -> &str {
        &self.id
    }

    fn call<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, ProviderResponse> {
        let arguments = [call.prompt.to_owned(), self.options.to_string(), call.context.to_string()];
        async move {
            let ran =
                run(&self.command, &arguments, &self.base, &call.services.env, Duration::from_secs(300))
                    .await;
            match ran {
                Ok(text) => ProviderResponse { raw: Some(json!(text)), ..ProviderResponse::text(text) },
                Err(error) => ProviderResponse::failed(error),
            }
        }
        .boxed()
    }
}

/// Runs a program with more arguments; what it prints, trimmed and without colours.
///
/// # Errors
/// When it cannot start, fails, prints only to standard error, or takes too long.
pub async fn run(
    command: &[String],
    more: &[String],
    directory: &std::path::Path,
    env: &crate::model::Object,
    limit: Duration,
) -> Result<String, String> {
    let Some((program, arguments)) = command.split_first() else {
        return Err("the command is empty".to_owned());
    };
    let mut child = tokio::process::Command::new(program);
    child
        .args(arguments)
        .args(more)
        .current_dir(directory)
        .stdin(Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
    for (key, value) in env {
        child.env(key, crate::template::value::to_text(value));
    }
    let output = match tokio::time::timeout(limit, child.output()).await {
        Err(_) => return Err(format!("`{program}` took longer than {} s", limit.as_secs())),
        Ok(Err(error)) => return Err(format!("failed to run `{program}`: {error}")),
        Ok(Ok(output)) => output,
    };
    let (stdout, stderr) = (plain(&output.stdout), plain(&output.stderr));
    if !output.status.success() {
        let said = if stderr.is_empty() { stdout } else { stderr };
        return Err(format!("`{program}` failed ({}): {said}", output.status));
    }
    if stdout.is_empty() && !stderr.is_empty() {
        return Err(stderr);
    }
    Ok(stdout)
}

/// Text without escape sequences of terminals, trimmed.
fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' && chars.peek() == Some(&'[') {
            chars.next();
            while chars.next().is_some_and(|c| !c.is_ascii_alphabetic()) {}
        } else {
            out.push(c);
        }
    }
    out.trim().to_owned()
}

/// Splits a command line at blanks outside quotes.
pub fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quote, mut started) = (String::new(), None, false);
    let mut chars = command.trim().chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                started = true;
            }
            (None | Some('"'), '\\') => word.extend(chars.next()),
            (None, c) if c.is_whitespace() => {
                if started || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                started = false;
            }
            (_, c) => word.push(c),
        }
    }
    if started || !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_hold_words_together() {
        assert_eq!(
            words("python3 'a b.py' --x=\"1 2\" c\\ d ''"),
            ["python3", "a b.py", "--x=1 2", "c d", ""]
        );
    }
}
