//! The database in a backup. The server process writes it and may have been taken over, so that a process with no more rights than that one
//! opens it.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use sandcove_server::store::Store;
use sandcove_server::store::backup::{self, Named};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::output::out;
use crate::server_dir;

/// Maximum size of the answer of that process, bytes.
const MAX_ANSWER: u64 = 512 << 20;

/// Task of the process that opens the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DatabaseTask {
    /// Copy the database, and say what the copy names.
    Copy,
    /// Say which state each sandbox is in.
    States,
}

/// The state of sandboxes, as texts that change whenever a row does.
pub(super) type States = BTreeMap<String, String>;

/// A copy of the database.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Copied {
    pub(super) named: Named,
    pub(super) states: States,
}

/// Does a task for [`ask`].
pub async fn run_task(directory: &Path, task: DatabaseTask) -> Result<ExitCode> {
    let database = server_dir::database_in(directory);
    match task {
        DatabaseTask::Copy => {
            out!("{}", serde_json::to_string(&copy(&database, &copy_in(directory)).await?)?);
        }
        DatabaseTask::States => out!("{}", serde_json::to_string(&backup::sandbox_states(&database).await?)?),
    }
    Ok(ExitCode::SUCCESS)
}

async fn copy(database: &Path, copy: &Path) -> Result<Copied> {
    remove(copy)?;
    backup::copy(database, copy).await.context("failed to copy the database")?;
    // Before the copy becomes one of this version.
    let states = backup::sandbox_states(copy).await?;
    let store = Store::open(copy).await?;
    let named = store.named().await?;
    store.become_backup().await?;
    store.close().await;
    Ok(Copied { named, states })
}

/// Path of the copy, in the server's directory: the process can write nowhere else.
pub(super) fn copy_in(directory: &Path) -> PathBuf {
    directory.join("backup.db")
}

/// Deletes the copy and what SQLite and the store keep beside it.
pub(super) fn remove(copy: &Path) -> Result<()> {
    for suffix in ["", "-wal", "-shm", "-journal", "-keys"] {
        let mut path = copy.as_os_str().to_owned();
        path.push(suffix);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error)
                    .with_context(|| format!("failed to delete `{}`", Path::new(&path).display()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Has a process with the rights of `account` do a task, and returns its answer.
pub(super) fn ask<T: DeserializeOwned>(account: u32, directory: &Path, task: DatabaseTask) -> Result<T> {
    let program = std::env::current_exe().context("failed to find this program's own file")?;
    let name = task.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let passed = |name: &str| std::env::var_os(name).map(|value| (name.to_owned(), value));
    let mut child = Command::new(program)
        .arg("__database")
        .arg(account.to_string())
        .arg(directory)
        .arg(name)
        .env_clear()
        .envs(["PATH", "SANDCOVE_LOG", "NO_COLOR"].into_iter().filter_map(passed))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("failed to start a process that opens the database")?;
    let mut answer = Vec::new();
    let read = child.stdout.take().map_or(Ok(0), |out| out.take(MAX_ANSWER).read_to_end(&mut answer));
    if !child.wait().context("failed to wait for the process that opens the database")?.success() {
        bail!("the database of the server could not be read");
    }
    read.context("failed to read what the database names")?;
    serde_json::from_slice(&answer).context("failed to read what the database names")
}
