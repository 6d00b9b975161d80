//! Failures as data. What the server decides by is kept; of the rest, the text.

use std::io;

use sandcove_image::files::FileError;
use sandcove_image::oci::LayerError;
use sandcove_isolate::Error;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// Kinds of errors without a code of the kernel that the server tells apart.
const KINDS: [io::ErrorKind; 7] = [
    io::ErrorKind::ConnectionRefused,
    io::ErrorKind::NotFound,
    io::ErrorKind::TimedOut,
    io::ErrorKind::BrokenPipe,
    io::ErrorKind::StorageFull,
    io::ErrorKind::QuotaExceeded,
    io::ErrorKind::InvalidInput,
];

/// A failure in a message.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FailureText {
    /// The failure [`Error::NoSlot`].
    NoSlot(u32),
    /// The failure [`Error::Jail`].
    Jail(String, String),
    /// The failure [`Error::AgentSlow`].
    AgentSlow(u64, String),
    /// The failure [`Error::AgentEnded`].
    AgentEnded(u64, String),
    /// The failure [`Error::Unproven`].
    Unproven(String, String),
    /// The failure [`Error::ProcessGone`].
    ProcessGone,
    /// The failure [`Error::PoolFull`].
    PoolFull,
    /// The failure [`Error::PoolNearlyFull`].
    PoolNearlyFull(u64),
    /// The failure [`Error::NoSnapshots`].
    NoSnapshots,
    /// The failure [`Error::NotStored`].
    NotStored(String),
    /// The failure [`Error::MemoryTooLarge`].
    MemoryTooLarge(u64),
    /// Any other error of the backend: what failed, and why.
    Backend(String, IoText),
    /// The failure [`FileError::NotFound`].
    FileNotFound(String),
    /// The failure [`FileError::Exists`].
    FileExists(String),
    /// The failure [`FileError::Refused`].
    FileRefused(String),
    /// The failure [`FileError::Full`].
    VolumeFull,
    /// The failure [`FileError::Io`].
    File(IoText),
    /// The failure [`Failure::Layer`].
    Layer(LayerError),
    /// The failure [`Failure::Io`].
    Io(IoText),
}

/// An error of the kernel in a message.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct IoText {
    code: Option<i32>,
    /// Index in [`KINDS`].
    kind: Option<usize>,
    text: String,
}

impl From<&io::Error> for IoText {
    fn from(error: &io::Error) -> Self {
        let kind = KINDS.iter().position(|kind| *kind == error.kind());
        let mut text = error.to_string();
        if let Some(source) = error.get_ref().and_then(|inner| inner.source()) {
            text = format!("{text}: {source}");
        }
        Self { code: error.raw_os_error(), kind, text }
    }
}

impl From<IoText> for io::Error {
    fn from(IoText { code, kind, text }: IoText) -> Self {
        let kind = kind.and_then(|index| KINDS.get(index)).copied().unwrap_or(io::ErrorKind::Other);
        code.map_or_else(|| io::Error::new(kind, text), io::Error::from_raw_os_error)
    }
}

impl From<Failure> for FailureText {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Backend(error) => Self::backend(&error),
            Failure::Layer(error) => Self::Layer(error),
            Failure::Files(FileError::NotFound(path)) => Self::FileNotFound(path),
            Failure::Files(FileError::Exists(path)) => Self::FileExists(path),
            Failure::Files(FileError::Refused(why)) => Self::FileRefused(why),
            Failure::Files(FileError::Full) => Self::VolumeFull,
            Failure::Files(FileError::Io { action, source }) => {
                let IoText { kind, text, .. } = (&source).into();
                Self::File(IoText { code: None, kind, text: format!("failed to {action}: {text}") })
            }
            Failure::Io(error) => Self::Io((&error).into()),
        }
    }
}

