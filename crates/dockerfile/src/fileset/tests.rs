use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::context::Context;
use crate::ignore::Ignore;
use crate::plan::{Copy, Origin, Unpack};

fn copy(destination: &str) -> Copy {
    Copy {
        from: Origin::Context,
        sources: Vec::new(),
        destination: destination.to_owned(),
        owner: None,
        mode: None,
        exclude: Vec::new(),
        parents: false,
        unpack: Unpack::Never,
        checksum: None,
    }
}

/// The files of the contract's test vectors.
fn files() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str, mode: u32| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    };
    write("a.txt", "hello\n", 0o644);
    write("dir/run.sh", "#!/bin/sh\n", 0o755);
    write("dir/empty", "", 0o644);
    fs::set_permissions(dir.path().join("dir"), Permissions::from_mode(0o755)).unwrap();
    symlink("a.txt", dir.path().join("ln.txt")).unwrap();
    symlink("../a.txt", dir.path().join("dir/link")).unwrap();
    dir
}

fn set(dir: &tempfile::TempDir, source: &str, destination: &str) -> FileSet {
    let context = Context::new(dir.path(), Ignore::default()).unwrap();
    FileSet::new(context.select(&copy(destination), source).unwrap(), destination)
}

#[test]
fn hashes_are_those_of_the_python_sdk() {
    let dir = files();
    for (source, destination, hash) in [
        ("a.txt", "/app/a.txt", "dcad0f8a42d2a6616fc6eb28547760d9c39e1401972aba136a910357918607a7"),
        // Docker follows the link that a source names, as `resolveSymlinks` does.
        ("ln.txt", "/app/l", "c5751179c9690c2b6d20d821175660a444e34cb9207b98498121d6c341c3c61b"),
        ("dir/*.sh", "/x/", "0d4bca60c449fdb7eaab813b1375242a5d933b61512ba11e8803bd20d17da1d3"),
        ("dir", "/app/dir", "6b5e9bb40f3cc0e5f36dbd1e5cdf130f3638545e1b23d89049a191a673bb546b"),
    ] {
        assert_eq!(set(&dir, source, destination).hash().unwrap(), hash, "{source}");
    }
    let link = Entry {
        mode: 0o120_777,
        content: Content::Link("a.txt".into()),
        ..Entry::inline("ln.txt".into(), String::new())
    };
    let kept = FileSet {
        source: "ln.txt".into(),
        destination: "/app/l".into(),
        content: Upload::Entries(vec![link]),
    };
    assert_eq!(kept.hash().unwrap(), "5d6e645ab70c5cb6c7bc4fcf41121529ee6a5fcc2306f9d643cd66ef00436d2d");
}

fn listed(file: File) -> Vec<(String, EntryType, u32, String)> {
    let mut archive = tar::Archive::new(GzDecoder::new(file));
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        if let Some(target) = entry.link_name().unwrap() {
            text = target.to_string_lossy().into_owned();
        }
        let header = entry.header();
        let path = entry.path().unwrap().to_string_lossy().into_owned();
        (path, header.entry_type(), header.mode().unwrap(), text)
    });
    entries.collect()
}

#[test]
fn an_archive_has_directories_links_and_modes() {
    let dir = files();
    fs::write(dir.path().join(format!("dir/{}", "n".repeat(150))), "long").unwrap();
    let entries = listed(set(&dir, ".", "/app/").archive().unwrap());
    let find = |path: &str| entries.iter().find(|entry| entry.0 == path).cloned().unwrap();
    assert_eq!(find("dir/").1, EntryType::Directory);
    assert_eq!((find("dir/run.sh").2, find("dir/run.sh").3.as_str()), (0o755, "#!/bin/sh\n"));
    assert_eq!((find("dir/link").1, find("dir/link").3.as_str()), (EntryType::Symlink, "../a.txt"));
    assert_eq!(find(&format!("dir/{}", "n".repeat(150))).3, "long");
}

#[test]
fn a_file_that_shrinks_is_an_error() {
    let dir = files();
    let set = set(&dir, "a.txt", "/a");
    fs::write(dir.path().join("a.txt"), "h").unwrap();
    assert!(set.archive().unwrap_err().message.contains("became shorter"));
}

#[test]
fn only_archives_are_extracted() {
    let dir = files();
    let at = |name: &str| dir.path().join(name);
    let packed = set(&dir, "dir", "/x");
    fs::write(at("none"), "").unwrap();
    let mut tar_gz = packed.archive().unwrap();
    let mut plain = Vec::new();
    GzDecoder::new(tar_gz.try_clone().unwrap()).read_to_end(&mut plain).unwrap();
    fs::write(at("plain.tar"), &plain).unwrap();
    tar_gz.seek(SeekFrom::Start(0)).unwrap();
    io::copy(&mut tar_gz, &mut File::create(at("packed.tgz")).unwrap()).unwrap();
    let mut text = GzEncoder::new(File::create(at("text.gz")).unwrap(), Compression::default());
    text.write_all(&[b'x'; 2000]).unwrap();
    text.finish().unwrap();
    for (name, expected) in
        [("plain.tar", true), ("packed.tgz", true), ("text.gz", false), ("a.txt", false), ("none", false)]
    {
        assert_eq!(Archive::open(&at(name)).unwrap().is_some(), expected, "{name}");
    }
    let status = Command::new("xz").arg(at("plain.tar")).status();
    if status.is_ok_and(|status| status.success()) {
        let archive = Archive::open(&at("plain.tar.xz")).unwrap().unwrap();
        let set = FileSet::unpacked(archive, "/opt");
        assert_eq!((set.source.as_str(), set.destination.as_str()), (".", "/opt/"));
        let names: Vec<_> = listed(set.archive().unwrap()).into_iter().map(|entry| entry.0).collect();
        assert!(names.contains(&"dir/run.sh".to_owned()), "{names:?}");
        assert_eq!(set.hash().unwrap(), set.hash().unwrap());
    }
}
