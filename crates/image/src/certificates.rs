//! Certificate authorities that the host's administrator has added. Behind a company's intercepting proxy, a sandbox
//! can reach a registry only if it trusts them too.

use std::path::Path;

use crate::{Error, Result};

/// Extra authorities of the host: file names and PEM texts, sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostCertificates(pub(crate) Vec<(String, String)>);

impl HostCertificates {
    /// Directory of these certificates on Debian and its derivatives.
    pub const DIRECTORY: &str = "/usr/local/share/ca-certificates";

    /// Reads the `.crt` files of `directory`; a missing directory has none.
    ///
    /// # Errors
    /// When the directory or a certificate in it cannot be read.
    pub fn read(directory: &Path) -> Result<Self> {
        let entries = match std::fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(Error::path("read", directory)(error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.map_err(Error::path("read", directory))?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if name.ends_with(".crt") {
                let text = std::fs::read_to_string(&path).map_err(Error::path("read", &path))?;
                found.push((name.to_owned(), text));
            }
        }
        found.sort();
        Ok(Self(found))
    }

    /// Whether the host has no extra authorities.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_extra_authorities_has_none() {
        assert!(HostCertificates::read(Path::new("/does/not/exist")).unwrap().is_empty());
    }

    #[test]
    fn only_certificates_are_read_and_in_order() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [("b.crt", "B"), ("a.crt", "A"), ("note.txt", "no")] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let found = HostCertificates::read(dir.path()).unwrap();
        assert_eq!(found.0, [("a.crt".to_owned(), "A".to_owned()), ("b.crt".to_owned(), "B".to_owned())]);
    }
}
