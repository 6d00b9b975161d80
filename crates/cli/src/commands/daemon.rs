//! `sandcove up`, `down` and `status`: a server in the background.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::data_dir::{Lock, ServerFile};
use crate::settings::Settings;

/// How often a condition is looked at; nothing tells when another process is ready.
const POLL: Duration = Duration::from_millis(50);

/// A log of this many bytes is large.
const LARGE_LOG: u64 = 16 << 20;

/// How long a server may take to stop before `down` gives up.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// Starts `sandcove serve` with the options `up` was given, detached, and waits until it answers.
pub async fn up(settings: &Settings, options: &[std::ffi::OsString]) -> Result<ExitCode> {
    if let Some((file, _)) = ServerFile::reachable(&settings.data_dir).await?
        && Lock::is_held(&settings.data_dir)
    {
        eprintln!("a server is running already (process {})", file.pid);
        print!("{}", file.exports());
        return Ok(ExitCode::SUCCESS);
    }
    drop(Lock::take(&settings.data_dir)?);
    let path = settings.data_dir.join("server.log");
    set_aside(&path)?;
    let mut log = OpenOptions::new()
        .append(true)
        .create(true)
        .read(true)
        .open(&path)
        .with_context(|| format!("failed to open `{}`", path.display()))?;
    log.seek(SeekFrom::End(0))?;
    let mut child = Command::new("setsid")
        .arg(std::env::current_exe().context("failed to find this program's own file")?)
        .arg("serve")
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log.try_clone()?)
        .spawn()
        .context("failed to run `setsid`: is util-linux installed?")?;
    let mut shown = OpenOptions::new().read(true).open(&path)?;
    shown.seek(SeekFrom::End(0))?;
    loop {
        show(&mut shown)?;
        if let Some(status) = child.try_wait()? {
            show(&mut shown)?;
            bail!("the server did not start ({status}); its log is `{}`", path.display());
        }
        let written = ServerFile::read(&settings.data_dir)?.filter(|file| file.pid == child.id());
        if let Some(file) = written
            && file.client()?.ping().await.is_ok()
        {
            show(&mut shown)?;
            print!("{}", file.exports());
            return Ok(ExitCode::SUCCESS);
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Begins a new log when the one at `path` has grown large; one old log is kept.
fn set_aside(path: &Path) -> Result<()> {
    let is_large = std::fs::metadata(path).is_ok_and(|log| log.len() > LARGE_LOG);
    if is_large {
        let old = path.with_extension("log.1");
        std::fs::rename(path, &old).with_context(|| format!("failed to rename `{}`", path.display()))?;
    }
    Ok(())
}

/// Copies what is new in the log to standard error.
fn show(log: &mut File) -> Result<()> {
    let mut new = String::new();
    // A torn multi-byte character at the end is no reason to fail; the rest follows.
    if log.read_to_string(&mut new).is_ok() {
        eprint!("{new}");
    }
    Ok(())
}

/// Asks the server to stop and waits until it has.
pub async fn down(data_dir: &Path) -> Result<ExitCode> {
    let file = match ServerFile::read(data_dir)? {
        Some(file) if Lock::is_held(data_dir) => file,
        _ => {
            eprintln!("no server is running");
            return Ok(ExitCode::SUCCESS);
        }
    };
    let pid = i32::try_from(file.pid).ok().and_then(rustix::process::Pid::from_raw);
    let pid = pid.with_context(|| format!("`server.json` names no process: {}", file.pid))?;
    rustix::process::kill_process(pid, rustix::process::Signal::TERM)
        .with_context(|| format!("failed to stop process {}", file.pid))?;
    let asked = Instant::now();
    while Lock::is_held(data_dir) {
        if asked.elapsed() > STOP_LIMIT {
            bail!(
                "process {} does not stop; its log is `{}`",
                file.pid,
                data_dir.join("server.log").display()
            );
        }
        tokio::time::sleep(POLL).await;
    }
    eprintln!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Says whether a server runs and how many sandboxes it has; fails when none does.
pub async fn status(data_dir: &Path, as_json: bool) -> Result<ExitCode> {
    let reachable = ServerFile::reachable(data_dir).await?;
    let sandboxes = match &reachable {
        Some((_, client)) => Some(client.list().await?.len()),
        None => None,
    };
    match (&reachable, as_json) {
        (Some((file, _)), true) => {
            println!(
                "{}",
                json!({ "running": true, "url": file.url, "pid": file.pid, "sandboxes": sandboxes })
            );
        }
        (None, true) => println!("{}", json!({ "running": false })),
        (Some((file, _)), false) => {
            println!("running at {} (process {}), {} sandboxes", file.url, file.pid, sandboxes.unwrap_or(0));
        }
        (None, false) => println!("not running"),
    }
    Ok(if reachable.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_large_log_is_kept_beside_the_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.log");
        set_aside(&path).unwrap();
        std::fs::write(&path, "small").unwrap();
        set_aside(&path).unwrap();
        assert!(path.exists());
        File::options().write(true).open(&path).unwrap().set_len(LARGE_LOG + 1).unwrap();
        set_aside(&path).unwrap();
        assert!(!path.exists() && dir.path().join("server.log.1").exists());
    }
}
