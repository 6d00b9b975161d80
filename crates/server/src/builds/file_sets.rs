//! Files that clients upload for `COPY` steps (contract: templates, section 6.3): one archive for each hash, shared by all
//! templates of a team.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::io::AsyncWriteExt;
use uuid::Uuid;

use crate::{Error, Result};

/// Maximum size of one archive, bytes.
const MAX_BYTES: u64 = 16 << 30;
/// Size of a block of the disk, bytes: an archive takes at least one.
const BLOCK: u64 = 4096;
/// Maximum number of archives of a team.
const MAX_FILES: usize = 10_000;
/// Prefix of archives that are being received.
const UNFINISHED: &str = ".receiving-";
/// Time after which an archive that is being received was given up: clients have an hour.
const GIVEN_UP: Duration = Duration::from_secs(2 * 3600);

/// Time since its last use in which an archive is not deleted to make room: a build may be about to use it.
const IN_USE: Duration = Duration::from_secs(3600);

/// The uploaded archives of all teams; clones share them.
#[derive(Debug, Clone)]
pub struct FileSets {
    directory: PathBuf,
}

impl FileSets {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Whether the archive is there. If it is, it counts as used now.
    pub async fn has(&self, team: Uuid, hash: &str) -> bool {
        self.find(team, hash).await.is_some()
    }

    /// The path of the archive, which counts as used now; `None` when it is not there.
    pub(super) async fn find(&self, team: Uuid, hash: &str) -> Option<PathBuf> {
        if !is_hash(hash) {
            return None;
        }
        let path = self.team(team).join(hash);
        let file = tokio::fs::File::open(&path).await.ok()?.into_std().await;
        let _ = tokio::task::spawn_blocking(move || file.set_modified(SystemTime::now())).await;
        Some(path)
    }

    /// Deletes an archive from which nothing can be copied: clients upload what is not there.
    pub(super) async fn discard(&self, team: Uuid, hash: &str) {
        if is_hash(hash) {
            let _ = tokio::fs::remove_file(self.team(team).join(hash)).await;
        }
    }

    /// Receives an archive. It is there as a whole, or not at all; an earlier one with the same hash is replaced.
    ///
    /// # Errors
    /// If the hash is malformed, the body is empty or ends in an error, the archive is too large, or it cannot be written.
    pub async fn receive(
        &self,
        team: Uuid,
        hash: &str,
        mut body: impl Stream<Item = Result<Bytes>> + Unpin,
    ) -> Result<()> {
        if !is_hash(hash) {
            return Err(Error::Refused("Invalid files hash".to_owned()));
        }
        let directory = self.team(team);
        tokio::fs::create_dir_all(&directory).await.map_err(unwritable(&directory))?;
        let unfinished = Unfinished(directory.join(format!("{UNFINISHED}{}", Uuid::new_v4())));
        let mut file = tokio::fs::File::create(&unfinished.0).await.map_err(unwritable(&unfinished.0))?;
        let mut received = 0;
        while let Some(piece) = body.next().await {
            let piece = piece?;
            received += piece.len() as u64;
            if received > MAX_BYTES {
                return Err(Error::BodyTooLarge(usize::try_from(MAX_BYTES).unwrap_or(usize::MAX)));
            }
            file.write_all(&piece).await.map_err(unwritable(&unfinished.0))?;
        }
        if received == 0 {
            return Err(Error::Refused("The uploaded archive is empty".to_owned()));
        }
        file.flush().await.map_err(unwritable(&unfinished.0))?;
        file.sync_all().await.map_err(unwritable(&unfinished.0))?;
        let path = directory.join(hash);
        tokio::fs::rename(&unfinished.0, &path).await.map_err(unwritable(&path))
    }

    /// Makes room for an archive of `wanted` bytes within the `max` bytes that the archives of a team may take, and within their maximum
    /// number: deletes those that were not used for an hour, the least recently used first. False when there is no room even so; nothing
    /// is deleted then.
    pub async fn make_room(&self, team: Uuid, wanted: u64, max: u64) -> bool {
        let directory = self.team(team);
        let made = tokio::task::spawn_blocking(move || make_room(&directory, wanted, max));
        made.await.unwrap_or_default()
    }

