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

    fn tree(&self) -> FileTree {
        FileTree::open(self.directory.path()).unwrap()
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
        let upload = self.tree().begin(path, Self::own(), "upload".into())?;
        upload.file().unwrap().write_all(text.as_bytes()).unwrap();
        upload.finish()
    }

    fn read(&self, path: &str) -> Result<String> {
        let (mut file, _) = self.tree().read(path)?;
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
    let tree = place.tree();
    assert!(matches!(place.write("/a/b.txt", "x"), Err(FileError::NotFound(_))));
    assert!(matches!(tree.make_directory("a/deep", Place::own(), false), Err(FileError::NotFound(_))));
    let made = tree.make_directory("a/deep", Place::own(), true).unwrap();
    assert_eq!((made.path.as_str(), made.kind, made.mode), ("/a/deep", EntryKind::Directory, 0o755));
    assert!(matches!(tree.make_directory("a", Place::own(), false), Err(FileError::Exists(_))));
    for root in ["/", ".", ""] {
        assert!(matches!(tree.make_directory(root, Place::own(), false), Err(FileError::Exists(_))));
        assert!(tree.make_directory(root, Place::own(), true).is_ok(), "{root:?}");
    }
    let entry = place.write("a//./b.txt", "hello").unwrap();
    assert_eq!((entry.path.as_str(), entry.size, entry.mode), ("/a/b.txt", 5, 0o644));
    assert_eq!(place.write("/a/b.txt", "again").unwrap().size, 5);
    assert_eq!(place.read("/a/b.txt").unwrap(), "again");
    assert!(matches!(place.write("/a/deep", "x"), Err(FileError::Refused(_))));
    assert!(matches!(place.read("/a"), Err(FileError::Refused(_))));
    let paths =
        |depth| tree.list("/", depth).unwrap().into_iter().map(|entry| entry.path).collect::<Vec<_>>();
    assert_eq!(paths(1), ["/a"]);
    assert_eq!(paths(2), ["/a", "/a/b.txt", "/a/deep"]);
    assert!(matches!(tree.list("/a/b.txt", 1), Err(FileError::Refused(_))));
    let changed = tree.set_attributes("/a/b.txt", Attributes { mode: Some(0o640), ..Attributes::default() });
    assert_eq!(changed.unwrap().mode, 0o640);
    assert_eq!(tree.remove("/a", "gone").unwrap(), Removal::Done);
    assert!(matches!(tree.remove("/a", "gone"), Err(FileError::NotFound(_))));
    assert_eq!(tree.list("/", 9).unwrap(), []);
    assert!(matches!(tree.remove("/", "gone"), Err(FileError::Refused(_))));
    assert_eq!(place.left_in_work(), 0);
}

