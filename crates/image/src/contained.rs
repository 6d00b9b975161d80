//! Programs that leave nothing behind.

use tokio::process::Command;

/// A command for `program` in pid, mount, ipc and uts namespaces of its own: when it ends, or this process does, however
/// suddenly, everything it started is killed and everything it mounted is gone. Needs root.
pub fn command(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.args(["--mount", "--ipc", "--uts", "--propagation", "private", "--", program]);
    command
}
