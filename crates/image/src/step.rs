//! The seam between building and isolation: who runs a script inside a half-made layer.

use std::future::Future;
use std::path::PathBuf;

/// The root file system a step sees.
#[derive(Debug, Clone)]
pub struct StepRoot {
    /// Read-only layers, topmost first. None: `upper` is the root itself.
    pub lowers: Vec<PathBuf>,
    /// Where every change goes, in overlayfs's own form.
    pub upper: PathBuf,
    /// An empty directory beside `upper` that the runner may use as it likes.
    pub scratch: PathBuf,
}

/// Runs steps. The step has the network, `/proc`, a minimal `/dev`, an empty `/tmp` and a resolver configuration, and
/// cannot change a file of the host. When the future is dropped, or this process dies, the step dies with it.
pub trait StepRunner {
    /// Runs `script`, which is Bash, as root inside; it sees `PATH`, `HOME` and `LANG` only. Hands every line it writes to `output`, and returns how it ended.
    ///
    /// # Errors
    /// When the step could not be started or waited for.
    fn run(
        &self,
        root: &StepRoot,
        script: &str,
        output: &mut (dyn FnMut(&str) + Send),
    ) -> impl Future<Output = std::io::Result<std::process::ExitStatus>> + Send;
}
