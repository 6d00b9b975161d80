//! What entries of layers become.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use tar::EntryType;

use super::support::Tar;
use crate::oci::layer::{LayerError, Limits, Unpacker};

/// A tree that layers are unpacked into.
pub struct Target {
    pub directory: tempfile::TempDir,
    pub unpacker: Unpacker,
}

impl Target {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("tree");
        fs::create_dir(&root).unwrap();
        fs::write(directory.path().join("secret"), "outside").unwrap();
        let limits = Limits { bytes: 10 << 20, entries: 10_000 };
        Self { unpacker: Unpacker::new(&root, limits, Arc::default()).unwrap(), directory }
    }

    pub fn unpack(&mut self, layer: Tar) -> Result<(), LayerError> {
        self.unpacker.unpack(&layer.finish()[..], None)
    }

    /// A tree with these layers.
    pub fn with(layers: impl IntoIterator<Item = Tar>) -> Self {
        let mut target = Self::new();
        for layer in layers {
            target.unpack(layer).unwrap();
        }
        target.unpacker.finish().unwrap();
        target
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join("tree").join(path)
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    /// All paths of the tree, sorted.
    pub fn paths(&self) -> Vec<String> {
        fn walk(path: PathBuf, root: &PathBuf, found: &mut Vec<String>) {
            for entry in fs::read_dir(path).unwrap() {
                let entry = entry.unwrap();
                found.push(entry.path().strip_prefix(root).unwrap().display().to_string());
                if entry.file_type().unwrap().is_dir() {
                    walk(entry.path(), root, found);
                }
            }
        }
        let (root, mut found) = (self.path(""), Vec::new());
        walk(root.clone(), &root, &mut found);
        found.sort();
        found
    }
}

#[test]
fn attributes_are_kept() {
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let target = Target::with([Tar::new()
        .entry(EntryType::Directory, "./", b"", |header| header.set_mode(0o711))
        .entry(EntryType::Directory, "tmp/", b"", |header| header.set_mode(0o1777))
        .entry(EntryType::Regular, "tmp/su", b"x", |header| {
            header.set_mode(0o104_755);
            header.set_uid(1000);
            header.set_gid(65_535);
        })
        .pax(&[
            ("SCHILY.xattr.security.capability", &capability),
            ("SCHILY.xattr.user.a", b"b\nc"),
            ("mtime", b"1600000000.25"),
        ])
        .file("tmp/ping", "x")
        .pax(&[("SCHILY.xattr.trusted.overlay.opaque", b"y"), ("SCHILY.xattr.user.overlay.opaque", b"y")])
        .directory("tmp/plain")
        .entry(EntryType::Symlink, "tmp/link", b"", |header| {
            header.set_link_name("nowhere").unwrap();
            header.set_uid(7);
        })
        .hard_link("tmp/again", "tmp/su")
        .entry(EntryType::Fifo, "tmp/pipe", b"", |header| header.set_mode(0o620))]);
    let mode = |path: &str| fs::symlink_metadata(target.path(path)).unwrap().mode() & 0o7777;
    assert_eq!((mode(""), mode("tmp"), mode("tmp/su"), mode("tmp/pipe")), (0o711, 0o1777, 0o4755, 0o620));
    let su = fs::metadata(target.path("tmp/su")).unwrap();
    assert_eq!((su.uid(), su.gid(), su.nlink(), su.mtime()), (1000, 65_535, 2, 1_600_000_000));
    assert_eq!(fs::metadata(target.path("tmp/again")).unwrap().ino(), su.ino());
    assert_eq!(fs::symlink_metadata(target.path("tmp/link")).unwrap().uid(), 7);
    assert!(fs::symlink_metadata(target.path("tmp/pipe")).unwrap().file_type().is_fifo());
    assert_eq!(fs::metadata(target.path("tmp/ping")).unwrap().mtime_nsec(), 250_000_000);
    assert_eq!(fs::metadata(target.path("tmp")).unwrap().mtime(), 1_600_000_000);
    let attribute = |path: &str, name: &str| {
        let mut buffer = [0; 64];
        let length = rustix::fs::lgetxattr(target.path(path), name, &mut buffer).ok()?;
        Some(buffer[..length].to_vec())
    };
    assert_eq!(attribute("tmp/ping", "user.a").unwrap(), b"b\nc");
    assert_eq!(attribute("tmp/ping", "security.capability").unwrap(), capability);
    for name in ["trusted.overlay.opaque", "user.overlay.opaque"] {
        assert_eq!(attribute("tmp/plain", name), None);
    }
}

