//! Answers on the side of the server, with what came along: a number of something that the host side holds, or a descriptor.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::failure::Failure;
use crate::message::{Answer, Number};

/// Has the host side release what it holds under a number.
pub(crate) type Release = Arc<dyn Fn(Number) + Send + Sync>;

/// Something that the host side holds for the server; dropping it has the host side release it.
pub(crate) struct Held {
    number: Number,
    release: Release,
}

/// An answer, as the server gets it.
pub(crate) struct Reply {
    /// The answer itself.
    pub(crate) answer: Answer,
    /// Something that the host side holds from now on.
    pub(crate) held: Option<Held>,
    /// The descriptor that comes along.
    pub(crate) fd: Option<OwnedFd>,
}

impl Held {
    pub(crate) fn new(number: Number, release: Release) -> Self {
        Self { number, release }
    }

    /// Number by which requests name the object.
    pub(crate) fn number(&self) -> Number {
        self.number
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        (self.release)(self.number);
    }
}

impl Reply {
    /// Checks that a request was done.
    pub(crate) fn done(self) -> Result<(), Failure> {
        match self.answer {
            Answer::Done => Ok(()),
            _ => Err(Failure::unexpected()),
        }
    }

    /// The answer yes or no.
    pub(crate) fn flag(self) -> Result<bool, Failure> {
        match self.answer {
            Answer::Flag(flag) => Ok(flag),
            _ => Err(Failure::unexpected()),
        }
    }

    /// The answer with names.
    pub(crate) fn names(self) -> Result<Vec<String>, Failure> {
        match self.answer {
            Answer::Names(names) => Ok(names),
            _ => Err(Failure::unexpected()),
        }
    }

    /// Something that the host side holds from now on.
    pub(crate) fn held(self) -> Result<Held, Failure> {
        self.held.ok_or_else(Failure::unexpected)
    }

    /// The descriptor that comes along.
    pub(crate) fn fd(self) -> Result<OwnedFd, Failure> {
        self.fd.ok_or_else(Failure::unexpected)
    }
}
