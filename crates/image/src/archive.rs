//! Layers that need not be built: as tarballs in a directory of the operator, or as trees of another file system.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::lines::{self, Tail};
use crate::{Error, LayerId, Result, contained};

/// Options of tar that keep ids as numbers and extended attributes, in which overlayfs marks deleted directories.
const KEEP: [&str; 5] =
    ["--numeric-owner", "--xattrs", "--xattrs-include=*", "--acls", "--use-compress-program=zstd -T0 -3"];

fn file(cache: &Path, id: &LayerId) -> PathBuf {
    cache.join(format!("{id}.tar.zst"))
}

/// Unpacks the layer from `cache` into `tree`; returns false when the cache lacks it.
pub(crate) async fn unpack(cache: &Path, id: &LayerId, tree: &Path) -> Result<bool> {
    let file = file(cache, id);
    if !file.is_file() {
        return Ok(false);
    }
    let mut command = contained::bound("tar");
    command.args(KEEP).arg("--extract").arg("--preserve-permissions").arg("--file").arg(&file);
    command.arg("--directory").arg(tree);
    run(command, "tar", id).await?;
    Ok(true)
}

/// Copies the layer from the layer directory `ahead` into `tree`; returns false when it is not there.
pub(crate) async fn copy(ahead: &Path, id: &LayerId, tree: &Path) -> Result<bool> {
    let from = ahead.join(id.as_str());
    if !from.is_dir() {
        return Ok(false);
    }
    let mut command = contained::bound("cp");
    command.arg("--archive").arg("--reflink=auto").arg("--no-target-directory").arg(&from).arg(tree);
    run(command, "cp", id).await?;
    Ok(true)
}

/// Adds a finished layer to `cache` atomically.
pub(crate) async fn pack(cache: &Path, id: &LayerId, tree: &Path) -> Result<()> {
    std::fs::create_dir_all(cache).map_err(Error::path("create", cache))?;
    let file = file(cache, id);
    let unfinished = cache.join(format!(".{id}.{}", std::process::id()));
    let mut command = contained::bound("tar");
    command.args(KEEP).arg("--create").arg("--file").arg(&unfinished).arg("--directory").arg(tree).arg(".");
    if let Err(error) = run(command, "tar", id).await {
        // The error is reported whether or not the unfinished tarball can be deleted.
        let _ = std::fs::remove_file(&unfinished);
        return Err(error);
    }
    std::fs::rename(&unfinished, &file).map_err(Error::path("publish", &file))
}

async fn run(mut command: Command, program: &str, id: &LayerId) -> Result<()> {
    let mut last = Tail::default();
    let status = lines::run(&mut command, &mut |line| last.push(line))
        .await
        .map_err(|source| Error::Tool { program: program.to_owned(), source })?;
    if status.success() {
        return Ok(());
    }
    Err(Error::Failed {
        layer: id.to_string(),
        what: program.to_owned(),
        status: status.to_string(),
        output: last.text(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Layer, Origin, Recipe};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[tokio::test]
    async fn a_layer_comes_back_as_it_was() {
        let recipe = Recipe { name: "t", origin: Origin::LayerBelow, files: vec![], script: "", size_mib: 0 };
        let id = Layer::new(recipe, None).id;
        let dir = tempfile::tempdir().unwrap();
        let (cache, tree, back) =
            (dir.path().join("cache"), dir.path().join("tree"), dir.path().join("back"));
        std::fs::create_dir_all(tree.join("a")).unwrap();
        std::fs::create_dir(&back).unwrap();
        std::fs::write(tree.join("a/tool"), "x").unwrap();
        std::fs::set_permissions(tree.join("a/tool"), PermissionsExt::from_mode(0o4755)).unwrap();
        std::os::unix::fs::symlink("/usr/bin/x", tree.join("link")).unwrap();

        let layers = dir.path().join("layers");
        std::fs::create_dir(&layers).unwrap();
        assert!(!copy(&layers, &id, &back).await.unwrap());
        assert!(!unpack(&cache, &id, &back).await.unwrap());
        pack(&cache, &id, &tree).await.unwrap();
        assert!(unpack(&cache, &id, &back).await.unwrap());
        std::fs::rename(&tree, layers.join(id.as_str())).unwrap();
        let copied = dir.path().join("copied");
        std::fs::create_dir(&copied).unwrap();
        assert!(copy(&layers, &id, &copied).await.unwrap());
        for back in [back, copied] {
            assert_eq!(std::fs::metadata(back.join("a/tool")).unwrap().mode() & 0o7777, 0o4755);
            assert_eq!(std::fs::read_link(back.join("link")).unwrap(), Path::new("/usr/bin/x"));
        }
    }
}