    /// Deletes archives that were last used before `time`, and what was not received to the end.
    pub(super) fn expire(&self, time: SystemTime) {
        let given_up = SystemTime::now().checked_sub(GIVEN_UP).unwrap_or(SystemTime::UNIX_EPOCH);
        for file in entries(&self.directory).flat_map(|team| entries(&team)) {
            let used = std::fs::metadata(&file).and_then(|metadata| metadata.modified());
            let is_unfinished =
                file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(UNFINISHED));
            let limit = if is_unfinished { given_up.max(time) } else { time };
            if used.is_ok_and(|used| used < limit) {
                let _ = std::fs::remove_file(&file);
            }
        }
    }

    /// The archives of a team that were not used for an hour, with their sizes. They are deleted if `delete` says so.
    pub(super) fn unused(&self, team: Uuid, delete: bool) -> Vec<u64> {
        let since = SystemTime::now().checked_sub(IN_USE).unwrap_or(SystemTime::UNIX_EPOCH);
        let unused = entries(&self.team(team)).filter_map(|path| {
            let metadata = std::fs::metadata(&path).ok().filter(|metadata| metadata.is_file())?;
            let is_unused = metadata.modified().is_ok_and(|used| used < since);
            (is_unused && (!delete || std::fs::remove_file(&path).is_ok())).then_some(metadata.len())
        });
        unused.collect()
    }

    fn team(&self, team: Uuid) -> PathBuf {
        self.directory.join(team.to_string())
    }
}

fn make_room(directory: &Path, wanted: u64, max: u64) -> bool {
    let since = SystemTime::now().checked_sub(IN_USE).unwrap_or(SystemTime::UNIX_EPOCH);
    let mut archives: Vec<(SystemTime, u64, PathBuf)> = entries(directory)
        .filter_map(|path| {
            let metadata = std::fs::metadata(&path).ok()?;
            Some((metadata.modified().ok()?, metadata.len().max(BLOCK), path))
        })
        .collect();
    archives.sort();
    let mut total =
        archives.iter().fold(wanted.max(BLOCK), |total, (_, size, _)| total.saturating_add(*size));
    let is_archive =
        |path: &Path| path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with(UNFINISHED));
    let mut count = archives.iter().filter(|(_, _, path)| is_archive(path)).count() + 1;
    let mut unneeded = Vec::new();
    for (used, size, path) in &archives {
        if (total > max || count > MAX_FILES) && *used < since {
            total = total.saturating_sub(*size);
            count -= usize::from(is_archive(path));
            unneeded.push(path);
        }
    }
    if total > max || count > MAX_FILES {
        return false;
    }
    for path in unneeded {
        let _ = std::fs::remove_file(path);
    }
    true
}

/// An archive that is deleted unless it is renamed.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(directory).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
}

