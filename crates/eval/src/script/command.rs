//! Programs of the user's: splitting command lines, and running them.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::ScriptError;
use crate::reading::Env;
use crate::template::value::to_text;

/// Runs a program with more arguments and returns what it prints, trimmed and without colours.
///
/// # Errors
/// When it cannot start, fails, prints only to standard error, or takes too long.
pub async fn run(
    command: &[String],
    more: &[String],
    directory: &Path,
    env: &Env,
    limit: Duration,
) -> Result<String, ScriptError> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(ScriptError::EmptyCommand);
    };
    let mut child = Command::new(program);
    child
        .args(arguments)
        .args(more)
        .current_dir(directory)
        .stdin(Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
    for (key, value) in env.own() {
        child.env(key, to_text(value));
    }
    let output = match tokio::time::timeout(limit, child.output()).await {
        Err(_) => return Err(ScriptError::CommandTimedOut { program: program.clone(), limit }),
        Ok(Err(error)) => return Err(ScriptError::Start { program: program.clone(), error }),
        Ok(Ok(output)) => output,
    };
    let (stdout, stderr) = (plain(&output.stdout), plain(&output.stderr));
    if !output.status.success() {
        let printed = if stderr.is_empty() { stdout } else { stderr };
        return Err(ScriptError::CommandFailed { program: program.clone(), status: output.status, printed });
    }
    if stdout.is_empty() && !stderr.is_empty() {
        return Err(ScriptError::OnlyStderr(stderr));
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
