//! The guest programs: embedded in this one, and unpacked to a directory that sandboxes mount.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

struct File {
    name: &'static str,
    executable: bool,
    contents: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/guest_files.rs"));

/// Unpacks the programs below `libexec` unless they are there, and returns their directory. The directory is named by a
/// digest of the contents, so that sandboxes of an older server keep theirs. The backend deletes those that no sandbox has.
pub fn unpack(libexec: &Path) -> Result<PathBuf> {
    if FILES.is_empty() {
        bail!("this program was built without the guest programs; build it with `make build`");
    }
    unpack_files(FILES, libexec)
}

fn unpack_files(files: &[File], libexec: &Path) -> Result<PathBuf> {
    let mut digest = Sha256::new();
    for file in files {
        digest.update((file.name.len() as u64).to_le_bytes());
        digest.update(file.name);
        digest.update([u8::from(file.executable)]);
        digest.update((file.contents.len() as u64).to_le_bytes());
        digest.update(file.contents);
    }
    let name: String = digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let directory = libexec.join(&name);
    if is_whole(&directory, files) {
        return Ok(directory);
    }
    if directory.is_dir() {
        // Damaged by a power cut or by hand. Sandboxes that run from the directory keep what is left of it.
        let number =
            (0..).find(|number| !libexec.join(format!("{name}.damaged-{number}")).exists()).unwrap_or(0);
        let aside = libexec.join(format!("{name}.damaged-{number}"));
        tracing::warn!(path = %directory.display(), kept = %aside.display(), "the guest programs were damaged and are unpacked again");
        std::fs::rename(&directory, &aside)
            .with_context(|| format!("failed to rename `{}`", directory.display()))?;
    }
    let staging = libexec.join(format!(".{name}.{}", std::process::id()));
    for file in files {
        let path = staging.join(file.name);
        let parent = path.parent().unwrap_or(&staging);
        std::fs::create_dir_all(parent)
            .with_context(|| format!("failed to create `{}`", parent.display()))?;
        std::fs::write(&path, file.contents)
            .with_context(|| format!("failed to write `{}`", path.display()))?;
        let mode = if file.executable { 0o755 } else { 0o644 };
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode))
            .with_context(|| format!("failed to set permissions of `{}`", path.display()))?;
    }
    open_directories(&staging)?;
    match std::fs::rename(&staging, &directory) {
        Ok(()) => Ok(directory),
        Err(error) => {
            let _ = std::fs::remove_dir_all(&staging);
            // Another process may have been faster.
            if directory.is_dir() {
                Ok(directory)
            } else {
                Err(error).context("failed to unpack the guest programs")
            }
        }
    }
}

/// Whether `directory` holds all `files`, unchanged.
fn is_whole(directory: &Path, files: &[File]) -> bool {
    files.iter().all(|file| {
        let path = directory.join(file.name);
        let is_executable =
            || std::fs::metadata(&path).is_ok_and(|meta| meta.permissions().mode() & 0o111 == 0o111);
        std::fs::read(&path).is_ok_and(|there| there == file.contents)
            && (!file.executable || is_executable())
    })
}

/// Makes directories readable for every account inside a sandbox, whatever the umask here.
fn open_directories(directory: &Path) -> Result<()> {
    std::fs::set_permissions(directory, PermissionsExt::from_mode(0o755))
        .with_context(|| format!("failed to set permissions of `{}`", directory.display()))?;
    for entry in
        std::fs::read_dir(directory).with_context(|| format!("failed to read `{}`", directory.display()))?
    {
        let path = entry?.path();
        if path.is_dir() {
            open_directories(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[File] = &[
        File { name: "python/kernel/main.py", executable: false, contents: b"pass" },
        File { name: "sandcove-agent", executable: true, contents: b"elf" },
    ];

    #[test]
    fn files_are_unpacked_once_and_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let first = unpack_files(TWO, dir.path()).unwrap();
        let mode = |path: &str| std::fs::metadata(first.join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            (mode("sandcove-agent"), mode("python/kernel/main.py"), mode("python")),
            (0o755, 0o644, 0o755)
        );
        assert_eq!(unpack_files(TWO, dir.path()).unwrap(), first);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing half-made is left");
    }

    #[test]
    fn damaged_files_are_unpacked_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = unpack_files(TWO, dir.path()).unwrap().join("sandcove-agent");
        let damages: [&dyn Fn(); 3] =
            [&|| std::fs::remove_file(&path).unwrap(), &|| std::fs::write(&path, [0; 3]).unwrap(), &|| {
                std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
            }];
        for damage in damages {
            damage();
            assert!(unpack_files(TWO, dir.path()).unwrap().join("sandcove-agent") == path);
            assert!(is_whole(path.parent().unwrap(), TWO));
        }
    }

    #[test]
    fn other_contents_go_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        assert_ne!(unpack_files(TWO, dir.path()).unwrap(), unpack_files(&TWO[..1], dir.path()).unwrap());
    }
}
