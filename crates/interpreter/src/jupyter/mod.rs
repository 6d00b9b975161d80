//! Kernels that speak the Jupyter protocol, installed by a template or its user.
//!
//! ```text
//! kernelspec    which kernels are installed, and how each is started
//! connection    the ports and the key a kernel is given
//!  session      one task for each kernel: requests in, frames out
//!   message     signatures and the parts of messages
//!   zmtp        messages on TCP connections
//!   demux       what the messages of a kernel mean for the running execution
//!   dialect     how variables are set in each language
//! ```
//!
//! Nothing of this runs, and no file is read, before a client requests a language that has no host of its own.

mod connection;
mod demux;
mod dialect;
#[cfg(any(test, fuzzing, debug_assertions))]
pub(crate) mod fuzzing;
mod kernelspec;
mod message;
mod session;
mod zmtp;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use crate::kernel::{Kernel, Outputs, StartError};
use connection::Connection;
pub use kernelspec::Kernelspec;

/// Starts a kernel with this environment, in `directory` if that exists.
pub async fn start(
    spec: &Kernelspec,
    environment: &BTreeMap<OsString, OsString>,
    directory: &Path,
) -> Result<Kernel, StartError> {
    let connection = Connection::create(&runtime_directory(environment)).map_err(StartError::Descriptors)?;
    let (program, arguments) = spec
        .command(&connection.file)
        .ok_or_else(|| StartError::Ended(format!("kernel `{}` names no program", spec.name)))?;
    let (outputs, ends) = Outputs::pair().map_err(StartError::Descriptors)?;
    let mut command = Command::new(&program);
    command.args(arguments).env_clear().envs(spec.environment(environment)).stdin(Stdio::null());
    let spawned = crate::kernel::spawn(command, &program, directory, ends)?;
    // When memory runs out, user code is killed first. If this fails, the system chooses.
    let _ = std::fs::write(format!("/proc/{}/oom_score_adj", spawned.pid), "500");
    Kernel::converse(session::open(connection), spec.traits(), outputs, spawned).await
}

/// The directory in which Jupyter keeps connection files, so that its other tools find the kernels too.
fn runtime_directory(environment: &BTreeMap<OsString, OsString>) -> PathBuf {
    let variable = |name: &str| environment.get(OsStr::new(name));
    match variable("JUPYTER_RUNTIME_DIR") {
        Some(directory) => directory.into(),
        None => variable("HOME")
            .map_or_else(std::env::temp_dir, |home| Path::new(home).join(".local/share/jupyter/runtime")),
    }
}