#[test]
fn long_names_are_read_in_both_forms() {
    let (long, other) = (format!("{}/file", "d".repeat(200)), format!("{}/other", "e".repeat(200)));
    let target = Target::with([Tar::new()
        .entry(EntryType::GNULongName, "././@LongLink", format!("{long}\0").as_bytes(), |_| {})
        .file("short", "gnu")
        .pax(&[("path", other.as_bytes())])
        .file("short", "pax")
        .entry(EntryType::GNULongLink, "././@LongLink", format!("{long}\0").as_bytes(), |_| {})
        .hard_link("link", "short")
        .pax(&[("linkpath", other.as_bytes())])
        .symlink("symlink", "short")]);
    assert_eq!(
        (target.read(&long), target.read(&other), target.read("link")),
        ("gnu".into(), "pax".into(), "gnu".into())
    );
    assert_eq!(fs::read_link(target.path("symlink")).unwrap().display().to_string(), other);
    assert!(!target.path("short").exists());
}

#[test]
fn the_last_entry_of_a_path_wins() {
    let target = Target::with([
        Tar::new()
            .file("a", "1")
            .file("a", "2")
            .directory("b")
            .file("b/c", "x")
            .file("b", "now a file")
            .file("d", "x")
            .directory("d")
            .file("d/e", "y"),
        Tar::new().symlink("a", "b").directory("b").file("/b/./absolute", "z"),
        Tar::new().file("a", "file again"),
    ]);
    assert_eq!(target.paths(), ["a", "b", "b/absolute", "d", "d/e"]);
    assert_eq!((target.read("a"), target.read("d/e")), ("file again".into(), "y".into()));
}

#[test]
fn a_directory_in_a_further_layer_keeps_its_entries_and_gets_new_attributes() {
    let target = Target::with([
        Tar::new().directory("a").file("a/b", "x"),
        Tar::new().entry(EntryType::Directory, "a", b"", |header| {
            header.set_mode(0o700);
            header.set_mtime(5);
        }),
        Tar::new().directory("c"),
    ]);
    let metadata = fs::metadata(target.path("a")).unwrap();
    assert_eq!((metadata.mode() & 0o7777, metadata.mtime()), (0o700, 5));
    assert_eq!(target.read("a/b"), "x");
}

#[test]
fn whiteouts_hide_what_layers_below_have() {
    let below = || {
        Tar::new()
            .directory("a")
            .file("a/x", "")
            .directory("a/d")
            .file("a/d/y", "")
            .file("f", "")
            .symlink("l", "a")
    };
    for (layer, expected) in [
        (Tar::new().file("a/.wh.x", "").file(".wh.f", ""), vec!["a", "a/d", "a/d/y", "l"]),
        (Tar::new().file(".wh.a", ""), vec!["f", "l"]),
        (Tar::new().file(".wh.l", ""), vec!["a", "a/d", "a/d/y", "a/x", "f"]),
        // An opaque directory, before and after what the same layer has in it.
        (Tar::new().file("a/.wh..wh..opq", "").file("a/new", ""), vec!["a", "a/new", "f", "l"]),
        (
            Tar::new().file("a/new", "").file("a/d/n", "").file("a/.wh..wh..opq", ""),
            vec!["a", "a/d", "a/d/n", "a/new", "f", "l"],
        ),
        (Tar::new().directory("a").directory("a/d").file("a/.wh..wh..opq", ""), vec!["a", "a/d", "f", "l"]),
        // Hidden more than once.
        (
            Tar::new()
                .file("a/.wh..wh..opq", "")
                .file("a/d/n", "")
                .file("a/.wh..wh..opq", "")
                .file("a/x", "")
                .file(".wh.a", "")
                .file("a/d/.wh..wh..opq", ""),
            vec!["a", "a/d", "a/d/n", "a/x", "f", "l"],
        ),
        // A whiteout and the same name in one layer.
        (Tar::new().file(".wh.f", "").file("f", "new"), vec!["a", "a/d", "a/d/y", "a/x", "f", "l"]),
        (Tar::new().file("f", "new").file(".wh.f", ""), vec!["a", "a/d", "a/d/y", "a/x", "f", "l"]),
        (Tar::new().file("a/new", "").file(".wh.a", ""), vec!["a", "a/new", "f", "l"]),
        // A hard link of this layer to a file below, whose other name is hidden.
        (Tar::new().hard_link("g", "f").file(".wh.f", ""), vec!["a", "a/d", "a/d/y", "a/x", "g", "l"]),
        // Through a link inside.
        (Tar::new().file("l/.wh.x", ""), vec!["a", "a/d", "a/d/y", "f", "l"]),
        // Nothing to hide, and notes of aufs.
        (
            Tar::new()
                .file("no/.wh.x", "")
                .file("no/.wh..wh..opq", "")
                .file(".wh..wh.plnk", "")
                .file(".wh..wh.aufs", ""),
            vec!["a", "a/d", "a/d/y", "a/x", "f", "l"],
        ),
    ] {
        assert_eq!(Target::with([below(), layer]).paths(), expected);
    }
}

