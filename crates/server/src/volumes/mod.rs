//! Volumes: files that outlive sandboxes and that several sandboxes may mount at once (contract: control-plane, section 11).

#[cfg(any(test, fuzzing, debug_assertions))]
pub(crate) mod fuzzing;
mod leftovers;
mod token;

use std::collections::HashSet;

use sandcove_host::{Host, VolumeFiles};
use sandcove_isolate::Mount;
use uuid::Uuid;

use self::leftovers::{Leftover, Leftovers};
use crate::domain::limits::{MOUNT_PATH_BYTES, MOUNTS, VOLUME_NAME};
use crate::domain::sandbox::VolumeMount;
use crate::domain::team::Team;
use crate::domain::volume::Volume;
use crate::store::{Inserted, Store};
use crate::{Error, Result, clock};

/// Lifetime of a token, seconds.
const TOKEN_SECONDS: i64 = 3600;
/// Directories that a sandbox needs; a volume mounted there would hide them.
const RESERVED: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];

/// The volumes of this server.
#[derive(Clone)]
pub struct Volumes {
    store: Store,
    host: Host,
    tokens: token::Tokens,
    /// Maximum size of a volume, MiB.
    max_mib: u64,
    leftovers: Leftovers,
}

impl Volumes {
    /// The volumes, and the task that removes leftovers, to be run until the server stops.
    pub(crate) async fn new(
        store: Store,
        host: Host,
        max_mib: u64,
    ) -> Result<(Self, impl Future<Output = ()> + Send + 'static)> {
        let tokens = token::Tokens::new(store.server_secret("volume tokens").await?);
        let (leftovers, cleanup) = Leftovers::new(host.clone());
        Ok((Self { store, host, tokens, max_mib, leftovers }, cleanup))
    }

    /// Removes the leftovers of a crash: directories that no row names, and unfinished work in the others.
    pub(crate) async fn sweep(&self) -> Result<()> {
        let known: HashSet<String> =
            self.store.all_volumes().await?.iter().map(|volume| volume.id.to_string()).collect();
        let failed = |source| Error::Volume { action: "list", source };
        for name in self.host.volume_names().await.map_err(failed)? {
            if !known.contains(&name) && Uuid::parse_str(&name).is_ok() {
                self.delete_directory(name).await;
                continue;
            }
            match self.host.volume(&name).clean().await {
                Ok(trees) => trees.into_iter().for_each(|tree| self.remove_later(&name, tree)),
                Err(err) => {
                    tracing::warn!(volume = name, error = %err, "unfinished work in a volume was not removed");
                }
            }
        }
        Ok(())
    }

    /// Removes the directory of a volume that no row names; later if that fails now.
    async fn delete_directory(&self, name: String) {
        if let Err(err) = self.host.delete_volume(&name).await {
            tracing::warn!(volume = name, error = ?err, "failed to remove a deleted volume; the server tries again");
            self.leftovers.add(Leftover::Volume(name));
        }
    }

    /// Removes the tree `name` among the unfinished work of a volume as soon as possible.
    pub(crate) fn remove_later(&self, volume: &str, name: String) {
        self.leftovers.add(Leftover::Tree { volume: volume.to_owned(), name });
    }

