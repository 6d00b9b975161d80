//! User metadata of files, kept in extended attributes `user.e2b.<key>` (contract: envd, sections 3.1 and 4).

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

/// Prefix of each key in the name of the attribute.
const NAMESPACE: &str = "user.e2b.";
/// Limit of Linux on the list of names and on a value, in bytes (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
const MAX_ATTRIBUTE: usize = 64 << 10;
/// First buffer size, enough for nearly all files, in bytes.
const FIRST_BUFFER: usize = 1024;

/// The keys, without prefix, and values.
pub type Metadata = BTreeMap<String, String>;

/// Reads the metadata of the entry at `path`, without following links. Unreadable metadata counts as missing.
pub fn read(path: &Path) -> Metadata {
    collect(
        |buffer| rustix::fs::llistxattr(path, buffer),
        |name, buffer| rustix::fs::lgetxattr(path, name, buffer),
    )
}

/// Reads the metadata of an open file.
pub fn read_open(file: &File) -> Metadata {
    collect(
        |buffer| rustix::fs::flistxattr(file, buffer),
        |name, buffer| rustix::fs::fgetxattr(file, name, buffer),
    )
}

/// Makes `wanted` the whole metadata of an open file. A file system without attributes silently keeps none.
pub fn replace(file: &File, wanted: &Metadata) -> io::Result<()> {
    for name in names(|buffer| rustix::fs::flistxattr(file, buffer)) {
        let key = name.to_str().ok().and_then(|n| n.strip_prefix(NAMESPACE));
        if key.is_some_and(|key| !wanted.contains_key(key)) {
            ignore_unsupported(rustix::fs::fremovexattr(file, &*name))?;
        }
    }
    for (key, value) in wanted {
        let name = format!("{NAMESPACE}{key}");
        ignore_unsupported(rustix::fs::fsetxattr(file, name, value.as_bytes(), XattrFlags::empty()))?;
    }
    Ok(())
}

fn ignore_unsupported(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NODATA) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn collect(
    list: impl Fn(&mut [u8]) -> rustix::io::Result<usize>,
    get: impl Fn(&CStr, &mut [u8]) -> rustix::io::Result<usize>,
) -> Metadata {
    let mut metadata = Metadata::new();
    for name in names(list) {
        let Some(key) = name.to_str().ok().and_then(|n| n.strip_prefix(NAMESPACE)) else { continue };
        let value = sized(|buffer| get(&name, buffer)).and_then(|value| String::from_utf8(value).ok());
        if let Some(value) = value {
            metadata.insert(key.to_owned(), value);
        }
    }
    metadata
}

fn names(list: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> Vec<CString> {
    let Some(listed) = sized(list) else { return Vec::new() };
    // The kernel ends each name with a zero byte.
    let names = listed.split(|byte| *byte == 0).filter(|name| name.starts_with(NAMESPACE.as_bytes()));
    names.filter_map(|name| CString::new(name).ok()).collect()
}

/// Calls `read` with a buffer that is large enough; `None` when it fails.
fn sized(read: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> Option<Vec<u8>> {
    for size in [FIRST_BUFFER, MAX_ATTRIBUTE] {
        let mut buffer = vec![0; size];
        match read(&mut buffer) {
            Ok(length) => {
                buffer.truncate(length);
                return Some(buffer);
            }
            Err(Errno::RANGE) => {}
            Err(_) => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacing_leaves_only_what_is_wanted() {
        // Not in memory: tmpfs has user attributes only on newer kernels.
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = directory.path().join("file");
        let file = File::create(&path).unwrap();
        let set = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect::<Metadata>()
        };
        let long = "v".repeat(2000);
        for wanted in [set(&[("a", "1"), ("b", &long)]), set(&[("b", "2"), ("c", "")]), set(&[])] {
            replace(&file, &wanted).unwrap();
            assert_eq!(read_open(&file), wanted);
            assert_eq!(read(&path), wanted);
        }
    }

    #[test]
    fn what_is_missing_has_no_metadata() {
        assert!(read(Path::new("/nonexistent")).is_empty());
    }
}
