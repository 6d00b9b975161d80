//! Generations: directories with the images of a sandbox's processes and a manifest. That of a parked sandbox is named by its id, and that
//! of a snapshot as its files are.
//!
//! ```text
//! NAME.new    being written, and locked by whoever writes it; nobody chooses it
//!    |        renamed when everything is on disk
//! NAME        published: complete, on disk, of this server; may be restored from again and again
//!    |        of a parked sandbox: renamed right before processes run
//! NAME.used   restored: never again, because the files of the sandbox have moved on
//! ID.view     links to the images of NAME, in which the processes have the ids of the slot that sandbox ID is restored in
//! ```

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hmac::{Hmac, Mac};
use rand::RngCore;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open, syncfs};
use sha2::{Digest, Sha256};

use super::manifest::Manifest;
use super::refusal::refused;
use super::{common, images};
use crate::jail::USED;
use crate::{Error, Result, crash};

/// File with the manifest, and file with its keyed hash.
const MANIFEST: &str = "manifest.json";
const PROOF: &str = "manifest.hmac";
/// Beginning of the names of images that hold memory and nothing that is parsed.
const PAGES: &str = "pages-";
/// Ends of the names of directories that are no generations.
const NEW: &str = ".new";
const VIEW: &str = ".view";
/// Length of the key, bytes.
const KEY_LENGTH: usize = 32;
/// Bytes of an image that are read at a time.
const CHUNK: usize = 1 << 20;
/// Time for which a CRIU of an earlier server may go on.
const END_TIMEOUT: Duration = Duration::from_secs(150);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The generations of a data directory, those of parked sandboxes or those of snapshots.
#[derive(Debug)]
pub(crate) struct Generations {
    root: PathBuf,
    key: [u8; KEY_LENGTH],
    /// Names of those whose memory was read and compared by this server already, where it does that once; `None` where each restore does.
    checked: Option<Mutex<HashSet<String>>>,
    /// Inodes and digests of files that others have too, and that this server has written or compared.
    checked_common: Mutex<HashSet<(u64, String)>>,
}

/// A directory for new images. It is locked.
pub(crate) struct NewGeneration {
    path: PathBuf,
    lock: OwnedFd,
    /// Digests of files that are known already, by name.
    pub(super) known: BTreeMap<String, String>,
}

impl NewGeneration {
    /// Path of the directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The descriptor that holds the lock.
    pub(crate) fn lock(&self) -> &OwnedFd {
        &self.lock
    }
}

