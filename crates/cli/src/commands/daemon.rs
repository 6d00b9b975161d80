//! `sandcove up`, `down` and `status`: a server in the background.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use serde_json::json;

use super::reach::{Place, Reach};
use super::{count, env, purge};
use crate::data_dir::{Lock, ServerFile, Unused};
use crate::languages::LanguageState;
use crate::output::{self, note, out};
use crate::settings::Settings;

/// How often a condition is checked; another process does not notify us.
const POLL: Duration = Duration::from_millis(50);

/// Size above which a log is rotated, in bytes.
const MAX_LOG: u64 = 16 << 20;

/// How long a server may take to answer before it counts as not running.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a server may take to stop before `down` gives up.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a server may take to stop when it kills all sandboxes first.
const KILL_TIMEOUT: Duration = Duration::from_secs(300);

/// Starts `sandcove serve` with the options `up` was given, detached, and waits until it answers.
pub async fn up(settings: &Settings, options: &[std::ffi::OsString]) -> Result<ExitCode> {
    if let Some((file, _)) = ServerFile::reachable(&settings.data_dir).await?
        && Lock::is_held(&settings.data_dir)
    {
        return running_already(&file, &settings.data_dir, options);
    }
    let unused = Unused::note(&settings.data_dir);
    drop(Lock::take(&settings.data_dir)?);
    let path = settings.data_dir.join("server.log");
    rotate(&path)?;
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
        .context("failed to run `setsid`; is util-linux installed?")?;
    let mut shown = OpenOptions::new().read(true).open(&path)?;
    shown.seek(SeekFrom::End(0))?;
    loop {
        show(&mut shown)?;
        if let Some(status) = child.try_wait()? {
            show(&mut shown)?;
            if unused.remove() {
                // The log, which is above, was all that was in it.
                bail!(
                    "the server did not start ({status})\nhint: its log is above; `sandcove doctor` checks what it needs of this host"
                );
            }
            bail!("the server did not start ({status}); see its log, `{}`", path.display());
        }
        let written = ServerFile::read(&settings.data_dir)?.filter(|file| file.pid == child.id());
        if let Some(file) = written
            && file.client()?.ping().await.is_ok()
        {
            show(&mut shown)?;
            env::announce(&file, &settings.data_dir)?;
            env::suggest(&file);
            return Ok(ExitCode::SUCCESS);
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Reports the running server. Options that it was not started with are an error: they cannot be changed while it runs.
fn running_already(file: &ServerFile, data_dir: &Path, options: &[std::ffi::OsString]) -> Result<ExitCode> {
    let arguments = std::fs::read(format!("/proc/{}/cmdline", file.pid)).unwrap_or_default();
    let running: Vec<&[u8]> = arguments.split(|byte| *byte == 0).collect();
    let ignored = not_among(options, &running);
    if !ignored.is_empty() {
        bail!(
            "a server is already running (process {}), without {}\nhint: stop it with `sandcove down`, which leaves its sandboxes \
             running; then start it again with these options",
            file.pid,
            ignored.join(" ")
        );
    }
    note!("a server is already running (process {})", file.pid);
    env::announce(file, data_dir)?;
    env::suggest(file);
    Ok(ExitCode::SUCCESS)
}

/// The options, each with its value, that a command line lacks. `--data-dir` and `--config` have led to this server already
/// and do not count.
fn not_among(options: &[std::ffi::OsString], running: &[&[u8]]) -> Vec<String> {
    let mut missing = Vec::new();
    let mut rest = options.iter().peekable();
    while let Some(option) = rest.next() {
        let mut words = vec![option.as_bytes()];
        if let Some(value) = rest.next_if(|next| !next.as_bytes().starts_with(b"-")) {
            words.push(value.as_bytes());
        }
        let is_place = words[0].starts_with(b"--data-dir") || words[0].starts_with(b"--config");
        if !is_place && !running.windows(words.len()).any(|window| window == words) {
            let text = words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ");
            missing.push(format!("`{text}`"));
        }
    }
    missing
}

/// Starts a new log when the one at `path` has grown large, and keeps the old one.
fn rotate(path: &Path) -> Result<()> {
    let is_large = std::fs::metadata(path).is_ok_and(|log| log.len() > MAX_LOG);
    if is_large {
        let old = path.with_extension("log.1");
        std::fs::rename(path, &old).with_context(|| format!("failed to rename `{}`", path.display()))?;
    }
    Ok(())
}

/// Copies new lines of the log to standard error.
fn show(log: &mut File) -> Result<()> {
    let mut new = String::new();
    // A character that is half written is not an error; the rest follows.
    if log.read_to_string(&mut new).is_ok() {
        output::write_error(new.as_bytes());
    }
    Ok(())
}

/// Asks the server to stop, and to kill all sandboxes first if `all` is set, and waits until it has stopped.
pub async fn down(data_dir: &Path, all: bool) -> Result<ExitCode> {
    let file = match ServerFile::read(data_dir)? {
        Some(file) if Lock::is_held(data_dir) => file,
        _ => {
            note!("no server is running");
            if all && purge::holds_sandboxes(data_dir) {
                bail!(
                    "sandboxes of an earlier server are still there\nhint: kill them with `sandcove up` and `sandcove down --all`, or remove \
                     everything with `sandcove purge`"
                );
            }
            return Ok(ExitCode::SUCCESS);
        }
    };
    let (signal, timeout) = if all { (Signal::USR1, KILL_TIMEOUT) } else { (Signal::TERM, STOP_TIMEOUT) };
    let pid = i32::try_from(file.pid).ok().and_then(rustix::process::Pid::from_raw);
    let pid = pid.with_context(|| format!("invalid process id {} in `server.json`\nhint: stop the server by its process id, and start it again", file.pid))?;
    rustix::process::kill_process(pid, signal)
        .with_context(|| format!("failed to stop process {}", file.pid))?;
    let asked = Instant::now();
    while Lock::is_held(data_dir) {
        if asked.elapsed() > timeout {
            bail!(
                "process {} does not stop; see its log, `{}`",
                file.pid,
                data_dir.join("server.log").display()
            );
        }
        tokio::time::sleep(POLL).await;
    }
    note!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Exit status for a service that is not running, as systemd and init scripts define it.
const NOT_RUNNING: u8 = 3;

/// Shows whether a server is running, and how many sandboxes it has.
pub async fn status(reach: &Reach, place: &Place, as_json: bool) -> Result<ExitCode> {
    let target = reach.target(place)?;
    let sandboxes = match &target {
        Some(target) => match tokio::time::timeout(ANSWER_TIMEOUT, target.client()?.list()).await {
            Ok(Ok(sandboxes)) => Some(sandboxes.len()),
            Ok(Err(sandcove_client::Error::Unreachable { .. })) | Err(_) => None,
            Ok(Err(error)) => return Err(error.into()),
        },
        None => None,
    };
    let (Some(target), Some(sandboxes)) = (&target, sandboxes) else {
        match (target, as_json) {
            (_, true) => out!("{}", json!({ "running": false })),
            (Some(target), false) if target.pid.is_none() => out!("no answer from {}", target.url),
            (_, false) => out!("not running"),
        }
        return Ok(NOT_RUNNING.into());
    };
    // The state of a server on another machine is unknown.
    let languages = match target.pid {
        Some(_) => LanguageState::read(&place.data_dir),
        None => None,
    };
    if as_json {
        out!(
            "{}",
            json!({
                "running": true, "url": target.url, "pid": target.pid, "sandboxes": sandboxes, "languages": languages,
            })
        );
    } else {
        let process = target.pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
        out!("running at {}{process}, {}", target.url, count(sandboxes, "sandbox"));
        if let Some(languages) = languages {
            out!("{}", languages.describe(true));
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_a_running_server_does_not_have_are_named() {
        let given = |text: &str| text.split(' ').map(Into::into).collect::<Vec<std::ffi::OsString>>();
        let running: Vec<&[u8]> = vec![b"sandcove", b"serve", b"--listen", b"h:1", b"--stop-sandboxes"];
        assert!(not_among(&given("--stop-sandboxes --listen h:1 --data-dir /d"), &running).is_empty());
        assert_eq!(
            not_among(&given("--listen h:2 --dns=1.1.1.1"), &running),
            ["`--listen h:2`", "`--dns=1.1.1.1`"]
        );
        assert_eq!(not_among(&given("--spares 0"), &[]), ["`--spares 0`"]);
    }

    #[test]
    fn one_large_log_is_kept_beside_the_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.log");
        rotate(&path).unwrap();
        std::fs::write(&path, "small").unwrap();
        rotate(&path).unwrap();
        assert!(path.exists());
        File::options().write(true).open(&path).unwrap().set_len(MAX_LOG + 1).unwrap();
        rotate(&path).unwrap();
        assert!(!path.exists() && dir.path().join("server.log.1").exists());
    }
}
