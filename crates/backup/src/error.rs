//! Errors of backups.

use std::io;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure to write or to read a backup.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is something else.
    #[error("this is not a backup of Sandcove: {0}")]
    NotABackup(String),
    /// A later version wrote the backup.
    #[error(
        "the backup was made by Sandcove {version}, in format {format}, which this version does not know\nhint: restore it with that version"
    )]
    NewerFormat {
        /// Version that wrote the backup.
        version: String,
        /// Format of the archive.
        format: u32,
    },
    /// The archive is not what the writer wrote.
    #[error("the backup is damaged: {0}")]
    Damaged(String),
    /// The archive has a name that no backup has.
    #[error("the backup has the name `{name}`, which {reason}: it was not made by Sandcove")]
    Name {
        /// The name, as text.
        name: String,
        /// Reason of the refusal.
        reason: &'static str,
    },
    /// A file could not be read or written.
    #[error("failed to {action} `{name}`")]
    File {
        /// Action that failed, such as `read`.
        action: &'static str,
        /// Name in the backup.
        name: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The archive could not be written.
    #[error("failed to write the backup")]
    Output(#[source] io::Error),
    /// The archive could not be read.
    #[error("failed to read the backup")]
    Input(#[source] io::Error),
}

/// Returns what makes an error of the kernel one of a named file.
pub(crate) fn at<E: Into<io::Error>>(action: &'static str, name: &[u8]) -> impl FnOnce(E) -> Error {
    let name = shown(name);
    move |source| Error::File { action, name, source: source.into() }
}

/// A name as text, which sandboxes choose: without what would control a terminal, and not too long.
pub(crate) fn shown(name: &[u8]) -> String {
    /// Maximum number of characters.
    const MAX: usize = 300;
    let text = String::from_utf8_lossy(name);
    let mut shown: String =
        text.chars().take(MAX).map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect();
    if text.chars().nth(MAX).is_some() {
        shown.push('…');
    }
    shown
}