impl Generations {
    /// Opens the directory `root`, with the key in the file `key`; creates what is missing. What an earlier server has begun is deleted,
    /// after its CRIU has ended: until then, that holds processes.
    pub(crate) fn open(root: PathBuf, key: &Path) -> Result<Self> {
        std::fs::create_dir_all(&root).map_err(at("create", &root))?;
        // A process that is entering a sandbox sees this directory and must not read it.
        let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&root, owner_only).map_err(at("restrict", &root))?;
        let key = read_key(key).map_err(at("read", key))?;
        let this = Self { root, key, checked: None, checked_common: Mutex::default() };
        for name in this.names()? {
            let path = this.root.join(&name);
            if name.ends_with(NEW) {
                wait_for_end(&path).map_err(at("wait for the end of the dump in", &path))?;
            }
            if [NEW, USED, VIEW].iter().any(|state| name.ends_with(state)) {
                remove(&path)?;
            }
        }
        Ok(this)
    }

    /// Has memory compared with its digests once by each server, and not at each restore: many sandboxes may come from one generation at the
    /// same time.
    pub(crate) fn checked_once(self) -> Self {
        Self { checked: Some(Mutex::default()), ..self }
    }

    /// Creates an empty directory for new images; an unfinished one of an earlier attempt is deleted.
    pub(crate) fn begin(&self, name: &str) -> Result<NewGeneration> {
        let path = self.path(name, NEW);
        remove(&path)?;
        std::fs::create_dir(&path).map_err(at("create", &path))?;
        let lock = locked(&path, FlockOperation::NonBlockingLockExclusive).map_err(at("lock", &path))?;
        Ok(NewGeneration { path, lock, known: BTreeMap::new() })
    }

    /// Publishes what was begun, and returns its size, bytes. When this returns, the generation is on disk and is the one that is chosen.
    /// `written` names the crash point at which it is on disk and not chosen.
    ///
    /// # Errors
    /// When it cannot be written, or is larger than `max_bytes`. The generation that was published before, if any, stays the chosen one.
    pub(crate) fn publish(
        &self,
        begun: &NewGeneration,
        mut manifest: Manifest,
        max_bytes: u64,
        written: &str,
    ) -> Result<u64> {
        let directory = begun.path();
        let known = |name: &str, _| begun.known.get(name).cloned();
        let found = digests(directory, |_| true, known).map_err(at("read", directory))?;
        (manifest.common, manifest.images) = found.into_iter().partition(|(name, _)| common::is_about(name));
        let text = serde_json::to_vec(&manifest).map_err(|error| at("write", directory)(error.into()))?;
        for (name, content) in [(MANIFEST, &text), (PROOF, &self.mac(&text).finalize().into_bytes().to_vec())]
        {
            let path = directory.join(name);
            std::fs::write(&path, content).map_err(at("write", &path))?;
        }
        let bytes = size(directory).map_err(at("read", directory))?;
        if bytes > max_bytes {
            return Err(Error::MemoryTooLarge { max_bytes });
        }
        // At once: a hundred small files are written to disk one after the other otherwise.
        syncfs(begun.lock.as_fd()).map_err(|error| at("write to disk", directory)(error.into()))?;
        crash::point(written);
        let published = self.path(&manifest.id, "");
        remove(&published)?;
        std::fs::rename(directory, &published).map_err(at("rename", directory))?;
        self.sync()?;
        self.note_common(&published, &manifest);
        if let Some(mut checked) = self.checked() {
            checked.insert(manifest.id);
        }
        Ok(bytes)
    }

    /// Size of the published generation, bytes; `None` when there is none.
    pub(crate) fn size(&self, name: &str) -> Option<u64> {
        let published = self.path(name, "");
        published.join(PROOF).exists().then(|| size(&published).unwrap_or_default())
    }

    /// Versions of the guest programs that published generations name. The manifests are not checked: a restore does that.
    pub(crate) fn programs(&self) -> BTreeSet<String> {
        let manifests = self.names().unwrap_or_default().into_iter().filter_map(|name| {
            let text = std::fs::read(self.root.join(name).join(MANIFEST)).ok()?;
            serde_json::from_slice::<Manifest>(&text).ok()
        });
        manifests.map(|manifest| manifest.host.programs).collect()
    }

    /// Reads the manifest of the published generation, and checks the images that are parsed; [`Generations::check_pages`] checks the rest.
    ///
    /// # Errors
    /// When there is none, this server has not written it, or an image is damaged.
    pub(crate) fn check(&self, name: &str) -> Result<Manifest> {
        let published = self.path(name, "");
        let read =
            |file: &str| std::fs::read(published.join(file)).map_err(at("read", &published.join(file)));
        let (text, proof) = (read(MANIFEST)?, read(PROOF)?);
        // Before anything is parsed.
        if self.mac(&text).verify_slice(&proof).is_err() {
            return Err(refused("its manifest was not written by this server".into()));
        }
        let manifest: Manifest = serde_json::from_slice(&text)
            .map_err(|error| at("parse", &published.join(MANIFEST))(error.into()))?;
        if manifest.id != name {
            return Err(refused(format!("its manifest is that of `{}`", manifest.id)));
        }
        self.compare(&manifest, |name| !name.starts_with(PAGES))?;
        Ok(manifest)
    }

    /// Checks the images that hold memory.
    pub(crate) fn check_pages(&self, manifest: &Manifest) -> Result<()> {
        if self.checked().is_some_and(|checked| checked.contains(&manifest.id)) {
            return Ok(());
        }
        self.compare(manifest, |name| name.starts_with(PAGES))?;
        self.note_common(&self.path(&manifest.id, ""), manifest);
        if let Some(mut checked) = self.checked() {
            checked.insert(manifest.id.clone());
        }
        Ok(())
    }

    fn compare(&self, manifest: &Manifest, of: impl Fn(&str) -> bool) -> Result<()> {
        let published = self.path(&manifest.id, "");
        let known = |name: &str, inode| {
            let digest = manifest.common.get(name).filter(|_| common::is_pages(name))?;
            self.checked_common().contains(&(inode, digest.clone())).then(|| digest.clone())
        };
        let found = digests(&published, &of, known).map_err(at("read", &published))?;
        let all = manifest.images.iter().chain(&manifest.common);
        let wanted: BTreeMap<_, _> = all.filter(|(name, _)| of(name)).collect();
        if found.iter().eq(wanted) { Ok(()) } else { Err(refused("its images are damaged".into())) }
    }

    /// Creates a directory with the published images for the sandbox `id`, in which the processes have the ids of the slot that begins with
    /// `id_base`.
    pub(crate) fn view(&self, name: &str, id: &str, id_base: u32) -> Result<PathBuf> {
        let view = self.path(id, VIEW);
        remove(&view)?;
        std::fs::create_dir(&view).map_err(at("create", &view))?;
        images::link_for(id_base, &self.path(name, ""), &view).map_err(at("write", &view))?;
        Ok(view)
    }

    /// Deletes the directory of [`Generations::view`].
    pub(crate) fn remove_view(&self, id: &str) -> Result<()> {
        remove(&self.path(id, VIEW))
    }

    /// Directory of the published generation. The builder of a restore gives it the end [`USED`] right before processes run.
    pub(crate) fn published(&self, name: &str) -> PathBuf {
        self.path(name, "")
    }

    /// Deletes everything that is kept under this name. Idempotent.
    pub(crate) fn discard(&self, name: &str) -> Result<()> {
        if let Some(mut checked) = self.checked() {
            checked.remove(name);
        }
        // The published one first: the others are never chosen.
        ["", NEW, VIEW, USED].iter().try_for_each(|state| remove(&self.path(name, state)))
    }

    /// Deletes everything but the generations that are known; returns the names, each with the outcome.
    pub(crate) fn sweep(&self, is_known: impl Fn(&str) -> bool) -> Vec<(String, Result<()>)> {
        let names = self.names().unwrap_or_default();
        let unknown = names.into_iter().filter(|name| !is_known(name));
        unknown.map(|name| (name.clone(), remove(&self.root.join(name)))).collect()
    }

    fn names(&self) -> Result<Vec<String>> {
        let entries = std::fs::read_dir(&self.root).map_err(at("list", &self.root))?;
        Ok(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
    }

    fn path(&self, name: &str, state: &str) -> PathBuf {
        self.root.join(format!("{name}{state}"))
    }

    /// Notes that a file that other generations have too has the digest of the manifest.
    fn note_common(&self, directory: &Path, manifest: &Manifest) {
        for (name, digest) in manifest.common.iter().filter(|(name, _)| common::is_pages(name)) {
            if let Ok(metadata) = std::fs::metadata(directory.join(name)) {
                self.checked_common().insert((metadata.ino(), digest.clone()));
            }
        }
    }

    fn checked_common(&self) -> MutexGuard<'_, HashSet<(u64, String)>> {
        self.checked_common.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn checked(&self) -> Option<MutexGuard<'_, HashSet<String>>> {
        // A set that a panic leaves behind is whole.
        self.checked.as_ref().map(|checked| checked.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn sync(&self) -> Result<()> {
        File::open(&self.root).and_then(|root| root.sync_all()).map_err(at("write to disk", &self.root))
    }

    fn mac(&self, text: &[u8]) -> Hmac<Sha256> {
        // A key of any length is valid.
        let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(&self.key).unwrap_or_else(|_| unreachable!());
        mac.update(text);
        mac
    }
}

fn read_key(path: &Path) -> io::Result<[u8; KEY_LENGTH]> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;

    let mut key = [0; KEY_LENGTH];
    match File::open(path) {
        Ok(mut file) => file.read_exact(&mut key)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            rand::rng().fill_bytes(&mut key);
            let fresh = path.with_extension("new");
            let mut file =
                File::options().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
            file.write_all(&key)?;
            file.sync_all()?;
            std::fs::rename(fresh, path)?;
        }
        Err(error) => return Err(error),
    }
    Ok(key)
}

