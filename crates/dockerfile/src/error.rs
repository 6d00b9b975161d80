//! Errors and warnings, each with the line of the Dockerfile that it is about.

use std::fmt;

/// The result of reading a Dockerfile or a build context.
pub type Result<T> = std::result::Result<T, Error>;

/// A Dockerfile or build context that cannot be used. `Display` has no location; [`Error::located`] adds it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// Line of the Dockerfile, from 1; 0 if the error is about no line.
    pub line: usize,
    /// Description of the error.
    pub message: String,
    /// Advice on what to do about the error.
    pub hint: Option<String>,
}

impl Error {
    /// An error about a line.
    pub fn at(line: usize, message: impl Into<String>) -> Self {
        Self { line, message: message.into(), hint: None }
    }

    /// An error about no line, such as an unreadable file.
    pub fn new(message: impl Into<String>) -> Self {
        Self::at(0, message)
    }

    /// Adds what to do about the error.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Sets the line if there is none yet.
    #[must_use]
    pub fn or_at(mut self, line: usize) -> Self {
        if self.line == 0 {
            self.line = line;
        }
        self
    }

    /// The error as `file:line: message`, with its hint on a line of its own.
    pub fn located(&self, file: &str) -> String {
        let place = if self.line == 0 { String::new() } else { format!("{file}:{}: ", self.line) };
        let hint = self.hint.as_ref().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
        format!("{place}{}{hint}", self.message)
    }
}

/// A warning about a line of a Dockerfile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Line of the Dockerfile, from 1.
    pub line: usize,
    /// Text of the warning.
    pub message: String,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_file_line_and_what_to_do() {
        let error = Error::at(3, "unknown flag --x").hint("remove it");
        assert_eq!(error.located("Dockerfile"), "Dockerfile:3: unknown flag --x\nhint: remove it");
        assert_eq!(Error::new("no such file").located("Dockerfile"), "no such file");
    }
}
