//! A trial of CRIU: a process is stored and restored.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{Program, first_error};
use crate::{Error, Result};

/// Timeout for a dump or a restore of a small process.
const TIMEOUT: Duration = Duration::from_secs(60);
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// The process that is stored.
const SUBJECT: [&str; 3] = ["setsid", "sleep", "1000"];

/// Stores a process with the CRIU in `directory`, restores it from disk, and ends it; returns the version of CRIU. `scratch` is an empty
/// directory for the images.
///
/// # Errors
/// When there is no CRIU, or it does not work on this host. The error says why.
pub fn probe_criu(directory: &Path, scratch: &Path) -> Result<String> {
    let criu = Program::at(directory);
    let version = criu.version()?;
    let mut subject = spawn(&SUBJECT).map_err(|error| failed(error.to_string()))?;
    let pid = subject.id();
    let dumped = run(&criu, scratch, "dump", &["--tree", &pid.to_string()]);
    // A dump that has succeeded has ended the process.
    let _ = subject.kill();
    let _ = subject.wait();
    dumped?;
    run(&criu, scratch, "restore", &["--restore-detached"])?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    if name.trim() != SUBJECT[1] {
        return Err(failed("the restored process is not there".into()));
    }
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
    Ok(version)
}

fn spawn(command: &[&str]) -> io::Result<Child> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let null = Stdio::null;
    Command::new(program).args(arguments).current_dir("/").stdin(null()).stdout(null()).stderr(null()).spawn()
}

fn run(criu: &Program, scratch: &Path, action: &str, options: &[&str]) -> Result<()> {
    let log = format!("{action}.log");
    let images = scratch.to_string_lossy();
    let mut command = criu.command();
    let usual =
        ["--images-dir", &images, "--log-file", &log, "--no-default-config", "--manage-cgroups=ignore"];
    command.extend([action].into_iter().chain(usual).chain(options.iter().copied()).map(str::to_owned));
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let output = wait(spawn(&command).map_err(|error| failed(error.to_string()))?)?;
    if output.status.success() {
        return Ok(());
    }
    let text = std::fs::read_to_string(scratch.join(&log)).unwrap_or_default();
    Err(failed(format!("{action}: {}", first_error(&text))))
}

fn wait(mut child: Child) -> Result<Output> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match child.try_wait() {
            Ok(Some(_)) => return child.wait_with_output().map_err(|error| failed(error.to_string())),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(LOOK_INTERVAL),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed(format!("it did not end within {} s", TIMEOUT.as_secs())));
            }
        }
    }
}

fn failed(reason: String) -> Error {
    Error::Tool { tool: "criu", reason }
}