fn locked(path: &Path, operation: FlockOperation) -> io::Result<OwnedFd> {
    let directory = open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    flock(&directory, operation)?;
    Ok(directory)
}

/// Waits until nobody holds the lock of the directory.
fn wait_for_end(path: &Path) -> io::Result<()> {
    let deadline = Instant::now() + END_TIMEOUT;
    loop {
        match locked(path, FlockOperation::NonBlockingLockExclusive) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                std::thread::sleep(LOOK_INTERVAL);
            }
            other => return other.map(drop),
        }
    }
}

/// Digests of files of the directory by name, except the manifest and its proof. `known` has those of some, by name and inode.
fn digests(
    directory: &Path,
    of: impl Fn(&str) -> bool,
    known: impl Fn(&str, u64) -> Option<String>,
) -> io::Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    let mut chunk = vec![0; CHUNK];
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().into_string().map_err(|_| io::ErrorKind::InvalidData)?;
        if name == MANIFEST || name == PROOF || !of(&name) {
            continue;
        }
        if let Some(digest) = known(&name, entry.ino()) {
            found.insert(name, digest);
            continue;
        }
        let (mut file, mut digest) = (File::open(entry.path())?, Sha256::new());
        loop {
            match file.read(&mut chunk)? {
                0 => break,
                read => digest.update(&chunk[..read]),
            }
        }
        found.insert(name, hexadecimal(digest));
    }
    Ok(found)
}