impl FailureText {
    fn backend(error: &Error) -> Self {
        match error {
            Error::NoSlot(max) => Self::NoSlot(*max),
            Error::Jail { step, reason } => Self::Jail(step.clone(), reason.clone()),
            Error::AgentSlow { waited_ms, log } => Self::AgentSlow(*waited_ms, log.clone()),
            Error::AgentEnded { waited_ms, log } => Self::AgentEnded(*waited_ms, log.clone()),
            Error::Unproven { id, reason } => Self::Unproven(id.clone(), reason.clone()),
            Error::ProcessGone => Self::ProcessGone,
            Error::PoolFull => Self::PoolFull,
            Error::PoolNearlyFull { percent } => Self::PoolNearlyFull(*percent),
            Error::NoSnapshots => Self::NoSnapshots,
            Error::Path { action, path, source } => {
                Self::Backend(format!("{action} `{}`", path.display()), source.into())
            }
            Error::Kernel { action, source } => Self::Backend(action.clone(), source.into()),
            Error::NotStored { reason } => Self::NotStored(reason.clone()),
            Error::MemoryTooLarge { max_bytes } => Self::MemoryTooLarge(*max_bytes),
            Error::NoInstance(_)
            | Error::Spawner(_)
            | Error::OtherPool { .. }
            | Error::SimpleQuotas { .. }
            | Error::Tool { .. } => {
                let text = IoText { code: None, kind: None, text: error.to_string() };
                Self::Backend("change the host".into(), text)
            }
        }
    }
}

impl From<FailureText> for Failure {
    fn from(text: FailureText) -> Self {
        match text {
            FailureText::NoSlot(max) => Error::NoSlot(max).into(),
            FailureText::Jail(step, reason) => Error::Jail { step, reason }.into(),
            FailureText::AgentSlow(waited_ms, log) => Error::AgentSlow { waited_ms, log }.into(),
            FailureText::AgentEnded(waited_ms, log) => Error::AgentEnded { waited_ms, log }.into(),
            FailureText::Unproven(id, reason) => Error::Unproven { id, reason }.into(),
            FailureText::ProcessGone => Error::ProcessGone.into(),
            FailureText::PoolFull => Error::PoolFull.into(),
            FailureText::PoolNearlyFull(percent) => Error::PoolNearlyFull { percent }.into(),
            FailureText::NoSnapshots => Error::NoSnapshots.into(),
            FailureText::NotStored(reason) => Error::NotStored { reason }.into(),
            FailureText::MemoryTooLarge(max_bytes) => Error::MemoryTooLarge { max_bytes }.into(),
            FailureText::Backend(action, source) => Error::Kernel { action, source: source.into() }.into(),
            FailureText::FileNotFound(path) => FileError::NotFound(path).into(),
            FailureText::FileExists(path) => FileError::Exists(path).into(),
            FailureText::FileRefused(why) => FileError::Refused(why).into(),
            FailureText::VolumeFull => FileError::Full.into(),
            FailureText::File(source) => {
                FileError::Io { action: "use the files of a volume", source: source.into() }.into()
            }
            FailureText::Layer(error) => Failure::Layer(error),
            FailureText::Io(error) => Failure::Io(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The failure after a journey over the socket.
    fn sent(failure: Failure) -> Failure {
        let text = serde_json::to_string(&FailureText::from(failure)).unwrap();
        serde_json::from_str::<FailureText>(&text).unwrap().into()
    }

    #[test]
    fn what_the_server_decides_by_arrives() {
        let refused = sent(io::Error::from(io::ErrorKind::ConnectionRefused).into());
        assert_eq!(io::Error::from(refused).kind(), io::ErrorKind::ConnectionRefused);
        let refused = sent(io::Error::from_raw_os_error(111).into());
        assert_eq!(io::Error::from(refused).kind(), io::ErrorKind::ConnectionRefused);
        assert!(matches!(sent(Error::NoSlot(3).into()), Failure::Backend(Error::NoSlot(3))));
        let full = Error::Path {
            action: "create",
            path: "/pool/x".into(),
            source: io::ErrorKind::StorageFull.into(),
        };
        let Failure::Backend(error) = sent(full.into()) else { panic!("another failure") };
        assert!(error.is_full());
        assert_eq!(error.to_string(), "failed to create `/pool/x`");
        let missing = sent(FileError::NotFound("/a".into()).into());
        assert_eq!(FileError::from(missing).to_string(), "path '/a' does not exist");
    }
}