    /// Creates a volume. Its directory is created before its row, so that every row has a directory.
    pub async fn create(&self, team: &Team, name: &str) -> Result<Volume> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        if name.is_empty() || name.len() > VOLUME_NAME || !name.bytes().all(allowed) {
            let form = "must be 1 to 128 characters of a-z, A-Z, 0-9, _ and -";
            return Err(Error::InvalidRequest(format!("property \"name\" {form}")));
        }
        let too_many = || Error::TooManyOfTeam { max: team.quota.volumes as usize, what: "volumes" };
        // Two requests at once may both pass; the row of the second is refused.
        if self.store.count_volumes(team).await? >= i64::from(team.quota.volumes) {
            return Err(too_many());
        }
        let volume = Volume { id: Uuid::new_v4(), name: name.to_owned() };
        let directory = volume.id.to_string();
        let failed = |source: sandcove_isolate::Error| match source {
            source if source.is_full() => Error::NoCapacity(source),
            source => Error::Volume { action: "create", source },
        };
        let size = team.caps.disk_mib.min(self.max_mib);
        self.host.create_volume(&directory, size).await.map_err(failed)?;
        let inserted = self.store.insert_volume(team, &volume).await;
        if !matches!(inserted, Ok(Inserted::New)) {
            self.delete_directory(directory).await;
        }
        match inserted? {
            Inserted::New => {
                // After a crash of the host, a directory that no row names is deleted with files that were synced.
                self.store.flush().await?;
                Ok(volume)
            }
            Inserted::Exists => {
                Err(Error::Refused(format!("a volume with the name '{name}' already exists")))
            }
            Inserted::TooMany => Err(too_many()),
        }
    }

    /// The volumes of a team, oldest first.
    pub async fn list(&self, team: &Team) -> Result<Vec<Volume>> {
        self.store.volumes(team).await
    }

    /// The team's volume `id`; another team's is not found.
    pub async fn get(&self, team: &Team, id: Uuid) -> Result<Volume> {
        let volumes = self.store.volumes(team).await?;
        volumes.into_iter().find(|volume| volume.id == id).ok_or(Error::VolumeNotFound(id))
    }

    /// Deletes the team's volume `id` with its files.
    pub async fn delete(&self, team: &Team, id: Uuid) -> Result<()> {
        if !self.store.delete_volume(team, id).await? {
            return Err(Error::VolumeNotFound(id));
        }
        // The volume is gone for every caller, even if its directory cannot be removed yet.
        self.delete_directory(id.to_string()).await;
        Ok(())
    }

    /// A token that opens the files of a volume for a limited time.
    pub fn token(&self, volume: &Volume) -> String {
        self.tokens.issue(volume.id, clock::now().as_second() + TOKEN_SECONDS)
    }

    /// Whether `token` opens the files of volume `id` now.
    pub(crate) fn opens(&self, token: &str, id: Uuid) -> bool {
        self.tokens.opens(token, id, clock::now().as_second())
    }

    /// The files of a volume, and its team.
    pub(crate) async fn open(&self, id: Uuid) -> Result<(VolumeFiles, Uuid)> {
        let team = self.store.team_of_volume(id).await?.ok_or(Error::VolumeNotFound(id))?;
        Ok((self.host.volume(&id.to_string()), team))
    }

    /// The mounts of a create request, as names of volumes and paths. The error names everything that is wrong with them.
    pub(crate) async fn mounts(
        &self,
        team: &Team,
        requested: &[(String, String)],
    ) -> Result<Vec<VolumeMount>> {
        if requested.is_empty() {
            return Ok(Vec::new());
        }
        let volumes = self.store.volumes(team).await?;
        let mut wrong = Vec::new();
        let (mut mounts, mut paths) = (Vec::new(), HashSet::new());
        if requested.len() > MOUNTS {
            wrong.push(format!("at most {MOUNTS} volumes can be mounted"));
        }
        for (name, path) in requested {
            let volume = volumes.iter().find(|volume| volume.name == *name);
            match (volume, check_path(path)) {
                (None, _) => wrong.push(format!("volume '{name}' not found")),
                (_, Err(why)) => wrong.push(why),
                (_, Ok(())) if !paths.insert(path) => wrong.push(format!("path '{path}' is already used")),
                (Some(volume), Ok(())) => {
                    let mount = Mount { volume: volume.id.to_string(), path: path.clone() };
                    mounts.push(VolumeMount { name: name.clone(), mount });
                }
            }
        }
        match wrong.as_slice() {
            [] => Ok(mounts),
            wrong => Err(Error::Refused(format!("invalid mounts:\n{}", wrong.join("\n")))),
        }
    }
}

/// Checks where a volume is to be mounted; the error is a line of the contract (templates, section 17), where that has one.
fn check_path(path: &str) -> std::result::Result<(), String> {
    if path.is_empty() {
        return Err("path cannot be empty".to_owned());
    }
    let Some(rest) = path.strip_prefix('/') else { return Err("path must be absolute".to_owned()) };
    let mut names = rest.split('/');
    if names.clone().any(|name| matches!(name, "." | "..")) {
        return Err("path must not contain any '.' or '..' components".to_owned());
    }
    if path.len() > MOUNT_PATH_BYTES {
        return Err(format!("path must have at most {MOUNT_PATH_BYTES} bytes"));
    }
    if rest.is_empty() || path.contains('\0') || names.any(str::is_empty) {
        return Err(format!("path '{path}' cannot be a mount point"));
    }
    let first = &path[..=rest.find('/').unwrap_or(rest.len())];
    if RESERVED.contains(&first.trim_end_matches('/')) {
        return Err(format!("path '{path}' is reserved"));
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

    #[test]
    fn the_paths_of_the_contract_are_refused_in_its_words() {
        for (path, why) in [
            ("", "path cannot be empty"),
            ("data", "path must be absolute"),
            ("/a/../b", "path must not contain any '.' or '..' components"),
        ] {
            assert_eq!(check_path(path), Err(why.to_owned()));
        }
    }
}
