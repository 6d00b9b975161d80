//! Files by which programs inside learn about the sandbox (contract: envd, section 6).

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Writes the files with the identity of this sandbox.
pub(crate) fn write_identity(sandbox_id: &str, template_id: &str) {
    for (name, value) in [(".E2B_TEMPLATE_ID", template_id), (".E2B_SANDBOX_ID", sandbox_id)] {
        attempt(name, write_fact(name, value));
    }
}

/// Logs why a file was not written.
pub(crate) fn attempt(file: &str, result: io::Result<()>) {
    if let Err(error) = result {
        tracing::warn!(file, %error, "failed to write a file of the system");
    }
}

/// Writes a file of `/run/e2b`.
pub(crate) fn write_fact(name: &str, value: &str) -> io::Result<()> {
    let directory = Path::new("/run/e2b");
    fs::create_dir_all(directory)?;
    let path = directory.join(name);
    write_if_different(&path, value)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444))
}

/// Writes a file unless it has this content already, so that it does not take space in every sandbox.
pub(crate) fn write_if_different(path: impl AsRef<Path>, text: &str) -> io::Result<()> {
    let path = path.as_ref();
    if fs::read(path).is_ok_and(|present| present == text.as_bytes()) {
        return Ok(());
    }
    match fs::write(path, text) {
        // A dangling link, as images of full systems have for the resolver.
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_symlink() => {
            fs::remove_file(path)?;
            fs::write(path, text)
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dangling_link_is_replaced() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("resolv.conf");
        std::os::unix::fs::symlink("/nowhere/at/all", &path).unwrap();
        write_if_different(&path, "nameserver 8.8.8.8\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "nameserver 8.8.8.8\n");
    }
}
