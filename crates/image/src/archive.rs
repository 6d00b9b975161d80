//! Layers as tarballs in a directory the operator keeps: a machine that has one does not build it again.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::lines::{self, Tail};
use crate::{Error, LayerId, Result};

/// What a tarball must keep beyond tar's defaults: ids as numbers, and overlayfs's own marks on deleted directories.
const KEEP: [&str; 5] =
    ["--numeric-owner", "--xattrs", "--xattrs-include=*", "--acls", "--use-compress-program=zstd -T0 -3"];

fn file(cache: &Path, id: &LayerId) -> PathBuf {
    cache.join(format!("{id}.tar.zst"))
}

/// Unpacks the layer from `cache` into `tree`; false when the cache does not have it.
pub(crate) async fn unpack(cache: &Path, id: &LayerId, tree: &Path) -> Result<bool> {
    let file = file(cache, id);
    if !file.is_file() {
        return Ok(false);
    }
    let mut command = tar_command();
    command.args(KEEP).arg("--extract").arg("--preserve-permissions").arg("--file").arg(&file);
    command.arg("--directory").arg(tree);
    tar(command, id).await?;
    Ok(true)
}

/// Keeps a finished layer in `cache`, whole or not at all.
pub(crate) async fn pack(cache: &Path, id: &LayerId, tree: &Path) -> Result<()> {
    std::fs::create_dir_all(cache).map_err(Error::path("create", cache))?;
    let file = file(cache, id);
    let unfinished = cache.join(format!(".{id}.{}", std::process::id()));
    let mut command = tar_command();
    command.args(KEEP).arg("--create").arg("--file").arg(&unfinished).arg("--directory").arg(tree).arg(".");
    if let Err(error) = tar(command, id).await {
        // The tarball is a convenience: the half-written one must not stay, whether or not it can be removed now.
        let _ = std::fs::remove_file(&unfinished);
        return Err(error);
    }
    std::fs::rename(&unfinished, &file).map_err(Error::path("publish", &file))
}

/// A `tar` that dies with this process, however suddenly: the next server removes what it wrote.
fn tar_command() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "tar"]);
    command
}

async fn tar(mut command: Command, id: &LayerId) -> Result<()> {
    let mut last = Tail::default();
    let status = lines::run(&mut command, &mut |line| last.push(line))
        .await
        .map_err(|source| Error::Tool { program: "tar".to_owned(), source })?;
    if status.success() {
        return Ok(());
    }
    Err(Error::Failed {
        layer: id.to_string(),
        what: "tar".to_owned(),
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

        assert!(!unpack(&cache, &id, &back).await.unwrap());
        pack(&cache, &id, &tree).await.unwrap();
        assert!(unpack(&cache, &id, &back).await.unwrap());
        assert_eq!(std::fs::metadata(back.join("a/tool")).unwrap().mode() & 0o7777, 0o4755);
        assert_eq!(std::fs::read_link(back.join("link")).unwrap(), Path::new("/usr/bin/x"));
    }
}
