//! Archives that come back as they were, and archives that are refused.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, XattrFlags, linkat, mkdirat, openat};
use sha2::{Digest, Sha256};
use tar::EntryType;

use crate::attributes::Owned;
use crate::member::{self, Records};
use crate::{Counts, Error, FORMAT, Manifest, Reader, Reading, Restored, Result, Subvolume, Writer, Written};

fn manifest() -> Manifest {
    Manifest {
        format: FORMAT,
        version: "0.1.0".into(),
        schema: 1,
        created_at: jiff::Timestamp::UNIX_EPOCH,
        counts: Counts::default(),
        subvolumes: [("pool/volumes/a".to_owned(), Subvolume::default())].into(),
    }
}

fn open(directory: &Path) -> OwnedFd {
    File::open(directory).unwrap().into()
}

fn write(tree: &Path, reading: Reading) -> (Vec<u8>, Written) {
    let mut writer = Writer::new(Vec::new(), &manifest(), 0).unwrap();
    for name in ["pool", "pool/volumes"] {
        writer.directory(name, 0o755).unwrap();
    }
    writer.tree("pool/volumes/a", open(tree), reading).unwrap();
    writer.finish().unwrap()
}

fn restore(archive: &[u8], into: &Path) -> Result<Restored> {
    let mut made = Vec::new();
    Reader::open(archive)?.restore(&open(into), &mut |name| {
        made.push(name.to_owned());
        std::fs::create_dir(into.join(name))
    })
}

#[test]
fn a_tree_comes_back_as_it_was() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = |name: &str| from.path().join(name);
    let long = "l".repeat(200);
    std::fs::create_dir_all(path("deep/er")).unwrap();
    std::fs::write(path("deep/er/first"), vec![7; 10_000]).unwrap();
    std::fs::write(path("deep/same"), vec![7; 10_000]).unwrap();
    std::fs::write(path(&long), "long").unwrap();
    std::fs::hard_link(path(&long), path("other name")).unwrap();
    symlink("/etc/passwd", path("link")).unwrap();
    rustix::fs::mknodat(open(from.path()), "pipe", rustix::fs::FileType::Fifo, 0o640.into(), 0).unwrap();
    let holes = File::create(path("holes")).unwrap();
    holes.write_all_at(b"begin", 4096).unwrap();
    holes.set_len(1 << 40).unwrap();
    std::fs::set_permissions(path("deep/same"), PermissionsExt::from_mode(0o4711)).unwrap();
    let old = std::time::UNIX_EPOCH + std::time::Duration::new(1, 5);
    File::open(path("deep")).unwrap().set_modified(old).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();

    let (archive, written) = write(from.path(), Reading::Frozen);
    assert_eq!(written.skipped, ["pool/volumes/a/socket: it is a socket"]);
    let restored = restore(&archive, to.path()).unwrap();
    assert_eq!(restored.sha256, written.sha256);
    let back = |name: &str| to.path().join("pool/volumes/a").join(name);
    let meta = |name: &str| std::fs::symlink_metadata(back(name)).unwrap();
    assert_eq!(std::fs::read(back("deep/same")).unwrap(), vec![7; 10_000]);
    assert_eq!(meta("deep/same").mode() & 0o7777, 0o4711);
    assert_ne!(meta("deep/same").ino(), meta("deep/er/first").ino());
    assert_eq!(meta("deep").modified().unwrap(), old);
    assert_eq!((meta(&long).nlink(), meta(&long).ino()), (2, meta("other name").ino()));
    assert_eq!(std::fs::read_link(back("link")).unwrap(), Path::new("/etc/passwd"));
    assert_eq!(meta("pipe").mode(), path("pipe").metadata().unwrap().mode());
    assert_eq!((meta("holes").len(), meta("holes").blocks() < 100), (1 << 40, true));
    let mut begin = [0; 5];
    File::open(back("holes")).unwrap().read_exact_at(&mut begin, 4096).unwrap();
    assert_eq!(&begin, b"begin");
    assert!(!back("socket").exists());
    // The same content is there once.
    let (_, twice) = write(from.path(), Reading::Live);
    assert!(twice.bytes >= written.bytes + 9_000, "{} {}", twice.bytes, written.bytes);
}

