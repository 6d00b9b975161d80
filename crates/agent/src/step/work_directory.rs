//! WORKDIR (contract: templates, section 9.2).

use std::path::Path;

use super::error::{Result, StepError};
use super::{owner, resolve};
use crate::account::Accounts;
use crate::filesystem::directories::{self, Owner};

/// Creates the directory `path`, which starts at `current` if it is relative, and gives what is created to `user`. Returns its
/// canonical path.
pub(super) fn create(path: &str, current: Option<&str>, user: &str, accounts: &Accounts) -> Result<String> {
    if path.is_empty() {
        return Err(StepError::invalid("the path of the working directory is empty"));
    }
    let owner = Owner::from(&owner::account(accounts, user)?);
    let path = resolve::canonical(&Path::new("/").join(current.unwrap_or_default()).join(path))?;
    if path.exists() && !path.is_dir() {
        return Err(StepError::invalid(format!("working directory `{}` is not a directory", path.display())));
    }
    directories::create_all(&path, owner)
        .map_err(|e| StepError::file("create directory", path.display(), e))?;
    path.into_os_string()
        .into_string()
        .map_err(|path| StepError::invalid(format!("working directory `{}` is not UTF-8", path.display())))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_canonical_path_is_returned() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let accounts = Accounts::load().unwrap();
        let user = accounts.user_name(rustix::process::geteuid().as_raw());
        fs::create_dir(base.join("real")).unwrap();
        symlink("real", base.join("link")).unwrap();
        let at = |path: &str| create(path, base.to_str(), &user, &accounts);
        assert_eq!(at("link/a/../b/").unwrap(), base.join("real/b").to_str().unwrap());
        assert!(base.join("real/b").is_dir() && !base.join("real/a").exists());
        assert_eq!(create("/", None, &user, &accounts).unwrap(), "/");
        fs::write(base.join("file"), "").unwrap();
        assert!(at("file").unwrap_err().to_string().contains("not a directory"));
        assert!(at("").is_err());
        assert!(create("x", base.to_str(), "nobody-here", &accounts).is_err());
    }
}
