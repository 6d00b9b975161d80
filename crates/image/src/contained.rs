//! Programs whose processes and mounts are cleaned up in any case.

use tokio::process::Command;

/// Creates a command for `program` in PID, mount, IPC and UTS namespaces of its own. When the program or this process
/// ends in any way, the kernel kills its descendants and unmounts its mounts. Needs root.
pub fn command(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.args(["--mount", "--ipc", "--uts", "--propagation", "private", "--", program]);
    command
}