fn is_hash(hash: &str) -> bool {
    hash.len() == 64 && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn unwritable(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::DataDir { path, source }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    fn body(parts: &[Result<&'static str, &'static str>]) -> impl Stream<Item = Result<Bytes>> + Unpin {
        let piece = |part: &Result<&'static str, _>| match part {
            Ok(text) => Ok(Bytes::from_static(text.as_bytes())),
            Err(_) => Err(Error::BodyAborted),
        };
        stream::iter(parts.iter().map(piece).collect::<Vec<_>>())
    }

    #[tokio::test]
    async fn an_archive_is_there_as_a_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let sets = FileSets::new(directory.path().to_owned());
        let (team, hash) = (Uuid::new_v4(), "ab".repeat(32));
        assert!(sets.receive(team, &hash, body(&[Ok("half"), Err("gone")])).await.is_err());
        assert!(sets.receive(team, &hash, body(&[])).await.is_err(), "no archive is empty");
        assert!(!sets.has(team, &hash).await);
        sets.receive(team, &hash, body(&[Ok("one"), Ok("two")])).await.unwrap();
        let path = sets.find(team, &hash).await.unwrap();
        assert_eq!(std::fs::read(path).unwrap(), b"onetwo");
        assert!(!sets.has(Uuid::new_v4(), &hash).await);
        assert_eq!(entries(&directory.path().join(team.to_string())).count(), 1);
        sets.discard(team, &hash).await;
        assert!(!sets.has(team, &hash).await);
    }

    #[tokio::test]
    async fn only_hashes_are_names() {
        let directory = tempfile::tempdir().unwrap();
        let sets = FileSets::new(directory.path().to_owned());
        for bad in ["", "../../x", &"AB".repeat(32), &"a".repeat(63)] {
            assert!(sets.receive(Uuid::nil(), bad, body(&[Ok("x")])).await.is_err(), "{bad}");
            assert!(!sets.has(Uuid::nil(), bad).await);
        }
    }

    #[tokio::test]
    async fn room_is_made_by_deleting_what_is_not_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let sets = FileSets::new(directory.path().to_owned());
        let hashes = ["0", "1", "2"].map(|digit| digit.repeat(64));
        for (hours, hash) in [3, 2, 0].into_iter().zip(&hashes) {
            sets.receive(Uuid::nil(), hash, body(&[Ok("1234567890")])).await.unwrap();
            let file = std::fs::File::open(sets.find(Uuid::nil(), hash).await.unwrap()).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(hours * 3600)).unwrap();
        }
        let names = || {
            let mut names: Vec<_> = entries(&sets.team(Uuid::nil())).collect();
            names.sort();
            names
                .iter()
                .map(|path| path.file_name().unwrap().to_string_lossy()[..1].to_owned())
                .collect::<String>()
        };
        assert!(sets.make_room(Uuid::new_v4(), 10, BLOCK).await, "of another team");
        assert!(sets.make_room(Uuid::nil(), 10, 4 * BLOCK).await);
        assert!(!sets.make_room(Uuid::nil(), 10, 2 * BLOCK - 1).await, "one is in use");
        assert_eq!(names(), "012");
        assert!(sets.make_room(Uuid::nil(), 10, 4 * BLOCK - 1).await);
        assert_eq!(names(), "12");
        assert!(sets.make_room(Uuid::nil(), BLOCK, 2 * BLOCK).await);
        assert_eq!(names(), "2");
    }

    #[tokio::test]
    async fn empty_archives_take_room_and_are_limited_in_number() {
        let directory = tempfile::tempdir().unwrap();
        let sets = FileSets::new(directory.path().to_owned());
        std::fs::create_dir(sets.team(Uuid::nil())).unwrap();
        for number in 0..MAX_FILES {
            std::fs::File::create(sets.team(Uuid::nil()).join(format!("{number:064}"))).unwrap();
        }
        assert!(!sets.make_room(Uuid::nil(), 0, u64::MAX).await, "all are in use");
        let oldest = std::fs::File::open(sets.team(Uuid::nil()).join("0".repeat(64))).unwrap();
        oldest.set_modified(SystemTime::now() - 2 * IN_USE).unwrap();
        assert!(sets.make_room(Uuid::nil(), 0, u64::MAX).await);
        assert!(!sets.has(Uuid::nil(), &"0".repeat(64)).await);
        assert!(!sets.make_room(Uuid::nil(), 0, (MAX_FILES as u64 - 1) * BLOCK).await, "each takes a block");
    }

    #[tokio::test]
    async fn unused_archives_are_deleted() {
        let directory = tempfile::tempdir().unwrap();
        let sets = FileSets::new(directory.path().to_owned());
        let hash = "0".repeat(64);
        sets.receive(Uuid::nil(), &hash, body(&[Ok("x")])).await.unwrap();
        sets.expire(SystemTime::now() - Duration::from_secs(60));
        assert!(sets.has(Uuid::nil(), &hash).await);
        sets.expire(SystemTime::now() + Duration::from_secs(60));
        assert!(!sets.has(Uuid::nil(), &hash).await);
    }
}
