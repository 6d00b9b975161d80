//! Which of the servers on this host this is. Slots, addresses and interface names are a property of the host, so each data
//! directory claims a number of its own and keeps it over restarts.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::net::INSTANCES;
use crate::{Error, Result};

const DIRECTORY: &str = "/run/sandcove";

/// A claimed number; given back when dropped, but not to another data directory as long as this one exists.
#[derive(Debug)]
pub(crate) struct Instance {
    number: u32,
    _lock: File,
}

impl Instance {
    /// Claims the number of `data_dir`: the one it had, else a free one.
    pub(crate) fn claim(data_dir: &Path) -> Result<Self> {
        let directory = PathBuf::from(DIRECTORY);
        std::fs::create_dir_all(&directory).map_err(|source| Error::Path {
            action: "create",
            path: directory.clone(),
            source,
        })?;
        let wanted = data_dir.to_string_lossy().into_owned();
        // Two rounds, so that a data directory finds its own number before it takes a free one.
        for take_free in [false, true] {
            for number in 0..INSTANCES {
                let path = directory.join(number.to_string());
                if let Some(lock) = try_claim(&path, &wanted, take_free).map_err(|source| Error::Path {
                    action: "claim",
                    path,
                    source,
                })? {
                    return Ok(Self { number, _lock: lock });
                }
            }
        }
        Err(Error::NoInstance(INSTANCES))
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

fn try_claim(path: &Path, wanted: &str, take_free: bool) -> std::io::Result<Option<File>> {
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(None);
    }
    let mut owner = String::new();
    file.read_to_string(&mut owner)?;
    let free = owner.is_empty() || !Path::new(&owner).is_dir();
    if owner == wanted || (take_free && free) {
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(wanted.as_bytes())?;
        return Ok(Some(file));
    }
    Ok(None)
}