#[test]
fn a_listing_has_a_length() {
    let place = Place::new();
    let tree = place.tree();
    // Each of these characters takes six bytes in JSON.
    let target = "\u{1}".repeat(4000);
    let most = (8 << 20) / (6 * target.len());
    for number in 0..most {
        symlink(&target, place.inside(&number.to_string())).unwrap();
    }
    assert_eq!(tree.list("/", 1).unwrap().len(), most);
    symlink(&target, place.inside("more")).unwrap();
    let FileError::Refused(why) = tree.list("/", 1).unwrap_err() else { panic!() };
    assert_eq!(why, "the paths of the entries below '/' take more than 8 MiB, ask for fewer levels");
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
    let tree = place.tree();
    // A link itself can be looked at, and says where it would lead.
    let entry = tree.stat("absolute").unwrap();
    assert_eq!((entry.kind, entry.target.as_deref()), (EntryKind::Symlink, host.to_str()));
    assert_eq!(tree.stat("../../..").unwrap().path, "/../../..");
    // Its root is the tree's, so what is written through it stays inside.
    assert_eq!(place.write("root/new", "inside").unwrap().size, 6);
    assert_eq!(std::fs::read_to_string(place.inside("new")).unwrap(), "inside");
    assert!(place.write("up/new", "x").is_err());
    // Over a link means in its place.
    place.write("absolute", "mine").unwrap();
    assert_eq!(std::fs::read_to_string(&host).unwrap(), "host secret");
    // Lists do not follow them, removal does not either.
    assert!(tree.list("/", 5).unwrap().iter().all(|entry| !entry.path.contains("passwd")));
    tree.set_attributes("relative", Place::own()).unwrap();
    for name in ["relative", "up", "root", "magic", "loop"] {
        assert_eq!(tree.remove(name, "gone").unwrap(), Removal::Done);
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
fn what_is_no_file_is_refused_unopened() {
    let place = Place::new();
    let made = std::process::Command::new("mkfifo").arg(place.inside("pipe")).status().unwrap();
    assert!(made.success());
    let _socket = std::os::unix::net::UnixListener::bind(place.inside("socket")).unwrap();
    let tree = place.tree();
    for name in ["pipe", "socket"] {
        assert!(matches!(place.read(name), Err(FileError::Refused(_))), "{name}");
        assert_eq!(tree.stat(name).unwrap().kind, EntryKind::Other);
        assert!(matches!(tree.list(name, 1), Err(FileError::Refused(_))), "{name}");
        let mode = Attributes { mode: Some(0o600), ..Attributes::default() };
        assert_eq!(tree.set_attributes(name, mode).unwrap().mode, 0o600);
        assert_eq!(place.write(name, "in its place").unwrap().kind, EntryKind::File);
        assert_eq!(tree.remove(name, "gone").unwrap(), Removal::Done);
    }
    symlink("nowhere", place.inside("link")).unwrap();
    let mode = Attributes { mode: Some(0o600), ..Attributes::default() };
    assert!(matches!(tree.set_attributes("link", mode), Err(FileError::Refused(_))));
}

#[test]
fn directories_have_the_size_of_whole_blocks() {
    // An empty directory is 40 bytes there, 0 on btrfs, 4096 on ext4.
    let place = Place { directory: tempfile::tempdir_in("/dev/shm").unwrap() };
    for part in ["content", "work"] {
        std::fs::create_dir(place.directory.path().join(part)).unwrap();
    }
    let tree = place.tree();
    assert_eq!(tree.make_directory("d", Place::own(), false).unwrap().size, 4096);
    assert_eq!(tree.stat("/d").unwrap().size, 4096);
    assert_eq!(tree.list("/", 1).unwrap()[0].size, 4096);
}

#[test]
fn trees_deeper_than_any_path_are_removed() {
    let place = Place::new();
    let mut at = open(place.inside(""), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    for _ in 0..3000 {
        mkdirat(&at, "deeper", Mode::from_raw_mode(0o755)).unwrap();
        at = rustix::fs::openat(&at, "deeper", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    }
    let tree = place.tree();
    assert!(tree.list("/", 100).unwrap().len() >= 100);
    assert_eq!(tree.remove("deeper", "gone").unwrap(), Removal::Done);
    assert_eq!(place.left_in_work(), 0);
}

#[test]
fn what_was_interrupted_is_cleaned() {
    let place = Place::new();
    let work = place.directory.path().join("work");
    std::fs::create_dir_all(work.join("half/removed")).unwrap();
    std::fs::write(work.join("half/removed/file"), "x").unwrap();
    std::fs::write(work.join("upload"), "x").unwrap();
    drop(place.tree().begin("never", Place::own(), "dropped".into()).unwrap());
    assert!(place.tree().clean().unwrap().is_empty());
    assert_eq!(place.left_in_work(), 0);
}

#[test]
fn taking_a_tree_apart_goes_on_where_it_stopped() {
    let place = Place::new();
    let work = place.directory.path().join("work");
    for part in ["tree/a/b", "tree.1/c", "tree.7/d/e", "tree2/f"] {
        std::fs::create_dir_all(work.join(part)).unwrap();
    }
    std::fs::write(work.join("upload"), "under way").unwrap();
    let tree = place.tree();
    tree.take_apart("tree").unwrap();
    tree.take_apart("tree").unwrap();
    assert!(work.join("tree2/f").exists() && work.join("upload").exists());
    assert_eq!(place.left_in_work(), 2);
}