/// The digest as text.
pub(super) fn hexadecimal(digest: Sha256) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Size of all files in the directory, bytes, except those that sandboxes of all teams have in common.
fn size(directory: &Path) -> io::Result<u64> {
    let own = std::fs::read_dir(directory)?
        .filter(|entry| entry.as_ref().map_or(true, |entry| entry.file_name() != common::PAGES));
    own.map(|entry| entry?.metadata().map(|metadata| metadata.len())).sum()
}

fn remove(directory: &Path) -> Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(at("delete", directory)),
    }
}

fn at(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |source| Error::Path { action, path, source }
}

#[cfg(test)]
mod tests {
    use super::super::manifest::HostFacts;
    use super::*;

    struct Place {
        directory: tempfile::TempDir,
        id: String,
    }

    impl Place {
        fn new() -> Self {
            Self { directory: tempfile::tempdir().unwrap(), id: "iabcdefghijklmnopqrst".into() }
        }

        fn root(&self) -> PathBuf {
            self.directory.path().join("parked")
        }

        fn generations(&self, key: &str) -> Generations {
            Generations::open(self.root(), &self.directory.path().join(key)).unwrap()
        }

        fn manifest(&self) -> Manifest {
            Manifest {
                id: self.id.clone(),
                server: "0.1.0".into(),
                host: HostFacts::here("4.2.1".into(), "d8f7".into()),
                layers: vec!["base-1".into()],
                mounts: Some(Vec::new()),
                slot: 3,
                images: BTreeMap::new(),
                common: BTreeMap::new(),
            }
        }

        fn publish(&self, content: &str) {
            let generations = self.generations("key");
            let begun = generations.begin(&self.id).unwrap();
            std::fs::write(begun.path().join("pages-1.img"), content).unwrap();
            std::fs::write(begun.path().join("core-1.img"), content).unwrap();
            generations.publish(&begun, self.manifest(), u64::MAX, "park.written").unwrap();
        }

        fn check(&self, key: &str) -> Result<Manifest> {
            let generations = self.generations(key);
            generations
                .check(&self.id)
                .and_then(|manifest| generations.check_pages(&manifest).map(|()| manifest))
        }
    }

    #[test]
    fn the_last_published_generation_is_chosen_until_it_is_used() {
        let place = Place::new();
        place.publish("old");
        place.publish("new");
        for _ in 0..2 {
            assert_eq!(Manifest { images: BTreeMap::new(), ..place.check("key").unwrap() }, place.manifest());
        }
        let generations = place.generations("key");
        let view = generations.view(&place.id, "copy", 7).unwrap();
        assert_eq!(std::fs::read_to_string(view.join("pages-1.img")).unwrap(), "new");
        assert!(generations.size(&place.id).unwrap() > 6);
        generations.remove_view("copy").unwrap();
        let published = generations.published(&place.id);
        std::fs::rename(&published, place.root().join(format!("{}{USED}", place.id))).unwrap();
        assert_eq!(generations.size(&place.id), None);
        assert!(generations.check(&place.id).is_err());
        generations.discard(&place.id).unwrap();
        assert_eq!(std::fs::read_dir(place.root()).unwrap().count(), 0);
    }

