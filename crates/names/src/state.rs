//! What is kept on disk, so that a server that ends at any moment orders nothing twice: the account, the order in progress with its key,
//! the certificate with its key, and when orders were made. Each is a file of its own, replaced as a whole, with the mode 0600.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sandcove_wire::secret::Secret;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Error;

/// The file of an ACME account: its key and its address at the authority.
#[derive(Serialize, Deserialize)]
pub(crate) struct AccountFile {
    /// URL of the authority's directory.
    pub(crate) directory: String,
    /// Key of the account, PKCS#8 in PEM.
    pub(crate) key: Secret,
}

/// An order in progress.
#[derive(Serialize, Deserialize)]
pub(crate) struct OrderFile {
    pub(crate) directory: String,
    pub(crate) domain: String,
    /// URL of the order.
    pub(crate) url: String,
    /// Key of the certificate, in PEM.
    pub(crate) key: Secret,
}

/// Attempts that were made.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Attempts {
    /// When orders were made within the last hour, seconds since 1970.
    pub(crate) orders: Vec<i64>,
    /// Failures since the last certificate.
    pub(crate) failures: u32,
    /// Why the last attempt failed.
    pub(crate) reason: Option<String>,
}

/// The directory of these files.
#[derive(Debug, Clone)]
pub(crate) struct State(PathBuf);

const ACCOUNT: &str = "account.json";
const ORDER: &str = "order.json";
const ATTEMPTS: &str = "attempts.json";
const CERTIFICATE: &str = "certificate.pem";

impl State {
    /// Opens the directory; creates it if needed.
    pub(crate) fn open(directory: &Path) -> Result<Self, Error> {
        let create = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        create.map_err(|source| Error::Disk { path: directory.to_owned(), source })?;
        Ok(Self(directory.to_owned()))
    }

    pub(crate) fn account(&self) -> Result<Option<AccountFile>, Error> {
        self.read(ACCOUNT)
    }

    pub(crate) fn keep_account(&self, account: &AccountFile) -> Result<(), Error> {
        self.write(ACCOUNT, &json(account))
    }

    pub(crate) fn order(&self) -> Result<Option<OrderFile>, Error> {
        self.read(ORDER)
    }

    pub(crate) fn keep_order(&self, order: &OrderFile) -> Result<(), Error> {
        self.write(ORDER, &json(order))
    }

    pub(crate) fn forget_order(&self) -> Result<(), Error> {
        let path = self.0.join(ORDER);
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != ErrorKind::NotFound => Err(Error::Disk { path, source }),
            _ => Ok(()),
        }
    }

    pub(crate) fn attempts(&self) -> Result<Attempts, Error> {
        Ok(self.read(ATTEMPTS)?.unwrap_or_default())
    }

    pub(crate) fn keep_attempts(&self, attempts: &Attempts) -> Result<(), Error> {
        self.write(ATTEMPTS, &json(attempts))
    }

    /// The certificate with its chain and its key, in PEM.
    pub(crate) fn certificate(&self) -> Result<Option<Vec<u8>>, Error> {
        self.read_bytes(CERTIFICATE)
    }

    pub(crate) fn keep_certificate(&self, pem: &[u8]) -> Result<(), Error> {
        self.write(CERTIFICATE, pem)
    }

    /// Reads a file. One that is damaged counts as missing: what it says is made again.
    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Error> {
        let Some(bytes) = self.read_bytes(name)? else { return Ok(None) };
        match serde_json::from_slice(&bytes) {
            Ok(read) => Ok(Some(read)),
            Err(_) => {
                tracing::warn!("`{}` is damaged, and is made again", self.0.join(name).display());
                Ok(None)
            }
        }
    }

    fn read_bytes(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let path = self.0.join(name);
        match std::fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(source) if source.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::Disk { path, source }),
        }
    }

    fn write(&self, name: &str, content: &[u8]) -> Result<(), Error> {
        let (path, unfinished) = (self.0.join(name), self.0.join(format!("{name}.new")));
        let write = || {
            let _ = std::fs::remove_file(&unfinished);
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
            file.write_all(content)?;
            file.sync_all()?;
            std::fs::rename(&unfinished, &path)?;
            File::open(&self.0)?.sync_all()
        };
        write().map_err(|source| Error::Disk { path: path.clone(), source })
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    // These are plain records of texts and numbers.
    serde_json::to_vec(value).unwrap_or_default()
}
