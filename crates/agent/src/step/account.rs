//! Accounts of a build: written into the files of the system directly, as an image may have no `useradd`.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use super::error::{Result, StepError};
use super::owner;
use crate::account::{Account, Accounts};

/// First number for accounts of people, as in most systems.
const FIRST_ID: u32 = 1000;
/// First number that a sandbox does not have, less the two that mean `nobody` and "no change" to 16-bit programs.
const END_OF_IDS: u32 = 65534;
/// Limit on the length of a name, as in `useradd`.
const MAX_NAME: usize = 32;
/// Shells by preference.
const SHELLS: [&str; 4] = ["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/bin/sh"];
/// Directory of further rules for sudo.
const SUDO_RULES: &str = "etc/sudoers.d";

/// Makes sure that the system at `root` has the account `name`, and with `sudo` that it may run any command as root without a
/// password. An account that exists keeps everything it has. A name of digits is the number of an account.
pub(super) fn ensure(root: &Path, name: &str, sudo: bool) -> Result<Account> {
    let account = match owner::load(root)?.lookup(name) {
        Some(account) => account,
        None => create(root, name)?,
    };
    if sudo && account.uid != 0 {
        allow_sudo(root, &account.name)?;
    }
    Ok(account)
}

fn create(root: &Path, name: &str) -> Result<Account> {
    let wanted = match name.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Some(owner::number(name).filter(|id| *id < END_OF_IDS).ok_or_else(|| {
            StepError::invalid(format!("invalid number `{name}` of a user: use one below {END_OF_IDS}"))
        })?),
        false => None,
    };
    let name = wanted.map_or_else(|| name.to_owned(), |id| format!("user{id}"));
    check(&name)?;
    if !root.join("etc/passwd").exists() {
        create_root(root)?;
    }
    let accounts = owner::load(root)?;
    let uid = match wanted {
        Some(id) => id,
        None => free_id(&accounts)?,
    };
    let group = accounts.group_id(&name);
    let gid = match group {
        Some(gid) => gid,
        None if !accounts.uses(uid) => uid,
        None => free_id(&accounts)?,
    };
    let shell = shell(root);
    if group.is_none() {
        append(&root.join("etc/group"), &format!("{name}:x:{gid}:"), Missing::Create)?;
        append(&root.join("etc/gshadow"), &format!("{name}:!::"), Missing::Leave)?;
    }
    // Without a password, and without an age after which it would have to change.
    append(&root.join("etc/shadow"), &format!("{name}:*::0:99999:7:::"), Missing::Leave)?;
    append(
        &root.join("etc/passwd"),
        &format!("{name}:x:{uid}:{gid}::/home/{name}:{shell}"),
        Missing::Create,
    )?;
    let account = owner::account(&owner::load(root)?, &name)?;
    create_home(root, &account)?;
    Ok(account)
}

fn check(name: &str) -> Result<()> {
    let usual = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    let first = name.as_bytes().first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_');
    if first && name.len() <= MAX_NAME && name.bytes().all(usual) {
        return Ok(());
    }
    Err(StepError::invalid(format!(
        "invalid user name `{}`: use at most {MAX_NAME} letters, digits, `_`, `-` and `.`, and a letter or `_` first",
        name.escape_debug()
    )))
}

/// Creates the superuser of a system without accounts.
fn create_root(root: &Path) -> Result<()> {
    let etc = root.join("etc");
    fs::create_dir_all(&etc).map_err(|e| StepError::file("create directory", etc.display(), e))?;
    if owner::load(root)?.group_id("root").is_none() {
        append(&etc.join("group"), "root:x:0:", Missing::Create)?;
    }
    append(&etc.join("passwd"), &format!("root:x:0:0:root:/root:{}", shell(root)), Missing::Create)?;
    let home = root.join("root");
    match DirBuilder::new().mode(0o700).create(&home) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(StepError::file("create directory", home.display(), error))
        }
        _ => Ok(()),
    }
}

fn free_id(accounts: &Accounts) -> Result<u32> {
    (FIRST_ID..END_OF_IDS)
        .find(|id| !accounts.uses(*id))
        .ok_or_else(|| StepError::invalid("all numbers for accounts are in use"))
}

