//! The description of a directory entry that clients get (contract: envd, section 3.1).

use std::collections::HashMap;
use std::fs::{self, FileType as StdFileType, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sandcove_wire::envd::Timestamp;
use sandcove_wire::envd::filesystem::{EntryInfo, FileType};

use super::{metadata, permissions};
use crate::account::Accounts;

/// Describes entries. Caches the names of owners, so it should live for one listing and no longer.
pub struct Describer {
    accounts: Accounts,
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl Describer {
    /// Makes a describer with the present accounts.
    pub fn load() -> io::Result<Self> {
        Ok(Self { accounts: Accounts::load()?, users: HashMap::new(), groups: HashMap::new() })
    }

    /// Describes the entry at `path`, which is shown as given. A link is not followed, but its target gives type and mode.
    pub fn describe(&mut self, path: &Path) -> io::Result<EntryInfo> {
        let own = fs::symlink_metadata(path)?;
        let link = own.file_type().is_symlink().then(|| Link::resolve(path));
        let target = link.as_ref().map_or(Some(&own), |l| l.target.as_ref());
        Ok(EntryInfo {
            name: base_name(path),
            r#type: target.map_or(FileType::Unspecified, |t| kind(t.file_type())).into(),
            path: path.to_string_lossy().into_owned(),
            size: i64::try_from(size(&own)).unwrap_or(i64::MAX),
            mode: target.map_or(0, |t| t.mode() & 0o777),
            permissions: permissions::text(own.mode()),
            owner: self.user_name(own.uid()),
            group: self.group_name(own.gid()),
            modified_time: Some(timestamp(own.mtime(), own.mtime_nsec())),
            is_symlink: link.is_some(),
            symlink_target: link.map(|l| l.path),
            // Linux has user attributes only on files and directories.
            metadata: if own.is_file() || own.is_dir() {
                metadata::read(path)
            } else {
                metadata::Metadata::new()
            },
        })
    }

    fn user_name(&mut self, uid: u32) -> String {
        self.users.entry(uid).or_insert_with(|| self.accounts.user_name(uid)).clone()
    }

    fn group_name(&mut self, gid: u32) -> String {
        self.groups.entry(gid).or_insert_with(|| self.accounts.group_name(gid)).clone()
    }
}

/// The size of an entry. A directory has the size it would have on ext4, whole blocks and at least one: some file systems that
/// pools lie on report 0 (contract: envd, section 3.1).
fn size(own: &Metadata) -> u64 {
    const BLOCK: u64 = 4096;
    if own.is_dir() { own.size().max(1).next_multiple_of(BLOCK) } else { own.size() }
}

/// The last component of `path`, `.` and `..` included; `/` for the root.
pub fn base_name(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|b| *b != b'/').map_or(0, |last| last + 1);
    let start = bytes[..end].iter().rposition(|b| *b == b'/').map_or(0, |slash| slash + 1);
    match &bytes[start..end] {
        [] => "/".to_owned(),
        name => String::from_utf8_lossy(name).into_owned(),
    }
}

/// Converts a modification time to its form on the wire.
fn timestamp(seconds: i64, nanoseconds: i64) -> Timestamp {
    Timestamp { seconds, nanos: i32::try_from(nanoseconds).unwrap_or(0) }
}

struct Link {
    path: String,
    target: Option<Metadata>,
}

impl Link {
    /// Follows the link at `path` to its end. A dangling link is shown as its own target.
    fn resolve(path: &Path) -> Self {
        let end = fs::canonicalize(path);
        let target = end.as_ref().ok().and_then(|end| fs::metadata(end).ok());
        let shown = end.as_deref().unwrap_or(path);
        Self { path: shown.to_string_lossy().into_owned(), target }
    }
}

fn kind(kind: StdFileType) -> FileType {
    if kind.is_file() {
        FileType::File
    } else if kind.is_dir() {
        FileType::Directory
    } else {
        FileType::Unspecified
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    fn describe(path: &Path) -> EntryInfo {
        Describer::load().unwrap().describe(path).unwrap()
    }

    #[test]
    fn links_report_the_kind_and_mode_of_their_target() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("file"), "12345").unwrap();
        fs::set_permissions(at("file"), fs::Permissions::from_mode(0o640)).unwrap();
        symlink("file", at("link")).unwrap();
        let entry = describe(&at("link"));
        assert_eq!((entry.r#type(), entry.mode, entry.is_symlink), (FileType::File, 0o640, true));
        assert_eq!(entry.permissions, "Lrwxrwxrwx");
        assert_eq!(entry.size, 4);
        let target = fs::canonicalize(at("file")).unwrap();
        assert_eq!(entry.symlink_target.as_deref(), target.to_str());
    }

    #[test]
    fn a_link_to_nowhere_is_its_own_target() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        symlink("missing", at("broken")).unwrap();
        symlink("loop", at("loop")).unwrap();
        for name in ["broken", "loop"] {
            let entry = describe(&at(name));
            assert_eq!((entry.r#type(), entry.mode), (FileType::Unspecified, 0));
            assert_eq!(entry.symlink_target.as_deref(), at(name).to_str());
        }
    }

    #[test]
    fn directories_have_the_size_of_whole_blocks() {
        // An empty directory is 40 bytes here, 0 on btrfs, 4096 on ext4.
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        assert_eq!(describe(directory.path()).size, 4096);
        // Always 0 as the kernel reports it.
        assert_eq!(describe(Path::new("/proc/self")).size, 0, "a link keeps its own");
        assert_eq!(describe(Path::new("/proc/sys")).size, 4096);
    }

    #[test]
    fn what_is_neither_file_nor_directory_has_no_type() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let _listener = UnixListener::bind(&path).unwrap();
        let entry = describe(&path);
        assert_eq!(entry.r#type(), FileType::Unspecified);
        assert!(entry.permissions.starts_with('S'));
        assert_eq!(entry.symlink_target, None);
    }

    #[test]
    fn base_names_ignore_trailing_slashes() {
        for (path, name) in
            [("/", "/"), ("//", "/"), ("/a/b", "b"), ("/a/b//", "b"), ("/a/..", ".."), ("a", "a")]
        {
            assert_eq!(base_name(Path::new(path)), name, "{path}");
        }
    }
}
