//! A property of paths in volumes that holds for any path a client sends and any links a sandbox has made. The program in `fuzz/`
//! searches for paths that violate it; the test below replays those that it has collected.

use std::cell::OnceCell;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::{fs, io};

use super::FileTree;

const INSIDE: &str = "inside";
const OUTSIDE: &str = "outside";
/// Links that the tree holds, by name and target.
const LINKS: [(&str, &str); 6] = [
    ("root", "/"),
    ("up", "../../../../../.."),
    ("beside", "../secret"),
    ("process", "/proc/self/root"),
    ("loop", "loop"),
    ("a/back", "../a/file"),
];

/// Checks a path: whatever it leads to is in the tree, by every call that reads.
pub fn volume_path(input: &[u8]) {
    thread_local! {
        static TREE: OnceCell<Option<FileTree>> = const { OnceCell::new() };
    }
    let Ok(path) = std::str::from_utf8(input) else { return };
    TREE.with(|tree| {
        let Some(tree) = tree.get_or_init(|| build().ok()) else { return };
        if let Ok((mut file, size)) = tree.read(path) {
            let mut text = String::new();
            assert!(file.read_to_string(&mut text).is_ok());
            assert_eq!((text.as_str(), size), (INSIDE, INSIDE.len() as u64), "{path:?} leaves the tree");
        }
        if let Ok(entry) = tree.stat(path) {
            assert!(entry.path.starts_with('/') && !entry.path.contains("//"));
            assert_eq!(tree.stat(&entry.path).ok().map(|again| again.kind), Some(entry.kind));
        }
        if let Ok(entries) = tree.list(path, 2) {
            assert!(entries.iter().all(|entry| !entry.path.ends_with("secret")), "{path:?} leaves the tree");
        }
    });
}

/// A tree with links out of it, and a secret beside it.
fn build() -> io::Result<FileTree> {
    let place = directory()?;
    let content = place.join("content");
    fs::create_dir_all(content.join("a/b"))?;
    fs::create_dir_all(place.join("work"))?;
    fs::write(content.join("a/file"), INSIDE)?;
    fs::write(place.join("secret"), OUTSIDE)?;
    for (name, target) in LINKS {
        symlink(target, content.join(name))?;
    }
    FileTree::open(&place)
}

fn directory() -> io::Result<PathBuf> {
    let place = std::env::temp_dir().join(format!(
        "sandcove-volume-path-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    match fs::remove_dir_all(&place) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => fs::create_dir_all(&place)?,
    }
    Ok(place)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_paths_collected_by_fuzzing_hold() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/volume_path");
        let inputs: Vec<_> = fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!inputs.is_empty());
        for input in inputs {
            println!("{}", input.display());
            volume_path(&fs::read(input).unwrap());
        }
        fs::remove_dir_all(directory().unwrap()).unwrap();
    }
}