fn shell(root: &Path) -> &'static str {
    SHELLS.into_iter().find(|shell| exists(root, shell)).unwrap_or("/bin/sh")
}

/// Whether the system at `root` has `path`, of which the last part may be a link to a place that is absolute within it.
fn exists(root: &Path, path: &str) -> bool {
    let path = root.join(path.trim_start_matches('/'));
    path.exists() || (root != Path::new("/") && path.is_symlink())
}

fn create_home(root: &Path, account: &Account) -> Result<()> {
    let home = root.join(account.home.trim_start_matches('/'));
    if home.symlink_metadata().is_ok() {
        return Ok(());
    }
    let failed = |e| StepError::file("create home directory", home.display(), e);
    if let Some(above) = home.parent() {
        fs::create_dir_all(above).map_err(failed)?;
    }
    DirBuilder::new().mode(0o755).create(&home).map_err(failed)?;
    chown(&home, Some(account.uid), Some(account.gid)).map_err(failed)?;
    for file in skeleton(&root.join("etc/skel")) {
        let Some(name) = file.file_name() else { continue };
        let copy = home.join(name);
        fs::copy(&file, &copy)
            .and_then(|_| chown(&copy, Some(account.uid), Some(account.gid)))
            .map_err(failed)?;
    }
    Ok(())
}

/// The files that a new home directory begins with.
fn skeleton(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let is_file = |path: &PathBuf| path.symlink_metadata().is_ok_and(|found| found.is_file());
    entries.flatten().map(|entry| entry.path()).filter(is_file).collect()
}

/// Lets the account run any command as root without a password. The rule is there before sudo, which reads it once it is installed.
fn allow_sudo(root: &Path, name: &str) -> Result<()> {
    let rule = format!("Defaults:{name} !use_pty\n{name} ALL=(ALL:ALL) NOPASSWD: ALL\n");
    let directory = root.join(SUDO_RULES);
    // sudo does not read files with a dot in their names.
    let file = directory.join(name.replace('.', "_"));
    let grant = format!("{name} ALL=(ALL:ALL) NOPASSWD: ALL");
    if fs::read_to_string(&file).is_ok_and(|text| text.lines().any(|line| line.trim() == grant)) {
        return Ok(());
    }
    if !directory.is_dir() {
        let create = DirBuilder::new().mode(0o750).create(&directory);
        create.map_err(|e| StepError::file("create directory", directory.display(), e))?;
    }
    replace(&file, rule.as_bytes(), 0o440)?;
    let main = root.join("etc/sudoers");
    let reads = |line: &str| {
        matches!(line.trim_start().get(..11), Some("@includedir" | "#includedir"))
            && line.contains("sudoers.d")
    };
    match fs::read_to_string(&main) {
        Ok(text) if !text.lines().any(reads) => append(&main, "@includedir /etc/sudoers.d", Missing::Leave),
        _ => Ok(()),
    }
}

/// The treatment of a file that does not exist.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Create,
    Leave,
}

/// Adds a line to a file of the system.
fn append(path: &Path, line: &str, missing: Missing) -> Result<()> {
    let failed = |e| StepError::file("read", path.display(), e);
    let (mut text, mode) = match fs::read(path) {
        Ok(text) => (text, fs::metadata(path).map_err(failed)?.mode() & 0o7777),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match missing {
            Missing::Create => (Vec::new(), 0o644),
            Missing::Leave => return Ok(()),
        },
        Err(error) => return Err(failed(error)),
    };
    if text.last().is_some_and(|byte| *byte != b'\n') {
        text.push(b'\n');
    }
    text.extend_from_slice(line.as_bytes());
    text.push(b'\n');
    replace(path, &text, mode)
}

