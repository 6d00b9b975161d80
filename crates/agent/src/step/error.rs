//! The error of a step, in words for the author of a template.

use std::fmt::Display;
use std::io;

/// An error of a step.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The step, or what it works on, is invalid.
    #[error("{0}")]
    Invalid(String),
    /// A file of the sandbox could not be read or changed.
    #[error("failed to {action}: {source}")]
    File {
        /// Verb phrase with the path.
        action: String,
        /// Error of the operating system or of a decoder.
        #[source]
        source: io::Error,
    },
}

/// The result of a part of a step.
pub(super) type Result<T> = std::result::Result<T, StepError>;

impl StepError {
    /// Makes an error for a step that cannot be carried out as it is.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }

    /// Makes an error of the operating system from what was tried, on which path.
    pub(super) fn file(action: &str, path: impl Display, source: impl Into<io::Error>) -> Self {
        Self::File { action: format!("{action} `{path}`"), source: source.into() }
    }
}

/// A name as it is shown in an error: hostile bytes are escaped.
pub(super) fn shown(name: &[u8]) -> String {
    const MAX_SHOWN: usize = 200;
    let text: String = String::from_utf8_lossy(name).escape_debug().take(MAX_SHOWN).collect();
    // `escape_debug` escapes quotes too, which are harmless between backticks.
    text.replace("\\'", "'").replace("\\\"", "\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line() {
        assert_eq!(shown(b"a\nb'c\xff"), "a\\nb'c\u{fffd}");
        let error = StepError::file("open", shown(b"/x"), io::Error::from_raw_os_error(2));
        assert_eq!(error.to_string(), "failed to open `/x`: No such file or directory (os error 2)");
    }
}
