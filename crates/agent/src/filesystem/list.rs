//! Lists a directory, some levels deep (contract: envd, section 3.2).

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;
use sandcove_wire::envd::filesystem::EntryInfo;

use super::Describer;
use crate::rpc::{Error, Result};

/// Lists the entries below `root`: a directory before its content, names in the order of their bytes. Only `root` itself may be
/// a link. Depth 0 counts as 1.
pub(super) fn list(root: &Path, depth: u32) -> Result<Vec<EntryInfo>> {
    check_directory(root)?;
    let describer = Describer::load().map_err(|e| failed(root, &e))?;
    let mut walk = Walk { describer, entries: Vec::new() };
    walk.descend(root, depth.max(1)).map_err(|e| failed(root, &e))?;
    Ok(walk.entries)
}

/// Checks that `path` is a directory that can be read, with an error in the terms of the service.
pub(crate) fn check_directory(path: &Path) -> Result<()> {
    let shown = path.display();
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(Error::invalid_argument(format!("path '{shown}' is not a directory"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(Error::not_found(format!("path '{shown}' does not exist")))
        }
        Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => {
            Err(Error::failed_precondition(format!("path '{shown}' is a link that leads back to itself")))
        }
        Err(error) => Err(failed(path, &error)),
    }
}

fn failed(path: &Path, error: &io::Error) -> Error {
    Error::internal(format!("failed to read directory '{}': {error}", path.display()))
}

struct Walk {
    describer: Describer,
    entries: Vec<EntryInfo>,
}

impl Walk {
    fn descend(&mut self, directory: &Path, depth: u32) -> io::Result<()> {
        let mut names =
            fs::read_dir(directory)?.map(|e| Ok(e?.file_name())).collect::<io::Result<Vec<OsString>>>()?;
        names.sort_unstable_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        for name in names {
            let path = directory.join(name);
            let Some(entry) = unless_vanished(self.describer.describe(&path))? else { continue };
            let is_directory = entry.permissions.starts_with('d');
            self.entries.push(entry);
            if is_directory && depth > 1 {
                unless_vanished(self.descend(&path, depth - 1))?;
            }
        }
        Ok(())
    }
}

/// Ignores the error of an entry that was removed during the listing.
fn unless_vanished<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::rpc::Code;

    fn names(root: &Path, depth: u32) -> Vec<String> {
        let prefix = format!("{}/", root.display());
        let entries = list(root, depth).unwrap();
        entries.iter().map(|e| e.path.strip_prefix(&prefix).unwrap().to_owned()).collect()
    }

    #[test]
    fn directories_come_before_their_content_and_names_in_byte_order() {
        let base = tempfile::tempdir().unwrap();
        for path in ["b/x/deep", "B", "b-1", "a"] {
            fs::create_dir_all(base.path().join(path)).unwrap();
        }
        fs::write(base.path().join("b/file"), "").unwrap();
        symlink("b", base.path().join("link")).unwrap();
        assert_eq!(names(base.path(), 0), ["B", "a", "b", "b-1", "link"]);
        assert_eq!(names(base.path(), 1), names(base.path(), 0));
        assert_eq!(names(base.path(), 2), ["B", "a", "b", "b/file", "b/x", "b-1", "link"]);
        assert_eq!(names(base.path(), 9), ["B", "a", "b", "b/file", "b/x", "b/x/deep", "b-1", "link"]);
        assert_eq!(names(&base.path().join("link"), 1), ["file", "x"]);
    }

    #[test]
    fn names_that_are_not_text_are_shown_with_replacements() {
        let base = tempfile::tempdir().unwrap();
        fs::write(base.path().join(OsString::from_vec(b"a\xffb".to_vec())), "").unwrap();
        assert_eq!(names(base.path(), 1), ["a\u{fffd}b"]);
    }

    #[test]
    fn what_cannot_be_listed_says_why() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        fs::write(at("file"), "").unwrap();
        symlink("loop", at("loop")).unwrap();
        symlink("nowhere", at("broken")).unwrap();
        let code = |name: &str| list(&at(name), 1).unwrap_err().code;
        assert_eq!(code("missing"), Code::NotFound);
        assert_eq!(code("broken"), Code::NotFound);
        assert_eq!(code("file"), Code::InvalidArgument);
        assert_eq!(code("loop"), Code::FailedPrecondition);
        assert_eq!(code("file/x"), Code::Internal);
    }
}