/// Gives a file new content, which readers see whole or not at all. Its owner stays, and a link to it too.
fn replace(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    let write = || {
        let path = if path.is_symlink() { path.canonicalize()? } else { path.to_owned() };
        let owner = fs::metadata(&path).map(|found| (found.uid(), found.gid())).ok();
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".sandcove-new");
        let new = path.with_file_name(name);
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(content)?;
        if let Some((uid, gid)) = owner {
            chown(&new, Some(uid), Some(gid))?;
        }
        fs::set_permissions(&new, fs::Permissions::from_mode(mode))?;
        fs::rename(&new, &path)
    };
    write().map_err(|e| StepError::file("write", path.display(), e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(root: &Path, path: &str) -> String {
        fs::read_to_string(root.join(path)).unwrap()
    }

    /// Tests run as root or not; then nothing can be given to another user.
    fn is_root() -> bool {
        rustix::process::geteuid().is_root()
    }

    #[test]
    fn an_image_without_accounts_gets_root_too() {
        if !is_root() {
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let account = ensure(root.path(), "user", true).unwrap();
        assert_eq!((account.uid, account.gid, account.home.as_str()), (1000, 1000, "/home/user"));
        assert_eq!(read(root.path(), "etc/group"), "root:x:0:\nuser:x:1000:\n");
        let passwd = "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n";
        assert_eq!(read(root.path(), "etc/passwd"), passwd);
        assert!(!root.path().join("etc/shadow").exists());
        let home = fs::metadata(root.path().join("home/user")).unwrap();
        assert_eq!((home.uid(), home.mode() & 0o7777), (1000, 0o755));
        assert!(read(root.path(), "etc/sudoers.d/user").contains("user ALL=(ALL:ALL) NOPASSWD: ALL"));
        // A second time nothing changes.
        assert_eq!(ensure(root.path(), "user", true).unwrap(), account);
        assert_eq!(read(root.path(), "etc/passwd"), passwd);
    }

    #[test]
    fn numbers_in_use_are_left_to_their_owners() {
        if !is_root() {
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let etc = root.path().join("etc");
        fs::create_dir_all(root.path().join("bin")).unwrap();
        fs::create_dir_all(etc.join("skel")).unwrap();
        fs::write(root.path().join("bin/bash"), "").unwrap();
        fs::write(etc.join("skel/.profile"), "# profile\n").unwrap();
        fs::write(etc.join("passwd"), "root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh")
            .unwrap();
        fs::write(etc.join("group"), "root:x:0:\nnode:x:1000:\nother:x:1001:\ndocker:x:999:\n").unwrap();
        fs::write(etc.join("shadow"), "root:*:1::::::\n").unwrap();
        fs::set_permissions(etc.join("shadow"), fs::Permissions::from_mode(0o640)).unwrap();
        fs::write(etc.join("sudoers"), "root ALL=(ALL) ALL\n").unwrap();

        let user = ensure(root.path(), "user", true).unwrap();
        assert_eq!((user.uid, user.gid, user.shell.as_str()), (1002, 1002, "/bin/bash"));
        assert!(
            read(root.path(), "etc/passwd")
                .ends_with("node:/bin/sh\nuser:x:1002:1002::/home/user:/bin/bash\n")
        );
        assert_eq!(read(root.path(), "etc/shadow"), "root:*:1::::::\nuser:*::0:99999:7:::\n");
        assert_eq!(fs::metadata(etc.join("shadow")).unwrap().mode() & 0o7777, 0o640);
        assert_eq!(read(root.path(), "home/user/.profile"), "# profile\n");
        assert!(read(root.path(), "etc/sudoers").ends_with("@includedir /etc/sudoers.d\n"));

        assert_eq!(ensure(root.path(), "docker", false).unwrap().gid, 999);
        assert_eq!(ensure(root.path(), "1000", false).unwrap().name, "node");
        let numbered = ensure(root.path(), "4711", false).unwrap();
        assert_eq!((numbered.name.as_str(), numbered.uid), ("user4711", 4711));
    }

    #[test]
    fn names_that_would_break_the_files_are_refused() {
        let root = tempfile::tempdir().unwrap();
        for name in ["", "a:b", "a\nb", "-x", "a/b", ".x", "99999999", "4294967295", &"x".repeat(40)] {
            assert!(ensure(root.path(), name, false).is_err(), "{name:?}");
        }
        assert!(!root.path().join("etc").exists());
    }
}