#[test]
fn whatever_is_changed_is_noticed() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut state = 1_u32;
    let random = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    let random: Vec<u8> = random.take(5000).collect();
    std::fs::write(from.path().join("file"), random).unwrap();
    let (archive, _) = write(from.path(), Reading::Frozen);
    let again = |archive: &[u8]| {
        let into = tempfile::tempdir_in(to.path()).unwrap();
        restore(archive, into.path())
    };
    again(&archive).unwrap();
    let content = zstd::decode_all(&archive[..]).unwrap();
    // Zstandard has several spellings of one content: a match may refer to any earlier zeros.
    let spelled_otherwise =
        |changed: &[u8]| zstd::decode_all(changed).is_ok_and(|decoded| decoded == content);
    let mut noticed = 0;
    for at in (8..archive.len()).step_by(7) {
        let mut changed = archive.clone();
        changed[at] ^= 1;
        let is_refused = again(&changed).is_err();
        assert!(is_refused || spelled_otherwise(&changed), "byte {at} of {}", archive.len());
        noticed += usize::from(is_refused);
    }
    assert!(noticed > 700, "{noticed}");
    for length in [0, 3, 100, archive.len() / 2, archive.len() - 1] {
        assert!(again(&archive[..length]).is_err(), "{length}");
    }
    assert!(matches!(again(b"something else"), Err(Error::NotABackup(_))));
}

#[test]
fn a_later_format_is_refused() {
    let later = Manifest { format: FORMAT + 1, version: "9.0.0".into(), ..manifest() };
    let (archive, _) = Writer::new(Vec::new(), &later, 0).unwrap().finish().unwrap();
    let error = Reader::open(&archive[..]).unwrap_err();
    assert!(matches!(&error, Error::NewerFormat { version, .. } if version == "9.0.0"), "{error}");
}

/// A member of an archive that somebody else has written.
struct Forged(&'static str, EntryType, &'static str);

fn forged(members: &[Forged]) -> Vec<u8> {
    let mut tar = Vec::new();
    let owned = Owned { uid: 0, gid: 0, mode: 0o755, modified: (0, 0) };
    let add = |tar: &mut Vec<u8>, name: &str, kind: EntryType, records: Records, content: &[u8]| {
        let mut put = |name: &[u8], kind: EntryType, content: &[u8]| {
            let mut header = member::header(name, kind, &owned, content.len() as u64);
            header.set_cksum();
            tar.extend_from_slice(header.as_bytes());
            tar.extend_from_slice(content);
            tar.resize(tar.len().next_multiple_of(512), 0);
        };
        let records = records.encode();
        if !records.is_empty() {
            put(b"pax", EntryType::XHeader, &records);
        }
        put(name.as_bytes(), kind, content);
    };
    let text = serde_json::to_vec(&manifest()).unwrap();
    add(&mut tar, member::MANIFEST, EntryType::Regular, Records::default(), &text);
    for Forged(name, kind, link) in members {
        let mut records = Records { link: Some(link.as_bytes().to_vec()), ..Records::default() };
        if *kind == EntryType::Regular && !link.is_empty() {
            records = Records { copy: records.link, ..Records::default() };
        }
        let content: &[u8] = if *kind == EntryType::Regular && link.is_empty() { b"evil" } else { b"" };
        add(&mut tar, name, *kind, records, content);
    }
    let digest = format!("{:x}", Sha256::digest(&tar));
    add(&mut tar, member::DIGEST, EntryType::Regular, Records::default(), digest.as_bytes());
    let mut out = zstd::Encoder::new(Vec::new(), 1).unwrap();
    out.write_all(&tar).unwrap();
    out.finish().unwrap()
}

#[test]
fn names_and_links_lead_nowhere_else() {
    const DIR: EntryType = EntryType::Directory;
    const FILE: EntryType = EntryType::Regular;
    const LINK: EntryType = EntryType::Symlink;
    const HARD: EntryType = EntryType::Link;
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "secret").unwrap();
    let into = outside.path().join("into");
    let inside = [Forged("pool", DIR, ""), Forged("pool/l", LINK, "../.."), Forged("pool/f", FILE, "")];
    for (what, members) in [
        ("absolute", vec![Forged("/evil", FILE, "")]),
        ("above", vec![Forged("../evil", FILE, "")]),
        ("above, later", vec![Forged("pool", DIR, ""), Forged("pool/../../evil", FILE, "")]),
        (
            "through a link",
            vec![Forged("pool", DIR, ""), Forged("pool/l", LINK, "../.."), Forged("pool/l/evil", FILE, "")],
        ),
        (
            "a directory over a link",
            vec![Forged("pool", DIR, ""), Forged("pool/l", LINK, "../.."), Forged("pool/l", DIR, "")],
        ),
        (
            "a file over a link",
            vec![Forged("pool", DIR, ""), Forged("pool/l", LINK, "../../evil"), Forged("pool/l", FILE, "")],
        ),
        (
            "a file twice",
            vec![Forged("pool", DIR, ""), Forged("pool/f", FILE, ""), Forged("pool/f", FILE, "")],
        ),
        ("a link at the top", vec![Forged("server", LINK, "..")]),
        ("a device at the top", vec![Forged("disk", EntryType::Block, "")]),
        ("a hard link to above", vec![Forged("pool", DIR, ""), Forged("pool/h", HARD, "../secret")]),
        (
            "a hard link through a link",
            vec![
                Forged("pool", DIR, ""),
                Forged("pool/l", LINK, "../.."),
                Forged("pool/h", HARD, "pool/l/secret"),
            ],
        ),
        ("a copy from above", vec![Forged("pool", DIR, ""), Forged("pool/c", FILE, "../secret")]),
        (
            "a copy through a link",
            vec![
                Forged("pool", DIR, ""),
                Forged("pool/l", LINK, "../../secret"),
                Forged("pool/c", FILE, "pool/l"),
            ],
        ),
        ("out of order", vec![Forged("pool/f", FILE, "")]),
        ("an unknown kind", vec![Forged("pool", DIR, ""), Forged("pool/x", EntryType::Continuous, "")]),
    ] {
        std::fs::create_dir(&into).unwrap();
        let refused = restore(&forged(&members), &into);
        assert!(refused.is_err(), "{what}");
        assert!(!outside.path().join("evil").exists() && !Path::new("/evil").exists(), "{what}");
        assert!(
            !into.join("pool/c").exists() || std::fs::read(into.join("pool/c")).unwrap().is_empty(),
            "{what}"
        );
        std::fs::remove_dir_all(&into).unwrap();
    }
    // The same members are fine where they belong.
    std::fs::create_dir(&into).unwrap();
    restore(&forged(&inside), &into).unwrap();
}

