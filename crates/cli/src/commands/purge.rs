//! `sandcove purge`: kills and deletes everything that a data directory has on this host, with a database or without.

use std::io::{BufRead, ErrorKind, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use sandcove_image::LayerStore;
use sandcove_isolate::Extent;

use super::daemon;
use crate::data_dir::Lock;
use crate::output::note;

/// Files and directories of a server. Nothing else in the data directory is deleted.
const OWN: [&str; 29] = [
    "server",
    // Of versions that had no directory of the server.
    "builds",
    "file-sets",
    "languages.json",
    LayerStore::AHEAD,
    ".languages.json",
    "pool",
    "pool.img",
    "pool.img.new",
    "pool.id",
    "parked.key",
    "parked.new",
    "secrets.key",
    "secrets.new",
    "egress-authority.json",
    "egress-authority.new",
    "identity.key",
    "identity.new",
    "criu",
    "run",
    "libexec",
    "sandcove.db",
    "sandcove.db-wal",
    "sandcove.db-shm",
    "server.json",
    "sandcove.toml",
    "tls",
    "server.log",
    "server.log.1",
];
/// Marks a data directory, and is deleted last.
const LOCK: &str = "server.lock";

/// Kills all sandboxes and deletes `data_dir`, after confirmation. With `keep_data`, ends what is running and deletes no files.
pub async fn purge(data_dir: &Path, yes: bool, keep_data: bool) -> Result<ExitCode> {
    if !rustix::process::geteuid().is_root() {
        bail!(
            "purge needs root: it kills sandboxes and unmounts their files\nhint: run the command with sudo"
        );
    }
    let Ok(data_dir) = data_dir.canonicalize() else {
        note!("`{}` does not exist; nothing to remove", data_dir.display());
        return Ok(ExitCode::SUCCESS);
    };
    if !data_dir.join(LOCK).exists() {
        bail!(
            "`{}` is not the data directory of a server: it has no `{LOCK}`\nhint: --data-dir names it",
            data_dir.display()
        );
    }
    if !yes && !confirm(&data_dir, keep_data)? {
        note!("nothing was changed");
        return Ok(ExitCode::FAILURE);
    }
    if Lock::is_held(&data_dir) {
        daemon::down(&data_dir, false).await?;
    }
    let _lock = Lock::take(&data_dir)?;
    let extent = if keep_data { Extent::Running } else { Extent::Everything };
    let report = sandcove_isolate::purge(&data_dir, extent)
        .await
        .context("failed to remove sandboxes from this host")?;
    if !report.failed.is_empty() {
        bail!(
            "failed to remove {}; the data directory `{}` was kept; run the command again",
            report.failed.join(", "),
            data_dir.display()
        );
    }
    if keep_data {
        note!("ended all sandboxes that were running, and removed everything but `{}`", data_dir.display());
        return Ok(ExitCode::SUCCESS);
    }
    remove_own(&data_dir)?;
    match std::fs::remove_dir(&data_dir) {
        Ok(()) => note!("removed `{}` and everything that belonged to it on this host", data_dir.display()),
        Err(error) => {
            let why = match error.kind() {
                ErrorKind::DirectoryNotEmpty => "it has other files".into(),
                ErrorKind::ResourceBusy => "something is mounted there".into(),
                _ => error.to_string(),
            };
            note!(
                "removed everything of Sandcove in `{}` and on this host; the directory itself was kept: {why}",
                data_dir.display()
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Deletes the files of a server in `data_dir`, whose pool has been erased, and the lock last.
pub fn remove_own(data_dir: &Path) -> Result<()> {
    OWN.into_iter().chain([LOCK]).try_for_each(|name| remove(&data_dir.join(name)))
}

/// Whether `data_dir` has sandboxes of an earlier server, running or paused.
pub fn holds_sandboxes(data_dir: &Path) -> bool {
    count(&data_dir.join("run")) + count(&data_dir.join("pool/sandboxes")) > 0
}

fn confirm(data_dir: &Path, keep_data: bool) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        let deleted = if keep_data { "kills the sandboxes of" } else { "permanently deletes" };
        bail!(
            "purge {deleted} `{}`, and cannot ask for confirmation without a terminal; use --yes",
            data_dir.display()
        );
    }
    if keep_data {
        note!(
            "this kills every sandbox of `{}` that is running; paused ones and all files stay",
            data_dir.display()
        );
    } else {
        note!(
            "this kills every sandbox of `{}` and deletes the directory: sandboxes, snapshots, volumes, templates, API keys, database",
            data_dir.display()
        );
    }
    crate::output::write_error(b"type `yes` to continue: ");
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(answer.trim() == "yes")
}

/// Number of entries with the name of a sandbox.
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
        // The pool's directory may be a mount point of the host: it is empty, and is kept.
        Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => Ok(()),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("failed to delete `{}`", path.display()))
        }
        _ => Ok(()),
    }
}
