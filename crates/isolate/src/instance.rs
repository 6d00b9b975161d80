//! Instance numbers of the servers on a host. Slots, addresses and interface names are unique on a host, so each data
//! directory claims a number of its own and keeps it over restarts, unless another one needs it while no server and no sandbox
//! of it runs.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::net::INSTANCES;
use crate::{Error, Result};

const DIRECTORY: &str = "/run/sandcove";

/// Timeout for an ending server to release its claim.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);

/// A claimed number. Dropping it releases the claim, but as long as the data directory exists and a number is free, no other one
/// gets it.
#[derive(Debug)]
pub(crate) struct Instance {
    number: u32,
    _lock: File,
}

impl Instance {
    /// Claims the number of `data_dir`: the one it had, else a free one, else one whose server has ended and that is not
    /// `in_use`: sandboxes run in it. The caller holds the lock of the directory, so a claim that is still held belongs to a
    /// server that is ending. Waits for it, because sandboxes are found by this number.
    pub(crate) fn claim(data_dir: &Path, in_use: impl Fn(u32) -> bool) -> Result<Self> {
        Self::claim_in(Path::new(DIRECTORY), data_dir, in_use)
    }

    fn claim_in(directory: &Path, data_dir: &Path, in_use: impl Fn(u32) -> bool) -> Result<Self> {
        std::fs::create_dir_all(directory).map_err(|source| Error::Path {
            action: "create",
            path: directory.to_owned(),
            source,
        })?;
        let claims = (0..INSTANCES).map(|number| (number, directory.join(number.to_string())));
        let failed = |path: PathBuf| move |source| Error::Path { action: "claim", path, source };
        if let Some((number, path)) = claims.clone().find(|(_, path)| is_of(path, data_dir)) {
            let deadline = Instant::now() + RELEASE_TIMEOUT;
            loop {
                match try_claim(&path, data_dir, || false).map_err(failed(path.clone()))? {
                    Some(lock) => return Ok(Self { number, _lock: lock }),
                    // Another server took it over a moment ago.
                    None if !is_of(&path, data_dir) => break,
                    None if Instant::now() > deadline => {
                        return Err(failed(path)(std::io::ErrorKind::WouldBlock.into()));
                    }
                    None => std::thread::sleep(POLL),
                }
            }
        }
        for over in [false, true] {
            for (number, path) in claims.clone() {
                let idle = || over && !in_use(number);
                if let Some(lock) = try_claim(&path, data_dir, idle).map_err(failed(path))? {
                    return Ok(Self { number, _lock: lock });
                }
            }
        }
        Err(Error::NoInstance(INSTANCES))
    }

    /// Looks up the number of `data_dir` without claiming it.
    pub(crate) fn of(data_dir: &Path) -> Option<u32> {
        (0..INSTANCES).find(|number| is_of(&Path::new(DIRECTORY).join(number.to_string()), data_dir))
    }

    /// Gives the number up for good.
    pub(crate) fn give_up(self) -> std::io::Result<()> {
        std::fs::remove_file(Path::new(DIRECTORY).join(self.number.to_string()))
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

/// Whether the claim at `path` names `data_dir`. An earlier version wrote the path as it was given.
fn is_of(path: &Path, data_dir: &Path) -> bool {
    let Ok(owner) = std::fs::read_to_string(path) else { return false };
    !owner.is_empty()
        && (Path::new(&owner) == data_dir
            || Path::new(&owner).is_absolute()
                && std::fs::canonicalize(&owner).is_ok_and(|owner| owner == data_dir))
}

/// Claims the number at `path` for `data_dir`, if the claim is not held and the number is free, its own, or `idle`.
fn try_claim(path: &Path, data_dir: &Path, idle: impl Fn() -> bool) -> std::io::Result<Option<File>> {
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
        locked => locked?,
    }
    let mut owner = String::new();
    file.read_to_string(&mut owner)?;
    if owner.is_empty() || is_of(path, data_dir) || !Path::new(&owner).is_dir() || idle() {
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(data_dir.as_os_str().as_encoded_bytes())?;
        return Ok(Some(file));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_its_number_and_gives_it_up_only_when_idle_and_needed() {
        let root = tempfile::tempdir().unwrap();
        let claims = root.path().join("claims");
        let directory = |name: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(&path).unwrap();
            path
        };
        let claim = |name: &str, in_use: &dyn Fn(u32) -> bool| {
            Instance::claim_in(&claims, &directory(name), in_use).map(|claimed| (claimed.number(), claimed))
        };
        // A process that another test starts has a copy of every lock until it executes its program.
        let released = |name: &str, in_use: &dyn Fn(u32) -> bool| {
            let deadline = Instant::now() + RELEASE_TIMEOUT;
            loop {
                match claim(name, in_use) {
                    Err(Error::NoInstance(_)) if Instant::now() < deadline => std::thread::sleep(POLL),
                    claimed => return claimed.unwrap(),
                }
            }
        };
        let mut held: Vec<_> = (0..INSTANCES)
            .map(|number| {
                let (got, claimed) = claim(&format!("d{number}"), &|_| false).unwrap();
                assert_eq!(got, number);
                Some(claimed)
            })
            .collect();
        assert!(matches!(claim("late", &|_| false), Err(Error::NoInstance(INSTANCES))), "all servers run");

        held[3] = None;
        held[5] = None;
        assert!(matches!(claim("late", &|_| true), Err(Error::NoInstance(INSTANCES))), "their sandboxes run");
        let (number, late) = released("late", &|number| number == 3);
        assert_eq!(number, 5);

        let (number, kept) = claim("d3", &|_| false).unwrap();
        assert_eq!(number, 3, "kept over the restart");
        assert!(matches!(claim("d5", &|_| false), Err(Error::NoInstance(INSTANCES))));
        drop(late);
        let (number, back) = released("d5", &|_| false);
        assert_eq!(number, 5);
        std::fs::remove_dir_all(root.path().join("d3")).unwrap();
        drop((kept, back));
        assert_eq!(released("new", &|_| true).0, 3, "its directory is gone");
    }
}