/// Directories below each other, deeper than a path may be long; returns the one at a depth.
fn deep(root: &Path, depth: usize, files_at: usize) -> OwnedFd {
    let name = "d".repeat(250);
    let (mut directory, mut found) = (open(root), open(root));
    for level in 1..=depth {
        mkdirat(&directory, &*name, Mode::RWXU).unwrap();
        directory = openat(&directory, &*name, OFlags::DIRECTORY, Mode::empty()).unwrap();
        if level == files_at {
            found = directory.try_clone().unwrap();
        }
    }
    found
}

#[test]
fn files_whose_names_are_longer_than_a_path_come_back() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let directory = deep(from.path(), 20, 17);
    for file in ["first", "same"] {
        let file = openat(&directory, file, OFlags::WRONLY | OFlags::CREATE, Mode::RWXU).unwrap();
        File::from(file).write_all(&[7; 10_000]).unwrap();
    }
    linkat(&directory, "first", &directory, "linked", AtFlags::empty()).unwrap();
    let (archive, written) = write(from.path(), Reading::Frozen);
    // Nothing that a sandbox leaves may grow the archive without end.
    assert!(
        matches!(&*written.skipped, [one] if one.ends_with("…: its name is too long")),
        "{:?}",
        written.skipped
    );
    restore(&archive, to.path()).unwrap();
    let mut directory = open(&to.path().join("pool/volumes/a"));
    for _ in 0..17 {
        directory = openat(&directory, "d".repeat(250), OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    let open = |name| File::from(openat(&directory, name, OFlags::RDONLY, Mode::empty()).unwrap());
    let mut content = Vec::new();
    open("same").read_to_end(&mut content).unwrap();
    assert_eq!(content, vec![7; 10_000]);
    assert_eq!(open("first").metadata().unwrap().ino(), open("linked").metadata().unwrap().ino());
}

#[test]
fn names_that_are_shown_control_no_terminal() {
    let from = tempfile::tempdir().unwrap();
    let name = from.path().join("\u{1b}[2J\u{9b}1m");
    let _socket = std::os::unix::net::UnixListener::bind(name).unwrap();
    let (_, written) = write(from.path(), Reading::Frozen);
    assert_eq!(written.skipped, ["pool/volumes/a/\u{fffd}[2J\u{fffd}1m: it is a socket"]);
}

#[test]
fn a_file_with_more_attributes_than_can_be_listed_is_kept_without_them() {
    // File systems of disks may have less room for attributes.
    let Ok(from) = tempfile::tempdir_in("/dev/shm") else { return };
    let path = from.path().join("file");
    std::fs::write(&path, "content").unwrap();
    for number in 0..400 {
        let name = format!("user.{}{number}", "a".repeat(200));
        if rustix::fs::setxattr(&path, name, b"", XattrFlags::empty()).is_err() {
            return;
        }
    }
    let to = tempfile::tempdir().unwrap();
    let (archive, written) = write(from.path(), Reading::Frozen);
    assert_eq!(written.skipped, ["pool/volumes/a/file: only its extended attributes, which are too large"]);
    restore(&archive, to.path()).unwrap();
    assert_eq!(std::fs::read(to.path().join("pool/volumes/a/file")).unwrap(), b"content");
}
