//! What is wrong with a configuration, and where.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A place in a file. Lines and columns count from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The file.
    pub file: Arc<Path>,
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file.display(), self.line, self.column)
    }
}

/// Whether the run can go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Something is done differently from what one might expect.
    Notice,
    /// Something is probably a mistake.
    Warning,
    /// The run would not be what was meant.
    Error,
}

/// One finding.
#[derive(Debug, Clone)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// Where, if it is in a file.
    pub at: Option<Position>,
    /// What it is.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(at) = &self.at {
            write!(f, "{at}: ")?;
        }
        let severity = match self.severity {
            Severity::Notice => "notice",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(f, "{severity}: {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Collects findings, so that one run tells all of them.
#[derive(Debug, Default)]
pub struct Findings {
    all: Vec<Diagnostic>,
}

impl Findings {
    /// Notes one.
    pub fn add(&mut self, severity: Severity, at: Option<&Position>, message: impl Into<String>) {
        self.push(Diagnostic { severity, at: at.cloned(), message: message.into(), hint: None });
    }

    /// Notes one that says what to do.
    pub fn hint(
        &mut self,
        severity: Severity,
        at: Option<&Position>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        let (message, hint) = (message.into(), Some(hint.into()));
        self.push(Diagnostic { severity, at: at.cloned(), message, hint });
    }

    /// Notes one.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.all.push(diagnostic);
    }

    /// Whether the run must not begin.
    pub fn failed(&self) -> bool {
        self.all.iter().any(|finding| finding.severity == Severity::Error)
    }

    /// All, in the order they were found.
    pub fn all(&self) -> &[Diagnostic] {
        &self.all
    }

    /// Warnings become errors: a misspelt key stops the run.
    pub fn strict(&mut self) {
        for finding in &mut self.all {
            if finding.severity == Severity::Warning {
                finding.severity = Severity::Error;
            }
        }
    }

    /// Errors become warnings: the run goes on with what could be read.
    pub fn lenient(&mut self) {
        for finding in &mut self.all {
            finding.severity = finding.severity.min(Severity::Warning);
        }
    }
}

/// The nearest of `known` to a misspelt `name`.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance * 3 <= candidate.len().max(3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Why a configuration was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file could not be read.
    #[error("failed to read `{}`", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Findings were told; this says only that some were errors.
    #[error("the configuration has errors")]
    Invalid,
}
