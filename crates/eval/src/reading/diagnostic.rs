//! Diagnostics about a configuration, with their location.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A location in a file. Lines and columns count from 1.
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

/// The severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// A value is interpreted in a way that might surprise its author.
    Notice,
    /// A value is probably a mistake.
    Warning,
    /// The configuration cannot be run as it was meant.
    Error,
}

/// A message about a configuration.
#[derive(Debug, Clone)]
pub struct Diagnostic {
    /// The severity.
    pub severity: Severity,
    /// The location, if the message is about text of a file.
    pub at: Option<Position>,
    /// The message.
    pub message: String,
    /// The suggested fix.
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
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Diagnostics in the order they were found, so that one run reports all of them.
#[derive(Debug, Default)]
pub struct Findings {
    all: Vec<Diagnostic>,
}

impl Findings {
    /// Adds a diagnostic without a hint.
    pub fn add(&mut self, severity: Severity, at: Option<&Position>, message: impl Into<String>) {
        self.push(Diagnostic { severity, at: at.cloned(), message: message.into(), hint: None });
    }

    /// Adds a diagnostic with a suggested fix.
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

    /// Adds a diagnostic.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.all.push(diagnostic);
    }

    /// Whether any diagnostic is an error, so that the run must not begin.
    pub fn failed(&self) -> bool {
        self.all.iter().any(|finding| finding.severity == Severity::Error)
    }

    /// Returns all diagnostics in the order they were found.
    pub fn all(&self) -> &[Diagnostic] {
        &self.all
    }

    /// Turns warnings into errors, so that a misspelt key stops the run.
    pub fn strict(&mut self) {
        for finding in &mut self.all {
            if finding.severity == Severity::Warning {
                finding.severity = Severity::Error;
            }
        }
    }

    /// Turns errors into warnings, so that the run uses what could be read.
    pub fn lenient(&mut self) {
        for finding in &mut self.all {
            finding.severity = finding.severity.min(Severity::Warning);
        }
    }
}

/// Returns the candidate of `known` that is most similar to a misspelt `name`.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance * 3 <= candidate.len().max(3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}
