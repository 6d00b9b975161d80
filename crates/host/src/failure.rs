//! Failures of requests.

use std::io;

use sandcove_image::files::FileError;
use sandcove_image::oci::{LayerError, TargetError};
use sandcove_isolate::Error;

/// Reason why a request failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The backend refused or failed.
    Backend(Error),
    /// An operation on the files of a volume was refused or failed.
    Files(FileError),
    /// A layer of an image is not usable.
    Layer(LayerError),
    /// Another operation of the kernel failed.
    Io(io::Error),
}

impl From<TargetError> for Failure {
    fn from(error: TargetError) -> Self {
        match error {
            TargetError::Layer(error) => Self::Layer(error),
            TargetError::Host(error) => Self::Io(error),
        }
    }
}

impl From<Failure> for TargetError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Layer(error) => Self::Layer(error),
            other => Self::Host(other.into()),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Backend(error)
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        Self::Files(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Failure {
    /// A request that no server sends unless it is hostile.
    pub(crate) fn refused(why: &'static str) -> Self {
        Self::Io(io::Error::new(io::ErrorKind::InvalidInput, why))
    }

    /// The other side is not there any more.
    pub(crate) fn gone() -> Self {
        Self::Io(io::Error::new(io::ErrorKind::BrokenPipe, "the host process is gone"))
    }

    /// An answer to another question.
    pub(crate) fn unexpected() -> Self {
        Self::Io(io::Error::new(io::ErrorKind::InvalidData, "the host process answered something else"))
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let source = match failure {
            Failure::Backend(error) => return error,
            Failure::Files(error) => io::Error::other(error),
            Failure::Layer(error) => layer(&error),
            Failure::Io(error) => error,
        };
        Self::Kernel { action: "serve a request of the server".into(), source }
    }
}

impl From<Failure> for FileError {
    fn from(failure: Failure) -> Self {
        let source = match failure {
            Failure::Files(error) => return error,
            Failure::Backend(error) => io::Error::other(error),
            Failure::Layer(error) => layer(&error),
            Failure::Io(error) => error,
        };
        Self::Io { action: "use the files of a volume", source }
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Io(error) | Failure::Files(FileError::Io { source: error, .. }) => error,
            Failure::Backend(error) => io::Error::other(error),
            Failure::Files(error) => io::Error::other(error),
            Failure::Layer(error) => layer(&error),
        }
    }
}

/// A fault of a layer where none is expected.
fn layer(error: &LayerError) -> io::Error {
    io::Error::other(format!("a layer is not usable: {error:?}"))
}
