//! Properties of layers that hold for any bytes a registry sends: unpacking ends, changes nothing outside of its tree, and leaves only
//! files that a sandbox may have. The program in `fuzz/` searches for layers that violate them; the test below replays those that it has
//! collected.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::layer::{Limits, Unpacker};

const SECRET: &str = "outside";

/// Checks a layer: the bytes are unpacked twice, so that they also are a layer above themselves.
pub fn layer(input: &[u8]) {
    let Ok(place) = build() else { return };
    let tree = place.join("tree");
    let limits = Limits { bytes: 1 << 20, entries: 200 };
    if let Ok(mut unpacker) = Unpacker::new(&tree, limits, Arc::default()) {
        let _ = unpacker.unpack(input, None);
        let _ = unpacker.unpack(input, None);
        let _ = unpacker.finish();
        assert!(unpacker.bytes() <= limits.bytes);
    }
    assert!(
        fs::read_to_string(place.join("secret")).is_ok_and(|text| text == SECRET),
        "a file outside was changed"
    );
    let mut names: Vec<_> =
        fs::read_dir(&place).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    assert_eq!(names, ["secret", "tree"], "a file was made outside");
    let secret = fs::symlink_metadata(place.join("secret"));
    assert!(secret.as_ref().is_ok_and(|secret| secret.mode() & 0o7777 == 0o640 && secret.nlink() == 1));
    check(&tree, 0);
}

fn check(directory: &Path, depth: u32) {
    assert!(depth <= 257);
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(metadata) = fs::symlink_metadata(entry.path()) else { continue };
        let kind = metadata.file_type();
        assert!(!kind.is_char_device() && !kind.is_block_device(), "{} is a device", entry.path().display());
        assert!(metadata.uid() <= crate::files::MAX_ID && metadata.gid() <= crate::files::MAX_ID);
        if kind.is_dir() {
            check(&entry.path(), depth + 1);
        }
    }
}

/// An empty tree, with a link that leads out of it, and a secret beside it.
fn build() -> io::Result<PathBuf> {
    let place = directory()?;
    fs::create_dir(place.join("tree"))?;
    fs::write(place.join("secret"), SECRET)?;
    fs::set_permissions(place.join("secret"), std::os::unix::fs::PermissionsExt::from_mode(0o640))?;
    symlink("../secret", place.join("tree/file"))?;
    symlink("..", place.join("tree/up"))?;
    symlink(&place, place.join("tree/absolute"))?;
    symlink("/proc/self/cwd", place.join("tree/magic"))?;
    Ok(place)
}

fn directory() -> io::Result<PathBuf> {
    let name = format!("sandcove-layer-{}-{:?}", std::process::id(), std::thread::current().id());
    // A file system in memory is quicker, and has extended attributes since Linux 6.6.
    let shared = Path::new("/dev/shm");
    let place = if shared.is_dir() { shared.join(name) } else { std::env::temp_dir().join(name) };
    match fs::remove_dir_all(&place) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => fs::create_dir_all(&place)?,
    }
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layers_collected_by_fuzzing_hold() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/layer");
        let inputs: Vec<_> = fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!inputs.is_empty());
        for input in inputs {
            println!("{}", input.display());
            layer(&fs::read(input).unwrap());
        }
        fs::remove_dir_all(directory().unwrap()).unwrap();
    }
}
