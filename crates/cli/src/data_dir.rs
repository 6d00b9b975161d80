//! The parts of a data directory that belong to the command: who serves it, and how to reach that server.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sandcove_client::Client;
use sandcove_wire::secret::Secret;
use serde::{Deserialize, Serialize};

/// `server.json`: how programs on this machine reach the server of a data directory. It stays when the server stops,
/// because the key is stored nowhere else in full.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerFile {
    /// `http://host:port`
    pub url: String,
    /// A key of the default team.
    pub api_key: Secret,
    /// Process that wrote this.
    pub pid: u32,
}

impl ServerFile {
    fn path(data_dir: &Path) -> PathBuf {
        data_dir.join("server.json")
    }

    /// Reads it; `None` when no server has run here.
    pub fn read(data_dir: &Path) -> Result<Option<Self>> {
        let path = Self::path(data_dir);
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .with_context(|| format!("`{}` is damaged: remove it and start the server", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("failed to read `{}`", path.display())),
        }
    }

    /// Replaces it, readable by its owner only.
    pub fn write(&self, data_dir: &Path) -> Result<()> {
        let path = Self::path(data_dir);
        let unfinished = data_dir.join(format!(".server.json.{}", self.pid));
        let _ = std::fs::remove_file(&unfinished);
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&unfinished)
            .and_then(|mut file| file.write_all(&serde_json::to_vec_pretty(self)?))
            .and_then(|()| std::fs::rename(&unfinished, &path))
            .with_context(|| format!("failed to write `{}`", path.display()))
    }

    /// A client of the server.
    pub fn client(&self) -> Result<Client> {
        Ok(Client::new(&self.url, &self.api_key)?)
    }

    /// The client, if the server answers.
    pub async fn reachable(data_dir: &Path) -> Result<Option<(Self, Client)>> {
        let Some(file) = Self::read(data_dir)? else { return Ok(None) };
        let client = file.client()?;
        match tokio::time::timeout(std::time::Duration::from_secs(5), client.ping()).await {
            Ok(Ok(())) => Ok(Some((file, client))),
            _ => Ok(None),
        }
    }

    /// What a user of the official SDKs sets.
    pub fn exports(&self) -> String {
        format!(
            "export E2B_API_URL={url}\nexport E2B_SANDBOX_URL={url}\nexport E2B_VOLUME_API_URL={url}\n\
             export E2B_API_KEY={key}\n",
            url = self.url,
            key = self.api_key.expose()
        )
    }
}

/// The right to serve a data directory, for as long as it is held.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Makes the directory if needed and takes the lock.
    pub fn take(data_dir: &Path) -> Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(data_dir)
            .with_context(|| format!("failed to create `{}`", data_dir.display()))?;
        let path = data_dir.join("server.lock");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .with_context(|| format!("failed to open `{}`", path.display()))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => {
                let owner = match ServerFile::read(data_dir) {
                    Ok(Some(file)) => format!(" (process {}, {})", file.pid, file.url),
                    _ => String::new(),
                };
                bail!("another server is using `{}`{owner}", data_dir.display())
            }
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("failed to lock `{}`", path.display()))
            }
        }
    }

    /// Whether somebody holds the lock.
    pub fn is_held(data_dir: &Path) -> bool {
        match File::open(data_dir.join("server.lock")) {
            Ok(file) => matches!(file.try_lock(), Err(TryLockError::WouldBlock)),
            Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn two_servers_on_one_directory_are_refused_with_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        let lock = Lock::take(dir.path()).unwrap();
        assert!(Lock::is_held(dir.path()));
        assert!(Lock::take(dir.path()).unwrap_err().to_string().starts_with("another server is using"));
        drop(lock);
        assert!(!Lock::is_held(dir.path()));
        Lock::take(dir.path()).unwrap();
    }

    #[test]
    fn the_key_is_for_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let file = ServerFile { url: "http://127.0.0.1:1".into(), api_key: Secret::new("e2b_00"), pid: 1 };
        file.write(dir.path()).unwrap();
        file.write(dir.path()).unwrap();
        let mode = std::fs::metadata(dir.path().join("server.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let back = ServerFile::read(dir.path()).unwrap().unwrap();
        assert_eq!(back.exports(), file.exports());
    }

    #[test]
    fn no_server_is_not_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(ServerFile::read(dir.path()).unwrap().is_none());
    }
}
