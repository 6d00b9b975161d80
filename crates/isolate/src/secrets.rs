//! The file with the keys that values of secrets are sealed with: root's, mode 0600. It is written when the first value is sealed.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sandcove_egress::Keyring;
use sandcove_wire::secret::Secret;

use crate::{Error, Result};

/// Name of the file in the data directory.
const FILE: &str = "secrets.key";

/// Seals values of secrets. Clones share the keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct Vault {
    /// The file; without one, keys are in memory only.
    path: Option<PathBuf>,
    keys: Arc<Mutex<Option<Keyring>>>,
}

impl Vault {
    /// A vault with the file of a data directory.
    pub(crate) fn of(data_dir: &Path) -> Self {
        Self { path: Some(data_dir.join(FILE)), keys: Arc::default() }
    }

    /// Seals `value`, which can be opened in the same `context` only.
    pub(crate) fn seal(&self, context: &str, value: &Secret) -> Result<String> {
        self.keys()?.seal(context, value).map_err(failed("seal a value"))
    }

    /// Seals a value anew if it was not sealed with the current key.
    pub(crate) fn renew(&self, context: &str, sealed: &str) -> Result<Option<String>> {
        let keys = self.keys()?;
        if keys.is_current(sealed) {
            return Ok(None);
        }
        let value = keys.open(context, sealed).map_err(failed("open a value"))?;
        keys.seal(context, &value).map(Some).map_err(failed("seal a value"))
    }

    /// The keys, read or made at first use.
    pub(crate) fn keys(&self) -> Result<Keyring> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keys) = &*keys {
            return Ok(keys.clone());
        }
        let read = match &self.path {
            Some(path) => read(path)?,
            None => None,
        };
        let ring = match read {
            Some(ring) => ring,
            None => {
                let ring = Keyring::generate().map_err(failed("make a key"))?;
                self.path.as_deref().map_or(Ok(()), |path| write(path, &ring))?;
                ring
            }
        };
        Ok(keys.insert(ring).clone())
    }
}

/// Gives the data directory another current key for values of secrets, and keeps the one before. A running server goes on with what it has
/// read; the next start seals all values anew.
///
/// # Errors
/// When the file of keys cannot be read or written.
pub fn rotate_secret_keys(data_dir: &Path) -> Result<()> {
    let path = data_dir.join(FILE);
    let ring = match read(&path)? {
        Some(ring) => ring.rotated(),
        None => Keyring::generate(),
    };
    write(&path, &ring.map_err(failed("make a key"))?)
}

fn read(path: &Path) -> Result<Option<Keyring>> {
    let problem = |source| Error::Path { action: "read", path: path.to_owned(), source };
    match std::fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        text => Keyring::parse(&text.map_err(problem)?).map(Some).map_err(problem),
    }
}

/// Replaces the file in one step.
fn write(path: &Path, ring: &Keyring) -> Result<()> {
    let unfinished = path.with_extension("new");
    let written = || {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        file.write_all(ring.text().expose().as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&unfinished, path)?;
        path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
    };
    written().map_err(|source| Error::Path { action: "write", path: path.to_owned(), source })
}

fn failed(action: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |source| Error::Kernel { action: action.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_file_is_of_its_owner_and_outlives_the_server() {
        let directory = tempfile::tempdir().unwrap();
        let sealed = Vault::of(directory.path()).seal("c", &Secret::new("value")).unwrap();
        let file = directory.path().join(FILE);
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let next = Vault::of(directory.path());
        assert_eq!(next.keys().unwrap().open("c", &sealed).unwrap().expose(), "value");
        assert_eq!(next.renew("c", &sealed).unwrap(), None);

        rotate_secret_keys(directory.path()).unwrap();
        let next = Vault::of(directory.path());
        let renewed = next.renew("c", &sealed).unwrap().unwrap();
        assert_eq!(next.keys().unwrap().open("c", &renewed).unwrap().expose(), "value");
        assert!(next.renew("other", &sealed).is_err());

        std::fs::write(&file, "rubbish").unwrap();
        assert!(Vault::of(directory.path()).keys().is_err(), "a file that cannot be read is not replaced");
    }
}
