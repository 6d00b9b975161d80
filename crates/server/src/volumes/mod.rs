//! Volumes: files that outlive sandboxes and are seen by several at once (contract: control-plane, section 11).

mod left;
mod token;

use std::collections::HashSet;

use sandcove_image::files::{FileError, FileTree};
use sandcove_isolate::{Backend, Mount};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use uuid::Uuid;

use self::left::Left;
use crate::sandboxes::{Registry, VolumeMount};
use crate::store::Store;
use crate::teams::Team;
use crate::{Error, Result, clock};

/// Seconds that a token is good for.
const TOKEN_SECONDS: i64 = 3600;
/// Volumes of one team.
const MOST: i64 = 1000;
/// Volumes one sandbox sees.
const MOST_MOUNTS: usize = 16;
/// Characters of a name.
const LONGEST_NAME: usize = 128;
/// Where a volume would hide what a sandbox needs to work.
const RESERVED: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its id.
    pub id: Uuid,
    /// What its team calls it.
    pub name: String,
}

/// The volumes of this server.
#[derive(Clone)]
pub struct Volumes {
    store: Store,
    backend: Backend,
    tokens: token::Tokens,
    /// The most one holds, MiB.
    most_mib: u64,
    /// To the task that removes what could not be removed at once.
    left: UnboundedSender<Left>,
}

impl Volumes {
    pub(crate) async fn start(
        store: Store,
        backend: Backend,
        most_mib: u64,
        sandboxes: &Registry,
    ) -> Result<Self> {
        let tokens = token::Tokens::new(store.server_secret("volume tokens").await?);
        let (left, sent) = unbounded_channel();
        sandboxes.spawn_until_stop(left::remove(backend.clone(), sent));
        let volumes = Self { store, backend, tokens, most_mib, left };
        volumes.sweep().await?;
        Ok(volumes)
    }

