//! Layers that are made to do harm.

use std::fs;
use std::io::Read;

use tar::EntryType;

use super::entries::Target;
use super::support::{Tar, gzip};
use crate::oci::layer::{LayerError, Limit, Limits, Unpacker};

fn refused(layer: Tar) -> String {
    let mut target = Target::new();
    let error = target.unpack(layer).unwrap_err();
    assert_eq!(fs::read_to_string(target.directory.path().join("secret")).unwrap(), "outside");
    assert_eq!(fs::read_dir(target.directory.path()).unwrap().count(), 2);
    match error {
        LayerError::Invalid(reason) => reason,
        other => format!("{other:?}"),
    }
}

#[test]
fn names_with_two_dots_are_refused() {
    for path in ["..", "../secret", "a/../../secret", "/../secret", "a/..", "./../secret"] {
        assert!(refused(Tar::new().file(path, "x")).contains("has '..'"), "{path}");
        assert!(refused(Tar::new().directory("a").hard_link("b", path)).contains("has '..'"), "{path}");
    }
    assert!(refused(Tar::new().pax(&[("path", b"../secret")]).file("a", "x")).contains("has '..'"));
    for path in [".wh.", ".wh..", ".wh..."] {
        let result = Target::new().unpack(Tar::new().file(path, ""));
        assert!(path == ".wh.." || result.is_err(), "{path}");
    }
}

#[test]
fn links_do_not_lead_out() {
    let mut target = Target::new();
    let outside = target.directory.path().display().to_string();
    let links = || {
        Tar::new()
            .symlink("up", "..")
            .symlink("host", &outside)
            .symlink("file", "../secret")
            .symlink("root", "/")
            .symlink("process", "/proc/self/cwd")
            .symlink("loop", "loop")
    };
    // Where a link leads nowhere inside, the entry is an error; where it leads to the root of the tree, that is used.
    target.unpack(links().file("up/secret", "x").file("root/secret", "y").file("file", "z")).unwrap();
    assert!(target.paths().contains(&"secret".to_owned()));
    for path in ["host/secret", "process/secret", "loop/secret", "up/host/secret"] {
        assert!(target.unpack(links().file(path, "x")).is_err(), "{path}");
        assert!(target.unpack(links().hard_link("hard", path)).is_err(), "{path}");
        assert!(target.unpack(links().directory(path)).is_err(), "{path}");
    }
    // A whiteout at the end of a link removes the link, and one through a link nothing outside.
    target
        .unpack(links().file("host/.wh.secret", "").file("host/.wh..wh..opq", "").file(".wh.file", ""))
        .unwrap();
    // A hard link to a link is one to the link.
    target.unpack(links().hard_link("hard", "file")).unwrap();
    assert!(fs::symlink_metadata(target.path("hard")).unwrap().is_symlink());
    // What is written to it replaces it.
    target.unpack(Tar::new().file("hard", "inside")).unwrap();
    assert_eq!(fs::read_to_string(target.directory.path().join("secret")).unwrap(), "outside");
    target.unpacker.finish().unwrap();
}

#[test]
fn devices_are_left_out_of_dev_and_refused_elsewhere() {
    for kind in [EntryType::Char, EntryType::Block] {
        let target = Target::with([Tar::new().directory("dev").entry(kind, "dev/null", b"", |_| {})]);
        assert_eq!(target.paths(), ["dev"]);
        let error = refused(Tar::new().entry(kind, "root/disk", b"", |_| {}));
        assert!(error.contains("'root/disk' is a device node"), "{error}");
        // An overlay takes a device with the number 0 for a whiteout.
        assert!(
            refused(Tar::new().symlink("dev", "etc").entry(kind, "etc/dev", b"", |_| {}))
                .contains("device node")
        );
    }
}

#[test]
fn ids_that_a_sandbox_does_not_have_are_refused() {
    let owned = |uid, gid| {
        Tar::new().entry(EntryType::Regular, "f", b"", |header| {
            header.set_uid(uid);
            header.set_gid(gid);
        })
    };
    Target::with([owned(65_535, 65_535)]);
    for (uid, gid) in [(65_536, 0), (0, 65_536), (1 << 32, 0), (u64::MAX >> 2, 0)] {
        let error = refused(owned(uid, gid));
        assert!(error.contains("ids up to 65535 are supported"), "{error}");
    }
    assert!(refused(Tar::new().pax(&[("uid", b"4294967296")]).file("f", "")).contains("ids up to"));
}

