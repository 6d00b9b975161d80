//! Programs whose processes and mounts are cleaned up in any case.

use tokio::process::Command;

/// Creates a command for `program` in PID, mount, IPC and UTS namespaces of its own. When the program or this process
/// ends in any way, the kernel kills its descendants and unmounts its mounts. Needs root.
pub fn command(program: &str) -> Command {
    let mut command = bound("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.args(["--mount", "--ipc", "--uts", "--propagation", "private", "--", program]);
    command
}

/// Creates a command for `program` that the kernel kills when this process ends in any way. The program has neither the
/// server's precedence on the processors, a niceness of -5, nor its protection when the host runs out of memory.
pub fn bound(program: &str) -> Command {
    let mut command = Command::new("choom");
    command.args([
        "--adjust",
        "0",
        "--",
        "nice",
        "-n",
        "5",
        "--",
        "setpriv",
        "--pdeathsig",
        "KILL",
        "--",
        program,
    ]);
    command
}