#[test]
fn links_inside_lead_to_places_inside() {
    let target = Target::with([
        Tar::new()
            .directory("usr/lib")
            .symlink("lib", "usr/lib")
            .symlink("abs", "/usr/lib")
            .symlink("up", "../../../usr/lib"),
        Tar::new().file("lib/a", "1").file("abs/b", "2").file("up/c", "3").hard_link("d", "lib/a"),
    ]);
    assert_eq!(
        target.paths(),
        ["abs", "d", "lib", "up", "usr", "usr/lib", "usr/lib/a", "usr/lib/b", "usr/lib/c"]
    );
    assert_eq!(target.read("usr/lib/c"), "3");
}

#[test]
fn sparse_files_stay_sparse() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("sparse");
    let made = fs::File::create(&file).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&made, b"begin", 0).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&made, b"middle", 3 << 20).unwrap();
    made.set_len(6 << 20).unwrap();
    for arguments in [
        &["--format=gnu", "--sparse"][..],
        &["--format=pax", "--sparse", "--sparse-version=0.0"],
        &["--format=pax", "--sparse", "--sparse-version=0.1"],
        &["--format=pax", "--sparse", "--sparse-version=1.0"],
        &["--format=gnu"],
    ] {
        let output = Command::new("tar")
            .args(arguments)
            .args(["-cf", "-", "-C"])
            .arg(place.path())
            .arg("sparse")
            .output();
        let output = output.unwrap();
        assert!(output.status.success());
        let mut target = Target::new();
        target.unpacker.unpack(&output.stdout[..], None).unwrap();
        let metadata = fs::metadata(target.path("sparse")).unwrap();
        assert_eq!(metadata.len(), 6 << 20, "{arguments:?}");
        assert!(metadata.blocks() * 512 < 1 << 20, "{arguments:?}: {} blocks", metadata.blocks());
        assert!(fs::read(target.path("sparse")).unwrap() == fs::read(&file).unwrap(), "{arguments:?}");
    }
}

#[test]
fn an_archive_of_gnu_tar_comes_back_as_it_was() {
    let place = tempfile::tempdir().unwrap();
    let script = "mkdir -p a/b && echo x >a/b/c && ln a/b/c a/hard && ln -s b/c a/soft && chmod 2750 a/b && mkfifo a/p \
                  && chown 12:34 a/b/c && setfattr -n user.x -v y a/b/c 2>/dev/null; touch -d @1500000000.5 a/b a";
    assert!(Command::new("sh").args(["-c", script]).current_dir(place.path()).status().unwrap().success());
    for format in ["v7", "ustar", "gnu", "pax"] {
        let pack = Command::new("tar")
            .arg(format!("--format={format}"))
            .args(["-cf", "-", "a"])
            .current_dir(place.path())
            .output();
        let mut target = Target::new();
        let archive = pack.unwrap().stdout;
        if format == "v7" {
            // The oldest format has no pipes.
            assert!(!target.directory.path().as_os_str().is_empty());
        }
        target.unpacker.unpack(&archive[..], None).unwrap();
        target.unpacker.finish().unwrap();
        let look = |directory: &std::path::Path| {
            let list = "find a -not -type p -printf '%p %y %m %U %G %s %n %l %Ts\\n' | sed 's/^\\(a[^ ]* d [^ ]* [^ ]* [^ ]*\\) [0-9]*/\\1/' | sort";
            let output = Command::new("sh").args(["-c", list]).current_dir(directory).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        assert_eq!(look(&target.path("")), look(place.path()), "{format}");
    }
}
