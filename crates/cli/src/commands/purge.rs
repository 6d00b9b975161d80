//! `sandcove purge`: ends everything a data directory has on this host and deletes it, with a database or without.

use std::io::{BufRead, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use super::daemon;
use crate::data_dir::Lock;
use crate::output::note;

/// What servers keep in a data directory. Nothing else in it is deleted.
const OWN: [&str; 14] = [
    "languages.json",
    ".languages.json",
    "pool",
    "pool.img",
    "pool.img.new",
    "pool.id",
    "run",
    "libexec",
    "sandcove.db",
    "sandcove.db-wal",
    "sandcove.db-shm",
    "server.json",
    "server.log",
    "server.log.1",
];
/// Deleted last: with it, the directory can be told to be one of a server.
const LOCK: &str = "server.lock";

/// Ends everything and deletes `data_dir`, after asking.
pub async fn purge(data_dir: &Path, yes: bool) -> Result<ExitCode> {
    if !rustix::process::geteuid().is_root() {
        bail!("purge needs root: it ends sandboxes and unmounts their files");
    }
    let Ok(data_dir) = data_dir.canonicalize() else {
        note!("there is nothing at `{}`", data_dir.display());
        return Ok(ExitCode::SUCCESS);
    };
    if !data_dir.join(LOCK).exists() {
        bail!("`{}` is not the data directory of a server: it holds no `{LOCK}`", data_dir.display());
    }
    if !yes && !confirm(&data_dir)? {
        note!("nothing was changed");
        return Ok(ExitCode::FAILURE);
    }
    if Lock::is_held(&data_dir) {
        daemon::down(&data_dir, false).await?;
    }
    let _lock = Lock::take(&data_dir)?;
    let report =
        sandcove_isolate::purge(&data_dir).await.context("failed to remove what runs on this host")?;
    if !report.failed.is_empty() {
        bail!(
            "failed to remove {}: the data directory `{}` was kept; run the command again",
            report.failed.join(", "),
            data_dir.display()
        );
    }
    for name in OWN.into_iter().chain([LOCK]) {
        remove(&data_dir.join(name))?;
    }
    match std::fs::remove_dir(&data_dir) {
        Ok(()) => note!("removed `{}` and everything it had on this host", data_dir.display()),
        // Somebody else's files, or a mount point.
        Err(error) => note!(
            "removed everything that servers kept in `{}` or had on this host; the directory stays ({error})",
            data_dir.display()
        ),
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a server of `data_dir` has left sandboxes, running or paused.
pub fn holds_sandboxes(data_dir: &Path) -> bool {
    count(&data_dir.join("run")) + count(&data_dir.join("pool/sandboxes")) > 0
}

fn confirm(data_dir: &Path) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("purge deletes `{}` for good and cannot ask here: say `--yes`", data_dir.display());
    }
    note!(
        "this ends every sandbox of `{}` and deletes the directory: sandboxes, snapshots, volumes, templates, API keys, database",
        data_dir.display()
    );
    crate::output::write_error(b"type `yes` to go on: ");
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(answer.trim() == "yes")
}

/// Entries that are named as sandboxes are.
fn count(directory: &Path) -> usize {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"i")).count()
}

fn remove(path: &PathBuf) -> Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        // A file system of the host's may be mounted on the pool's directory: it is empty, and stays.
        Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => Ok(()),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("failed to delete `{}`", path.display()))
        }
        _ => Ok(()),
    }
}
