//! Taking a repository to a sandbox: the files of a directory, or of a revision of a git repository.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use tokio::process::Command;

use super::error::{CodeError, Result};

/// The time limit of a clone.
const CLONE_LIMIT: Duration = Duration::from_secs(300);

/// The largest archive that is sent to a sandbox, in bytes.
const MAX_SIZE: usize = 256 * 1024 * 1024;

/// The repository that a suite names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Repository {
    /// An address that git can clone, or a directory of this machine.
    place: String,
    /// A commit, tag or branch; without it a directory is taken as it is.
    revision: Option<String>,
    base: PathBuf,
}

impl Repository {
    /// The repository of a suite whose paths are relative to `base`.
    pub(super) fn new(place: &str, revision: Option<&str>, base: &Path) -> Self {
        let place = place.strip_prefix("file://").unwrap_or(place);
        Self { place: place.to_owned(), revision: revision.map(str::to_owned), base: base.to_owned() }
    }

    /// Returns the files as a tar archive.
    ///
    /// # Errors
    /// When it cannot be read or cloned, has no such revision, or is too large.
    pub(super) async fn archive(&self) -> Result<Bytes> {
        let directory = self.base.join(&self.place);
        let archive = match (directory.is_dir(), &self.revision) {
            (true, None) => self.run("tar", &["--exclude=.git", "-C", &text(&directory), "-c", "."]).await?,
            (true, Some(revision)) => self.of_revision(&directory, revision).await?,
            (false, _) => self.cloned().await?,
        };
        if archive.len() > MAX_SIZE {
            return Err(CodeError::TooLarge { place: self.place.clone(), max_mib: MAX_SIZE / 1024 / 1024 });
        }
        Ok(archive)
    }

    async fn of_revision(&self, directory: &Path, revision: &str) -> Result<Bytes> {
        // A revision that begins with a dash is an option to git.
        if revision.starts_with('-') {
            return Err(CodeError::UnknownRevision(revision.to_owned()));
        }
        let safe = format!("safe.directory={}", text(directory));
        self.run("git", &["-c", &safe, "-C", &text(directory), "archive", "--format=tar", revision]).await
    }

    /// A clone is made here and not in the sandbox, which has no network.
    async fn cloned(&self) -> Result<Bytes> {
        if !self.place.contains(':') {
            return Err(CodeError::RepositoryNotFound(self.place.clone()));
        }
        let directory = std::env::temp_dir().join(format!("sandcove-clone-{}", uuid::Uuid::new_v4()));
        let shallow: &[&str] = if self.revision.is_none() { &["--depth=1"] } else { &[] };
        let mut arguments = vec!["clone", "--quiet", "--bare"];
        arguments.extend(shallow);
        let path = text(&directory);
        arguments.extend(["--", &self.place, &path]);
        let archive = match self.run("git", &arguments).await {
            Ok(_) => self.of_revision(&directory, self.revision.as_deref().unwrap_or("HEAD")).await,
            Err(error) => Err(error),
        };
        let _ = tokio::fs::remove_dir_all(&directory).await;
        archive
    }

    async fn run(&self, program: &str, arguments: &[&str]) -> Result<Bytes> {
        let mut command = Command::new(program);
        // Nobody is there to be asked for a password.
        command
            .args(arguments)
            .env("GIT_TERMINAL_PROMPT", "0")
            .stdin(std::process::Stdio::null())
            .kill_on_drop(true);
        let failed = |reason: String| CodeError::RepositoryNotAvailable { place: self.place.clone(), reason };
        let ended = tokio::time::timeout(CLONE_LIMIT, command.output())
            .await
            .map_err(|_| failed(format!("{program} took longer than {} s", CLONE_LIMIT.as_secs())))?;
        let output = ended.map_err(|error| failed(format!("failed to run {program}: {error}")))?;
        match output.status.success() {
            true => Ok(output.stdout.into()),
            false => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
        }
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