#[test]
fn damaged_archives_are_errors() {
    let whole = Tar::new().file("a", &"x".repeat(2000)).file("b", "y").finish();
    for end in [100, 511, 513, 1000, 2500, 3000, 3100] {
        let mut target = Target::new();
        assert!(target.unpacker.unpack(&whole[..end], None).is_err(), "{end}");
    }
    let mut checksum = whole.clone();
    checksum[0] ^= 1;
    assert!(Target::new().unpacker.unpack(&checksum[..], None).is_err());
    assert!(Target::new().unpacker.unpack(&gzip(&whole)[..100], None).is_err());
    for (layer, expected) in [
        (Tar::new().entry(EntryType::new(b'Z'), "a", b"", |_| {}), "unknown type 0x5a"),
        (Tar::new().pax(&[("size", b"-1")]).file("a", ""), "wrong value of 'size'"),
        (Tar::new().pax(&[("size", b"18446744073709551615")]).file("a", ""), "too large"),
        (Tar::new().raw(b"").pax(&[("uid", b"x")]).file("a", ""), "wrong value of 'uid'"),
        (Tar::new().symlink("a", ""), "is not a path"),
        (Tar::new().hard_link("a", "missing"), "leads nowhere"),
        (Tar::new().directory("d").hard_link("a", "d"), "cannot be created"),
        (Tar::new().file("f", "").file("f/g", ""), "is not a directory"),
        (Tar::new().symlink("s", "missing").file("s/g", ""), "cannot be created"),
        (Tar::new().pax(&[("path", b"a\0b")]).file("a", ""), "zero byte"),
        (Tar::new().file("", ""), "empty"),
        (Tar::new().pax(&[("path", b"a")]), "ends early"),
        (Tar::new().entry(EntryType::Regular, "/", b"", |_| {}).file("./.", "x"), "cannot be created"),
    ] {
        let error = refused(layer);
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn names_headers_and_depth_are_bounded() {
    let deep = |count: usize| vec!["d"; count].join("/");
    let with_path = |path: &str| Tar::new().pax(&[("path", path.as_bytes())]).directory("x");
    Target::with([with_path(&deep(256))]);
    for (path, expected) in [
        (deep(300), "more than 256 directories"),
        (deep(3000), "longer than 4095 bytes"),
        ("a".repeat(256), "more than 255 bytes"),
    ] {
        let error = refused(with_path(&path));
        assert!(error.contains(expected), "{error}");
    }
    // Links make paths short; the tree is as deep all the same.
    let mut target = Target::new();
    let step = deep(200);
    target.unpack(with_path(&step)).unwrap();
    target.unpack(Tar::new().pax(&[("linkpath", step.as_bytes())]).symlink("far", "x")).unwrap();
    let error = target.unpack(with_path(&format!("far/{}", deep(100)))).unwrap_err();
    assert!(format!("{error:?}").contains("more than 256 directories"), "{error:?}");

    let huge = |kind| {
        let claim = Tar::new().entry(kind, "x", b"", |header| header.set_size(8 << 30));
        refused(claim.raw(&[b'a'; 4096]))
    };
    for kind in [EntryType::GNULongName, EntryType::GNULongLink, EntryType::XHeader, EntryType::XGlobalHeader]
    {
        assert!(huge(kind).contains("1 MiB is supported"));
    }
    let many = (0..20).fold(Tar::new(), |layer, _| layer.pax(&[("path", b"a")])).file("a", "");
    assert!(refused(many).contains("more than 16 extended headers"));
}

#[test]
fn sizes_and_numbers_are_limited() {
    let error = refused(Tar::new().entry(EntryType::Regular, "a", b"", |header| header.set_size(1 << 40)));
    assert!(error.starts_with("TooLarge"), "{error}");
    // A small archive with much in it.
    let zeros = std::io::repeat(0).take(20 << 20);
    let mut data =
        Tar::new().entry(EntryType::Regular, "a", b"", |header| header.set_size(20 << 20)).finish();
    data.truncate(512);
    let error = Target::new().unpacker.unpack(std::io::Cursor::new(data).chain(zeros), None).unwrap_err();
    assert!(matches!(error, LayerError::TooLarge(..)), "{error:?}");
    // Sparse files may be no larger, either.
    let sparse =
        Tar::new().pax(&[("GNU.sparse.size", b"99999999999"), ("GNU.sparse.map", b"")]).file("a", "");
    assert!(refused(sparse).starts_with("TooLarge"));

    let many = |count: u32| (0..count).fold(Tar::new(), |layer, number| layer.directory(&number.to_string()));
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits { bytes: 0, entries: 10 };
    let mut unpacker = Unpacker::new(directory.path(), limits, Default::default()).unwrap();
    unpacker.unpack(&many(6).finish()[..], None).unwrap();
    let error = unpacker.unpack(&many(5).finish()[..], None).unwrap_err();
    assert!(matches!(error, LayerError::TooLarge(_, Limit::Entries(10))), "{error:?}");
}

#[test]
fn wrong_digests_and_rubbish_after_the_end_are_errors() {
    let layer = Tar::new().file("a", "b").finish();
    let digest = crate::oci::digest::Digest::of(&layer);
    Target::new().unpacker.unpack(&layer[..], Some(&digest)).unwrap();
    let longer = [&layer[..], b"rubbish"].concat();
    assert!(Target::new().unpacker.unpack(&longer[..], Some(&digest)).is_err());
    assert!(Target::new().unpacker.unpack(&gzip(&longer)[..], Some(&digest)).is_err());
}
