//! Finds where a path leads of which a part may not exist yet, as `realpath -m` does.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::error::{Result, StepError};

/// Limit on links followed before they count as a loop, as in the kernel.
const MAX_LINKS: usize = 40;

/// The canonical form of the absolute `path`: links are followed as far as there are any, and what is missing is taken as it is
/// written.
pub(super) fn canonical(path: &Path) -> Result<PathBuf> {
    let mut left: VecDeque<OsString> = parts(path).collect();
    let mut found = PathBuf::from("/");
    let mut links = 0;
    while let Some(part) = left.pop_front() {
        if part == ".." {
            found.pop();
            continue;
        }
        let next = found.join(&part);
        match fs::read_link(&next) {
            Ok(target) => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(StepError::invalid(format!("path `{}` has too many links", path.display())));
                }
                if target.is_absolute() {
                    found = PathBuf::from("/");
                }
                for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
                    left.push_front(part);
                }
            }
            // Not a link, missing, or below something that is missing.
            Err(error) => match error.kind() {
                io::ErrorKind::InvalidInput | io::ErrorKind::NotFound => found = next,
                _ => return Err(StepError::file("resolve", path.display(), error)),
            },
        }
    }
    Ok(found)
}

fn parts(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_and_missing_parts_are_kept() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("real/inner")).unwrap();
        symlink("real", base.join("relative")).unwrap();
        symlink(base.join("relative/inner"), base.join("absolute")).unwrap();
        symlink("gone/far", base.join("dangling")).unwrap();
        let at = |path: &str| canonical(&base.join(path)).unwrap();
        assert_eq!(at("relative/x/y"), base.join("real/x/y"));
        assert_eq!(at("absolute/../z"), base.join("real/z"));
        assert_eq!(at("missing/../z/."), base.join("z"));
        assert_eq!(at("dangling/x"), base.join("gone/far/x"));
        assert_eq!(canonical(Path::new("/../..")).unwrap(), Path::new("/"));
    }

    #[test]
    fn a_loop_is_an_error() {
        let base = tempfile::tempdir().unwrap();
        symlink("b", base.path().join("a")).unwrap();
        symlink("a", base.path().join("b")).unwrap();
        assert!(canonical(&base.path().join("a/x")).unwrap_err().to_string().contains("too many links"));
    }

    #[test]
    fn a_file_on_the_way_is_an_error() {
        let base = tempfile::tempdir().unwrap();
        fs::write(base.path().join("file"), "").unwrap();
        assert!(canonical(&base.path().join("file/x")).is_err());
    }
}
