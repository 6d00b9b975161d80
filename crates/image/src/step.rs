//! The interface between template builds and isolation: running a script inside an unfinished layer.

use std::future::Future;
use std::path::PathBuf;

/// Root file system of a step.
#[derive(Debug, Clone)]
pub struct StepRoot {
    /// Read-only layers, topmost first. Without layers, `upper` is the root itself.
    pub lowers: Vec<PathBuf>,
    /// Directory for all changes, in the format of overlayfs.
    pub upper: PathBuf,
    /// Empty directory beside `upper` for the runner's own use.
    pub scratch: PathBuf,
}

/// Runner of steps. A step has the network, `/proc`, a minimal `/dev`, an empty `/tmp` and a resolver configuration,
/// and cannot change files of the host. When the future is dropped, or this process ends, the step is killed.
pub trait StepRunner {
    /// Runs the Bash script `script` as root inside, with only `PATH`, `HOME` and `LANG` in its environment. Passes
    /// every line of its output to `output`, and returns its exit status.
    ///
    /// # Errors
    /// When the step cannot be started or waited for.
    fn run(
        &self,
        root: &StepRoot,
        script: &str,
        output: &mut (dyn FnMut(&str) + Send),
    ) -> impl Future<Output = std::io::Result<std::process::ExitStatus>> + Send;
}
