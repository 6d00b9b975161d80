use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::*;

struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for part in ["content", "work"] {
            std::fs::create_dir(directory.path().join(part)).unwrap();
        }
        std::fs::write(directory.path().join("host"), "host secret").unwrap();
        Self { directory }
    }

    fn volume(&self) -> Volume {
        Volume::open(self.directory.path()).unwrap()
    }

    fn inside(&self, path: &str) -> PathBuf {
        self.directory.path().join("content").join(path)
    }

    /// Owner and group that this process may give.
    fn own() -> Attributes {
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        Attributes { uid: Some(uid), gid: Some(gid), mode: None }
    }

    fn write(&self, path: &str, text: &str) -> Result<Entry> {
        let upload = self.volume().begin(path, Self::own(), "upload".into())?;
        upload.file().unwrap().write_all(text.as_bytes()).unwrap();
        upload.finish()
    }

    fn read(&self, path: &str) -> Result<String> {
        let (mut file, _) = self.volume().read(path)?;
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        Ok(text)
    }

    fn left_in_work(&self) -> usize {
        std::fs::read_dir(self.directory.path().join("work")).unwrap().count()
    }
}

#[test]
fn files_are_written_read_listed_and_removed() {
    let place = Place::new();
    let volume = place.volume();
    assert!(matches!(place.write("/a/b.txt", "x"), Err(VolumeError::NotFound(_))));
    assert!(matches!(volume.make_directory("a/deep", Place::own(), false), Err(VolumeError::NotFound(_))));
    let made = volume.make_directory("a/deep", Place::own(), true).unwrap();
    assert_eq!((made.path.as_str(), made.kind, made.mode), ("/a/deep", EntryKind::Directory, 0o755));
    assert!(matches!(volume.make_directory("a", Place::own(), false), Err(VolumeError::Exists(_))));
    let entry = place.write("a//./b.txt", "hello").unwrap();
    assert_eq!((entry.path.as_str(), entry.size, entry.mode), ("/a/b.txt", 5, 0o644));
    assert_eq!(place.write("/a/b.txt", "again").unwrap().size, 5);
    assert_eq!(place.read("/a/b.txt").unwrap(), "again");
    assert!(matches!(place.write("/a/deep", "x"), Err(VolumeError::Refused(_))));
    assert!(matches!(place.read("/a"), Err(VolumeError::Refused(_))));
    let paths =
        |depth| volume.list("/", depth).unwrap().into_iter().map(|entry| entry.path).collect::<Vec<_>>();
    assert_eq!(paths(1), ["/a"]);
    assert_eq!(paths(2), ["/a", "/a/b.txt", "/a/deep"]);
    assert!(matches!(volume.list("/a/b.txt", 1), Err(VolumeError::Refused(_))));
    let changed =
        volume.set_attributes("/a/b.txt", Attributes { mode: Some(0o640), ..Attributes::default() });
    assert_eq!(changed.unwrap().mode, 0o640);
    volume.remove("/a", "gone".into()).unwrap();
    assert!(matches!(volume.remove("/a", "gone".into()), Err(VolumeError::NotFound(_))));
    assert_eq!(volume.list("/", 9).unwrap(), []);
    assert!(matches!(volume.remove("/", "gone".into()), Err(VolumeError::Refused(_))));
    assert_eq!(place.left_in_work(), 0);
}

#[test]
fn symbolic_links_lead_nowhere_outside() {
    let place = Place::new();
    let host = place.directory.path().join("host");
    symlink(&host, place.inside("absolute")).unwrap();
    symlink("../host", place.inside("relative")).unwrap();
    symlink("../../../../../../../../etc", place.inside("up")).unwrap();
    symlink("/", place.inside("root")).unwrap();
    symlink("/proc/self/root", place.inside("magic")).unwrap();
    symlink("loop", place.inside("loop")).unwrap();
    for path in
        ["absolute", "relative", "up/passwd", "root/etc/passwd", "magic/etc/passwd", "../host", "loop"]
    {
        assert!(place.read(path).is_err(), "{path}");
    }
    let volume = place.volume();
    // A link itself can be looked at, and says where it would lead.
    let entry = volume.stat("absolute").unwrap();
    assert_eq!((entry.kind, entry.target.as_deref()), (EntryKind::Symlink, host.to_str()));
    assert_eq!(volume.stat("../../..").unwrap().path, "/../../..");
    // Its root is the volume's, so what is written through it stays inside.
    assert_eq!(place.write("root/new", "inside").unwrap().size, 6);
    assert_eq!(std::fs::read_to_string(place.inside("new")).unwrap(), "inside");
    assert!(place.write("up/new", "x").is_err());
    // Over a link means in its place.
    place.write("absolute", "mine").unwrap();
    assert_eq!(std::fs::read_to_string(&host).unwrap(), "host secret");
    // Lists do not follow them, removal does not either.
    assert!(volume.list("/", 5).unwrap().iter().all(|entry| !entry.path.contains("passwd")));
    volume.set_attributes("relative", Place::own()).unwrap();
    for name in ["relative", "up", "root", "magic", "loop"] {
        volume.remove(name, "gone".into()).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&host).unwrap(), "host secret");
}

#[test]
fn a_link_that_is_swapped_meanwhile_leads_nowhere_outside() {
    let place = Place::new();
    std::fs::create_dir(place.inside("directory")).unwrap();
    std::fs::write(place.inside("directory/host"), "inside").unwrap();
    symlink(place.directory.path(), place.inside("link")).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                for (from, to) in [
                    ("directory", "swap"),
                    ("link", "directory"),
                    ("directory", "link"),
                    ("swap", "directory"),
                ] {
                    let _ = std::fs::rename(place.inside(from), place.inside(to));
                }
            }
        });
        for _ in 0..2000 {
            if let Ok(text) = place.read("directory/host") {
                assert_eq!(text, "inside");
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn pipes_hold_nobody_up() {
    let place = Place::new();
    let made = std::process::Command::new("mkfifo").arg(place.inside("pipe")).status().unwrap();
    assert!(made.success());
    assert!(matches!(place.read("pipe"), Err(VolumeError::Refused(_))));
    assert_eq!(place.volume().stat("pipe").unwrap().kind, EntryKind::Other);
}

#[test]
fn trees_deeper_than_any_path_are_removed() {
    let place = Place::new();
    let mut at = open(place.inside(""), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    for _ in 0..3000 {
        mkdirat(&at, "deeper", Mode::from_raw_mode(0o755)).unwrap();
        at = rustix::fs::openat(&at, "deeper", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    }
    let volume = place.volume();
    assert!(volume.list("/", 100).unwrap().len() >= 100);
    volume.remove("deeper", "gone".into()).unwrap();
    assert_eq!(place.left_in_work(), 0);
}

#[test]
fn what_was_interrupted_is_cleaned() {
    let place = Place::new();
    let work = place.directory.path().join("work");
    std::fs::create_dir_all(work.join("half/removed")).unwrap();
    std::fs::write(work.join("half/removed/file"), "x").unwrap();
    std::fs::write(work.join("upload"), "x").unwrap();
    drop(place.volume().begin("never", Place::own(), "dropped".into()).unwrap());
    place.volume().clean().unwrap();
    assert_eq!(place.left_in_work(), 0);
}