    #[test]
    fn a_half_written_generation_is_never_chosen_and_is_deleted_when_nobody_writes_it() {
        let place = Place::new();
        place.publish("whole");
        let generations = place.generations("key");
        let begun = generations.begin(&place.id).unwrap();
        std::fs::write(begun.path().join("pages-1.img"), "half").unwrap();
        assert!(generations.check(&place.id).is_ok());
        let path = begun.path().to_owned();
        // What a CRIU does that has outlived its server.
        let writer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            assert!(begun.path().exists());
        });
        let generations = place.generations("key");
        writer.join().unwrap();
        assert!(!path.exists());
        assert!(generations.size(&place.id).is_some());
    }

    #[test]
    fn a_generation_that_is_too_large_is_not_chosen() {
        let place = Place::new();
        place.publish("old");
        let generations = place.generations("key");
        let bytes = generations.size(&place.id).unwrap();
        let publish = |max_bytes| {
            let begun = generations.begin(&place.id).unwrap();
            std::fs::write(begun.path().join("pages-1.img"), "new").unwrap();
            std::fs::write(begun.path().join("core-1.img"), "new").unwrap();
            generations.publish(&begun, place.manifest(), max_bytes, "park.written")
        };
        assert!(
            matches!(publish(bytes - 1), Err(Error::MemoryTooLarge { max_bytes }) if max_bytes == bytes - 1)
        );
        let chosen = std::fs::read_to_string(generations.published(&place.id).join("pages-1.img"));
        assert_eq!(chosen.unwrap(), "old");
        assert_eq!(publish(bytes).unwrap(), bytes);
    }

    #[test]
    fn a_sweep_keeps_the_generations_of_known_sandboxes() {
        let place = Place::new();
        place.publish("whole");
        let generations = place.generations("key");
        assert!(generations.sweep(|name| name == place.id).is_empty());
        assert_eq!(generations.sweep(|_| false).len(), 1);
        assert_eq!(generations.size(&place.id), None);
    }

    #[test]
    fn what_this_server_did_not_write_is_refused() {
        let place = Place::new();
        place.publish("of this server");
        assert!(place.check("another key").unwrap_err().to_string().contains("not written by this server"));
    }

    #[test]
    fn memory_that_is_checked_once_is_checked_by_each_server() {
        let place = Place::new();
        place.publish("whole");
        std::fs::write(place.root().join(&place.id).join("pages-1.img"), "other").unwrap();
        let generations = place.generations("key").checked_once();
        let manifest = generations.check(&place.id).unwrap();
        assert!(generations.check_pages(&manifest).is_err());
        std::fs::write(place.root().join(&place.id).join("pages-1.img"), "whole").unwrap();
        generations.check_pages(&manifest).unwrap();
        std::fs::write(place.root().join(&place.id).join("pages-1.img"), "other").unwrap();
        generations.check_pages(&manifest).unwrap();
        assert!(place.generations("key").checked_once().check_pages(&manifest).is_err());
    }

    #[test]
    fn changed_added_and_missing_images_are_refused() {
        let change: [fn(&Path); 5] = [
            |images| std::fs::write(images.join("pages-1.img"), "other").unwrap(),
            |images| std::fs::write(images.join("core-1.img"), "other").unwrap(),
            |images| std::fs::write(images.join("files.img"), "more").unwrap(),
            |images| std::fs::remove_file(images.join("pages-1.img")).unwrap(),
            |images| std::fs::write(images.join(MANIFEST), "{}").unwrap(),
        ];
        for change in change {
            let place = Place::new();
            place.publish("whole");
            change(&place.root().join(&place.id));
            let refusal = place.check("key").unwrap_err().to_string();
            assert!(refusal.contains("damaged") || refusal.contains("not written"), "{refusal}");
        }
    }
}
