//! Why a certificate was not issued, in words for the operator.

use std::path::PathBuf;

use instant_acme::Problem;

/// A certificate that was not issued.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("failed to keep `{}`", path.display())]
    Disk {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The authority does not answer, or not with what ACME says.
    #[error("the authority at {directory} does not answer as it should: {reason}")]
    Unreachable {
        /// Where it is.
        directory: String,
        /// The reason.
        reason: String,
    },
    /// The authority refuses.
    #[error("the authority refuses: {0}")]
    Refused(String),
    /// The authority did not find the record that this server answers with.
    #[error("the authority could not check {name}: {reason}")]
    NotChecked {
        /// Name that was to be checked.
        name: String,
        /// Finding of the authority.
        reason: String,
        /// The record that it looked for, where the operator has to add one for the account.
        record: Option<String>,
    },
    /// A key or a request cannot be made.
    #[error("failed to make a certificate request")]
    Request(#[source] rcgen::Error),
    /// The authority issued something else than a certificate for the domain.
    #[error("the authority issued something else than a certificate for {0}")]
    Unusable(String),
}

impl Error {
    /// Whether it may pass by itself, so that another attempt makes sense soon.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Disk { .. })
    }

    /// The failure of a request to the authority at `directory`.
    pub(crate) fn of(directory: &str, error: instant_acme::Error) -> Self {
        match error {
            instant_acme::Error::Api(problem) if problem.status.is_none_or(|status| status < 500) => {
                Self::Refused(Self::said(&problem))
            }
            error => Self::Unreachable { directory: directory.to_owned(), reason: whole(&error) },
        }
    }

    /// The text of a problem. It is of another party, so that it may be long or have anything in it.
    pub(crate) fn said(problem: &Problem) -> String {
        let kind = problem.r#type.as_deref().and_then(|kind| kind.rsplit(':').next()).unwrap_or("no type");
        short(&format!("{} ({kind})", problem.detail.as_deref().unwrap_or("no reason is given")))
    }
}

/// The texts of an error and of its causes.
fn whole(error: &dyn std::error::Error) -> String {
    let mut texts = vec![error.to_string()];
    let mut next = error.source();
    while let Some(error) = next {
        texts.push(error.to_string());
        next = error.source();
    }
    texts.dedup();
    short(&texts.join(": "))
}

fn short(text: &str) -> String {
    text.chars().filter(|char| !char.is_control()).take(600).collect()
}
