//! Resolves paths in requests to absolute paths (contract: envd, sections 2.2 and 3.1). Pure: never accesses the file system.

use crate::account::Account;
use crate::error::{Error, Result};

/// Resolves `path` for `account`. An absolute path is not changed, dots included, because clients see it again in answers; a
/// relative one is joined to the home directory and cleaned; an empty one is `default_workdir` or the home directory.
pub fn resolve(path: &str, account: &Account, default_workdir: Option<&str>) -> Result<String> {
    if path.is_empty() {
        return Ok(match default_workdir.filter(|d| !d.is_empty()) {
            // The default may itself be relative to the home directory.
            Some(workdir) => resolve(workdir, account, None)?,
            None => account.home.clone(),
        });
    }
    if path.contains('\0') {
        return Err(Error::invalid_argument(format!("path `{}` holds a zero byte", path.escape_default())));
    }
    if path.starts_with('/') {
        return Ok(path.to_owned());
    }
    let relative = match path.strip_prefix('~') {
        None => path,
        Some("") => "",
        Some(rest) => rest.strip_prefix('/').ok_or_else(|| {
            Error::invalid_argument(format!(
                "path `{path}` names another user's home, which is not supported"
            ))
        })?,
    };
    Ok(clean(&format!("{}/{relative}", account.home)))
}

/// Removes empty and `.` parts and takes `..` parts back, by text alone; `/..` is `/`.
pub fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let absolute = path.starts_with('/');
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => match parts.last() {
                Some(&last) if last != ".." => drop(parts.pop()),
                _ if absolute => {}
                _ => parts.push(part),
            },
            _ => parts.push(part),
        }
    }
    match (absolute, parts.is_empty()) {
        (true, _) => format!("/{}", parts.join("/")),
        (false, true) => ".".to_owned(),
        (false, false) => parts.join("/"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::account::Accounts;

    fn user() -> Account {
        Accounts::parse("user:x:1000:1000::/home/user:/bin/bash", "").lookup("user").unwrap()
    }

    #[test]
    fn paths_resolve_as_clients_expect() {
        let at = |path| resolve(path, &user(), None).unwrap();
        assert_eq!(at(""), "/home/user");
        assert_eq!(at("~"), "/home/user");
        assert_eq!(at("~/a/b"), "/home/user/a/b");
        assert_eq!(at("a/../b/./c"), "/home/user/b/c");
        assert_eq!(at("../other"), "/home/other");
        assert_eq!(at("/a/../b"), "/a/../b");
        assert!(resolve("~root", &user(), None).is_err());
        assert!(resolve("a\0b", &user(), None).is_err());
    }

    #[test]
    fn the_default_directory_is_for_empty_paths_only() {
        let at = |path| resolve(path, &user(), Some("/srv")).unwrap();
        assert_eq!(at(""), "/srv");
        assert_eq!(at("x"), "/home/user/x");
    }

    proptest! {
        #[test]
        fn cleaning_twice_changes_nothing(path in "[/.a-c]{0,24}") {
            let once = clean(&path);
            prop_assert_eq!(clean(&once), once);
        }

        #[test]
        fn what_is_resolved_is_absolute(path in "\\PC{0,24}") {
            if let Ok(resolved) = resolve(&path, &user(), None) {
                prop_assert!(resolved.starts_with('/'));
            }
        }
    }
}
