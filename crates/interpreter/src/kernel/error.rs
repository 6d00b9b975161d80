//! The errors of starting a kernel.

use std::io;
use std::time::Duration;

/// How long a kernel may take from its start until it says hello. The first one of a cold sandbox imports everything.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(120);

/// An error of starting a kernel.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The program of the kernel could not be run.
    #[error("failed to run `{program}`, which must be installed in the template")]
    Spawn {
        /// Name of the program.
        program: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Sockets or pipes for the kernel could not be made or handed over.
    #[error("failed to set up the descriptors of a kernel")]
    Descriptors(#[source] io::Error),
    /// The kernel ended, or sent something malformed, before it said hello. Carries what it wrote until then.
    #[error("kernel ended before it was ready: {0}")]
    Ended(String),
    /// The kernel did not say hello in time.
    #[error("kernel was not ready within {} s", START_TIMEOUT.as_secs())]
    Late,
    /// No host of ours and no installed Jupyter kernel runs this language.
    #[error(
        "no kernel for language `{language}`: there are {}; {}install `{language}` in the template and run it as a command, or \
         install a Jupyter kernel for it",
        known.join(", "),
        if *is_further { "start the server with `--languages all`, or " } else { "" }
    )]
    NoSuchKernel {
        /// The language as requested.
        language: String,
        /// Languages that can be run.
        known: Vec<String>,
        /// Whether the language comes with the template's layer of further languages, which is missing.
        is_further: bool,
    },
    /// The language was not in the template yet when this sandbox was created.
    #[error(
        "`{language}` is still being built: this sandbox was created before the languages beyond Python, JavaScript, TypeScript, \
         Bash and C++ were ready; create a new one when `sandcove status` says that they are"
    )]
    BeingBuilt {
        /// The language as requested.
        language: String,
    },
}