    /// Removes what a crash left: directories no row names, and unfinished work in the others.
    async fn sweep(&self) -> Result<()> {
        let known: HashSet<String> =
            self.store.all_volumes().await?.iter().map(|volume| volume.id.to_string()).collect();
        let directory = self.backend.volume_dir();
        let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !known.contains(&name) && Uuid::parse_str(&name).is_ok() {
                self.delete_directory(name).await;
                continue;
            }
            match FileTree::open(&entry.path()).and_then(|tree| tree.clean()) {
                Ok(left) => left.into_iter().for_each(|tree| self.remove_later(&name, tree)),
                Err(err) => {
                    tracing::warn!(volume = name, error = %err, "unfinished work in a volume was not removed");
                }
            }
        }
        Ok(())
    }

    /// Removes the directory of a volume that no row names, later if it cannot be done now.
    async fn delete_directory(&self, name: String) {
        if let Err(err) = self.backend.delete_volume(&name).await {
            tracing::warn!(volume = name, error = ?err, "a deleted volume is still there, removing it goes on");
            // Nobody receives only when the server stops, and the next start finds the directory.
            let _ = self.left.send(Left::Volume(name));
        }
    }

    /// Removes the tree `name` among the unfinished work of a volume as soon as that can be done.
    pub(crate) fn remove_later(&self, volume: &str, name: String) {
        let _ = self.left.send(Left::Tree { volume: volume.to_owned(), name });
    }

    /// Makes a volume. Its directory is there before its row, so that what a row names is always there.
    pub async fn create(&self, team: &Team, name: &str) -> Result<Volume> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(allowed) {
            let form = "must be 1 to 128 characters of a-z, A-Z, 0-9, _ and -";
            return Err(Error::Schema(format!("property \"name\" {form}")));
        }
        if self.store.count_volumes(team).await? >= MOST {
            return Err(Error::Refused(format!("a team may have at most {MOST} volumes")));
        }
        let volume = Volume { id: Uuid::new_v4(), name: name.to_owned() };
        let directory = volume.id.to_string();
        let failed = |source: sandcove_isolate::Error| match source {
            source if source.is_full() => Error::NoCapacity(source),
            source => Error::Volume { action: "create", source },
        };
        let size = team.caps.disk_mib.min(self.most_mib);
        self.backend.create_volume(&directory, size).await.map_err(failed)?;
        let inserted = self.store.insert_volume(team, &volume).await;
        if !matches!(inserted, Ok(true)) {
            self.delete_directory(directory).await;
        }
        if inserted? {
            Ok(volume)
        } else {
            Err(Error::Refused(format!("a volume with the name '{name}' already exists")))
        }
    }

    /// The volumes of a team, oldest first.
    pub async fn list(&self, team: &Team) -> Result<Vec<Volume>> {
        self.store.volumes(team).await
    }

    /// The team's volume `id`; somebody else's is not found.
    pub async fn get(&self, team: &Team, id: Uuid) -> Result<Volume> {
        let volumes = self.store.volumes(team).await?;
        volumes.into_iter().find(|volume| volume.id == id).ok_or(Error::VolumeNotFound(id))
    }

    /// Deletes the team's volume `id` with all that is in it.
    pub async fn delete(&self, team: &Team, id: Uuid) -> Result<()> {
        if !self.store.delete_volume(team, id).await? {
            return Err(Error::VolumeNotFound(id));
        }
        // Gone for every caller, whether its directory is or not.
        self.delete_directory(id.to_string()).await;
        Ok(())
    }

    /// What opens the files of a volume for a while.
    pub fn token(&self, volume: &Volume) -> String {
        self.tokens.issue(volume.id, clock::now().as_second() + TOKEN_SECONDS)
    }

    /// Whether `token` opens the files of volume `id` now.
    pub(crate) fn opens(&self, token: &str, id: Uuid) -> bool {
        self.tokens.opens(token, id, clock::now().as_second())
    }

    /// The files of a volume.
    pub(crate) async fn open(&self, id: Uuid) -> Result<FileTree> {
        if !self.store.has_volume(id).await? {
            return Err(Error::VolumeNotFound(id));
        }
        let directory = self.backend.volume_dir().join(id.to_string());
        FileTree::open(&directory)
            .map_err(|source| Error::VolumeFiles(FileError::Io { action: "open the volume", source }))
    }

    /// What a create request means by its mounts; everything wrong with them is told at once.
    pub(crate) async fn mounts(&self, team: &Team, asked: &[(String, String)]) -> Result<Vec<VolumeMount>> {
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let volumes = self.store.volumes(team).await?;
        let mut wrong = Vec::new();
        let (mut mounts, mut paths) = (Vec::new(), HashSet::new());
        if asked.len() > MOST_MOUNTS {
            wrong.push(format!("at most {MOST_MOUNTS} volumes can be mounted"));
        }
        for (name, path) in asked {
            let volume = volumes.iter().find(|volume| volume.name == *name);
            if volume.is_none() {
                wrong.push(format!("volume '{name}' not found"));
            }
            if let Err(why) = check_path(path) {
                wrong.push(format!("path '{path}' {why}"));
            } else if !paths.insert(path) {
                wrong.push(format!("path '{path}' is used more than once"));
            }
            if let Some(volume) = volume {
                let seen = Mount { volume: volume.id.to_string(), path: path.clone() };
                mounts.push(VolumeMount { name: name.clone(), seen });
            }
        }
        match wrong.as_slice() {
            [] => Ok(mounts),
            wrong => Err(Error::Refused(format!("volumes cannot be mounted: {}", wrong.join("; ")))),
        }
    }
}

fn check_path(path: &str) -> std::result::Result<(), &'static str> {
    let Some(rest) = path.strip_prefix('/') else { return Err("is not absolute") };
    if rest.is_empty() || path.len() > 1024 || path.contains('\0') {
        return Err("cannot be a mount point");
    }
    if rest.split('/').any(|name| matches!(name, "" | "." | "..")) {
        return Err("is not clean");
    }
    let first = &path[..=rest.find('/').unwrap_or(rest.len())];
    if RESERVED.contains(&first.trim_end_matches('/')) {
        return Err("is reserved");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_mounts_are_clean_and_not_reserved() {
        for good in ["/data", "/home/user/my data", "/runner", "/a/proc"] {
            assert_eq!(check_path(good), Ok(()), "{good}");
        }
        for bad in ["", "/", "data", "./data", "/a//b", "/a/", "/a/./b", "/a/../b", "/proc", "/dev/x", "/a\0"]
        {
            assert!(check_path(bad).is_err(), "{bad}");
        }
    }
}
