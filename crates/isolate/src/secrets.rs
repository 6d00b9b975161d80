//! Files of the egress proxies, root's and with mode 0600: the keys that values of secrets are sealed with, and the certificate authority of this
//! installation. Each is written when it is needed first.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sandcove_egress::{Authority, Keyring, SigningKeys};
use sandcove_wire::secret::Secret;

use crate::{Error, Result};

/// Name of the file with the keys in the data directory.
const FILE: &str = "secrets.key";
/// Name of the file with the authority.
const AUTHORITY: &str = "egress-authority.json";
/// Name of the file with the keys that tokens of sandboxes are signed with.
const SIGNING: &str = "identity.key";

/// Seals values of secrets. Clones share the keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct Vault {
    /// The file; without one, keys are in memory only.
    path: Option<PathBuf>,
    keys: Arc<Mutex<Option<Keyring>>>,
    authority: Arc<Mutex<Option<Authority>>>,
    signing: Arc<Mutex<Option<SigningKeys>>>,
}

impl Vault {
    /// A vault with the file of a data directory.
    pub(crate) fn of(data_dir: &Path) -> Self {
        Self { path: Some(data_dir.join(FILE)), ..Self::default() }
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

    /// Drops the keys that no value is sealed with any more, all values being sealed with the current key. A rotation that has happened since
    /// the keys were read is left alone: its keys are still needed.
    pub(crate) fn settle(&self) -> Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let _one = locked(path)?;
        let Some(ring) = read(path, Keyring::parse)? else { return Ok(()) };
        let settled = if ring.has_current_key_of(&self.keys()?) { ring.settled() } else { None };
        settled.map_or(Ok(()), |ring| write(path, ring.text().expose()))
    }

    /// The authority that sandboxes trust whose requests get headers, read or made at first use.
    pub(crate) fn authority(&self) -> Result<Authority> {
        let mut authority = self.authority.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(authority) = &*authority {
            return Ok(authority.clone());
        }
        let path = self.path.as_deref().map(|path| path.with_file_name(AUTHORITY));
        let read = match &path {
            Some(path) => read(path, |text| serde_json::from_str(text).map_err(Into::into))?,
            None => None,
        };
        let found = match read {
            Some(found) => found,
            None => {
                let made = Authority::generate().map_err(failed("make a certificate authority"))?;
                if let Some(path) = &path {
                    let text = serde_json::to_string(&made)
                        .map_err(|error| failed("write an authority")(error.into()))?;
                    write(path, &text)?;
                }
                made
            }
        };
        Ok(authority.insert(found).clone())
    }

    /// The keys that tokens of sandboxes are signed with, read or made at first use.
    pub(crate) fn signing(&self) -> Result<SigningKeys> {
        let mut signing = self.signing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(signing) = &*signing {
            return Ok(signing.clone());
        }
        let path = self.path.as_deref().map(|path| path.with_file_name(SIGNING));
        let read = match &path {
            Some(path) => read(path, SigningKeys::parse)?,
            None => None,
        };
        let found = match read {
            Some(found) => found,
            None => {
                let made = SigningKeys::generate().map_err(failed("make a signing key"))?;
                path.as_deref().map_or(Ok(()), |path| write(path, made.text().expose()))?;
                made
            }
        };
        Ok(signing.insert(found).clone())
    }

    /// The keys, read or made at first use.
    pub(crate) fn keys(&self) -> Result<Keyring> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keys) = &*keys {
            return Ok(keys.clone());
        }
        let read = match &self.path {
            Some(path) => read(path, Keyring::parse)?,
            None => None,
        };
        let ring = match read {
            Some(ring) => ring,
            None => {
                let ring = Keyring::generate().map_err(failed("make a key"))?;
                self.path.as_deref().map_or(Ok(()), |path| write(path, ring.text().expose()))?;
                ring
            }
        };
        Ok(keys.insert(ring).clone())
    }
}

/// Gives the data directory another current key for values of secrets, and keeps those before. A running server goes on with what it has
/// read; the next start seals all values anew, and drops all but the last two.
///
/// # Errors
/// When the file of keys cannot be read or written.
pub fn rotate_secret_keys(data_dir: &Path) -> Result<()> {
    let path = data_dir.join(FILE);
    let _one = locked(&path)?;
    let ring = match read(&path, Keyring::parse)? {
        Some(ring) => ring.rotated(),
        None => Keyring::generate(),
    };
    write(&path, ring.map_err(failed("make a key"))?.text().expose())
}

/// Gives the data directory another current key for tokens of sandboxes, and keeps publishing the one before. A running server goes on with
/// what it has read.
///
/// # Errors
/// When the file of keys cannot be read or written.
pub fn rotate_identity_keys(data_dir: &Path) -> Result<()> {
    let path = data_dir.join(SIGNING);
    let keys = match read(&path, SigningKeys::parse)? {
        Some(keys) => keys.rotated(),
        None => SigningKeys::generate(),
    };
    write(&path, keys.map_err(failed("make a signing key"))?.text().expose())
}

/// Keeps other processes from changing a file of the directory of `path` until the end of the value.
fn locked(path: &Path) -> Result<File> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let lock = || {
        let directory = File::open(directory)?;
        directory.lock()?;
        Ok(directory)
    };
    lock().map_err(|source| Error::Path { action: "lock", path: directory.to_owned(), source })
}

fn read<T>(path: &Path, parse: impl Fn(&str) -> io::Result<T>) -> Result<Option<T>> {
    let problem = |source| Error::Path { action: "read", path: path.to_owned(), source };
    match std::fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        text => parse(&text.map_err(problem)?).map(Some).map_err(problem),
    }
}

/// Replaces the file in one step.
fn write(path: &Path, text: &str) -> Result<()> {
    let unfinished = path.with_extension("new");
    let written = || {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        file.write_all(text.as_bytes())?;
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
    fn signing_keys_outlive_the_server_and_one_rotation() {
        let directory = tempfile::tempdir().unwrap();
        let public = || Vault::of(directory.path()).signing().unwrap().public().unwrap();
        let before = public();
        assert_eq!(public(), before);
        let file = directory.path().join(SIGNING);
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        rotate_identity_keys(directory.path()).unwrap();
        assert_eq!((public().len(), &public()[1]), (2, &before[0]));
    }

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

        // A rotation beside the server: its start has not sealed anything with the newest key.
        rotate_secret_keys(directory.path()).unwrap();
        next.settle().unwrap();
        assert_eq!(Vault::of(directory.path()).keys().unwrap().open("c", &sealed).unwrap().expose(), "value");
        Vault::of(directory.path()).settle().unwrap();
        let last = Vault::of(directory.path()).keys().unwrap();
        assert!(last.open("c", &sealed).is_err() && last.open("c", &renewed).is_ok());

        std::fs::write(&file, "rubbish").unwrap();
        assert!(Vault::of(directory.path()).keys().is_err(), "a file that cannot be read is not replaced");
    }
}
