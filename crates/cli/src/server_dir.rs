//! The directory `server` of a data directory: all files that the server process writes. It belongs to the account of that process;
//! everything else in the data directory is of root.

use std::ffi::{CStr, OsStr};
use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, Uid, chownat, fchmod, fchown, fstat, openat, statat,
};

use sandcove_isolate::{Unprivileged, crash};

use crate::data_dir::Lock;

const DATABASE: &str = "sandcove.db";
/// Files that earlier versions had in the data directory itself, in the order in which they are moved. The database is last: where it is,
/// the server's files are. SQLite reads what is in its log before anything else, so that the log must not come after it.
const MOVED: [&str; 4] = ["builds", "file-sets", "sandcove.db-wal", DATABASE];
/// The index of the log, which SQLite makes again.
const INDEX: &str = "sandcove.db-shm";

/// Locked for as long as a server process lives, which may be a moment longer than its host process.
const LOCK: &str = "lock";
/// How long to wait for the server process of a host process that has ended.
const HANDOVER: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

/// The right to use the directory, for as long as a copy of this descriptor is open.
#[derive(Debug)]
pub struct Occupied(File);

impl From<Occupied> for OwnedFd {
    fn from(occupied: Occupied) -> Self {
        occupied.0.into()
    }
}

/// The path of the directory.
pub fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("server")
}

/// The path of the database, whether it exists or not.
pub fn database(data_dir: &Path) -> PathBuf {
    database_in(&path(data_dir))
}

/// The path of the database in a server's directory.
pub fn database_in(directory: &Path) -> PathBuf {
    directory.join(DATABASE)
}

/// Creates the directory if needed, moves what an earlier version has left in the data directory there, waits for an earlier server
/// process, and gives everything to `owner`, a user and group of the same number. May be interrupted at any point, and is then done
/// by the next call.
pub fn prepare(data_dir: &Path, owner: u32, _lock: &Lock) -> Result<Occupied> {
    let directory = path(data_dir);
    let failed = || format!("failed to prepare `{}`", directory.display());
    adopt_files(data_dir, &directory).with_context(failed)?;
    let opened = openat(CWD, &directory, FLAGS, Mode::empty()).with_context(failed)?;
    let occupied = occupy(&opened).with_context(failed)?;
    give(&opened, owner).with_context(failed)?;
    crash::point("adopt.given");
    Ok(occupied)
}

/// Waits until no server process uses the directory any more.
fn occupy(directory: &OwnedFd) -> io::Result<Occupied> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(openat(directory, LOCK, flags, Mode::RUSR | Mode::WUSR)?);
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Occupied(file)),
            Err(TryLockError::WouldBlock) if begun.elapsed() < HANDOVER => std::thread::sleep(POLL),
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other("an earlier server process does not end"));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// Makes the files ready for a command that uses them beside or without a server: moves those of an earlier version, and gives what
/// somebody has put there, as from a backup, to the directory's account. Returns that account; `None` if there is no database.
///
/// # Errors
/// An error if there is something to do and a server runs, or if the database is not a file.
pub fn claim(data_dir: &Path) -> Result<Option<u32>> {
    let directory = path(data_dir);
    let failed = || format!("failed to prepare `{}`", directory.display());
    if data_dir.join(DATABASE).symlink_metadata().is_ok() {
        let _lock = Lock::take(data_dir)?;
        adopt_files(data_dir, &directory).with_context(failed)?;
    }
    let opened = match openat(CWD, &directory, FLAGS, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        opened => opened.map_err(io::Error::from).with_context(failed)?,
    };
    let owner = fstat(&opened).map_err(io::Error::from).with_context(failed)?.st_uid;
    let database = match statat(&opened, DATABASE, AtFlags::SYMLINK_NOFOLLOW) {
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        database => database.map_err(io::Error::from).with_context(failed)?,
    };
    if FileType::from_raw_mode(database.st_mode) != FileType::RegularFile {
        bail!("`{}` is not a file", directory.join(DATABASE).display());
    }
    if !is_of(&database, owner) {
        let lock = Lock::take(data_dir)?;
        prepare(data_dir, owner, &lock)?;
    }
    Ok(Some(owner))
}

/// Gives up all rights but those of `account` to the server's directory, for a command that opens the database. The process must have one
/// thread.
///
/// # Errors
/// An error if this process cannot become that account.
pub fn become_account(directory: &Path, account: u32) -> Result<()> {
    if account == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let failed = || format!("failed to become {account}, the account of `{}`", directory.display());
    if let Some(objection) = sandcove_isolate::cannot_become(account) {
        return Err(objection).with_context(failed);
    }
    let purpose = Unprivileged::Server { directory, ends_with_parent: false };
    sandcove_isolate::renounce(account, purpose, false).with_context(failed)
}

fn adopt_files(data_dir: &Path, directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let is_there = |name: &str| data_dir.join(name).symlink_metadata().is_ok();
    if !MOVED.into_iter().any(is_there) {
        return Ok(());
    }
    // A database in both places was put there by hand: the one that the server used last is kept.
    if is_there(DATABASE) && directory.join(DATABASE).exists() {
        return Err(io::Error::other(format!(
            "there is a database in `{}` too; remove one of them",
            data_dir.display()
        )));
    }
    match std::fs::remove_file(data_dir.join(INDEX)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    for name in MOVED.into_iter().filter(|name| is_there(name)) {
        std::fs::rename(data_dir.join(name), directory.join(name))?;
        File::open(directory)?.sync_all()?;
        File::open(data_dir)?.sync_all()?;
        crash::point(&format!("adopt.{name}"));
    }
    Ok(())
}

/// Gives the directory and everything in it to `owner`. What is in it may be of an account that does not wish us well: links are
/// not followed, and a file that has another name elsewhere is left alone.
fn give(directory: &OwnedFd, owner: u32) -> io::Result<()> {
    fchmod(directory, Mode::RWXU)?;
    give_below(directory, owner)
}

const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn give_below(directory: &OwnedFd, owner: u32) -> io::Result<()> {
    walk(directory, &mut |directory, found| {
        match found {
            Found::File(name, status) => {
                give_file(directory, name, &status, owner)?;
                crash::point("adopt.giving");
            }
            Found::Stranger(name) => {
                let name = OsStr::from_bytes(name.to_bytes());
                tracing::warn!(?name, "the server's directory has something that the server did not make");
            }
            // Last, so that what is in it is never of another account than it says.
            Found::End(status) => {
                if !is_of(&status, owner) {
                    fchown(directory, Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)))?;
                }
            }
        }
        Ok(())
    })
}

/// Something in the directory, or below it.
enum Found<'a> {
    /// A file with no other name.
    File(&'a CStr, Stat),
    /// Something that the server did not make: a link, or a file that has another name elsewhere.
    Stranger(&'a CStr),
    /// The directory itself, after everything in it.
    End(Stat),
}

/// Shows `visit` everything in a directory, with the directory that it is in. Follows no links.
fn walk(
    directory: &OwnedFd,
    visit: &mut impl FnMut(&OwnedFd, Found<'_>) -> io::Result<()>,
) -> io::Result<()> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if [c".", c".."].contains(&name) {
            continue;
        }
        let status = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            // A server that runs deletes files.
            Err(rustix::io::Errno::NOENT) => continue,
            status => status?,
        };
        match FileType::from_raw_mode(status.st_mode) {
            FileType::Directory => match openat(directory, name, FLAGS, Mode::empty()) {
                Err(rustix::io::Errno::NOENT) => {}
                below => walk(&below?, visit)?,
            },
            FileType::RegularFile if status.st_nlink == 1 => visit(directory, Found::File(name, status))?,
            _ => visit(directory, Found::Stranger(name))?,
        }
    }
    visit(directory, Found::End(fstat(directory)?))
}

fn give_file(directory: impl AsFd, name: &CStr, status: &Stat, owner: u32) -> io::Result<()> {
    if is_of(status, owner) {
        return Ok(());
    }
    let (user, group) = (Uid::from_raw(owner), Gid::from_raw(owner));
    chownat(directory, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW).map_err(Into::into)
}

/// State of the directory of a server, running or not.
#[derive(Debug, PartialEq, Eq)]
pub struct Inspected {
    /// The account that it belongs to.
    pub owner: u32,
    /// Names of files and directories in it that belong to another account.
    pub of_others: Vec<String>,
    /// Names of what the server did not make.
    pub strangers: Vec<String>,
}

/// Inspects the directory, and changes nothing; `None` if there is none.
///
/// # Errors
/// An error if it cannot be read, or is no directory.
pub fn inspect(data_dir: &Path) -> io::Result<Option<Inspected>> {
    let directory = match openat(CWD, path(data_dir), FLAGS, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        directory => directory?,
    };
    let owner = fstat(&directory)?.st_uid;
    let mut inspected = Inspected { owner, of_others: Vec::new(), strangers: Vec::new() };
    let text = |name: &CStr| String::from_utf8_lossy(name.to_bytes()).into_owned();
    walk(&directory, &mut |_, found| {
        match found {
            Found::File(name, status) if !is_of(&status, owner) => inspected.of_others.push(text(name)),
            Found::Stranger(name) => inspected.strangers.push(text(name)),
            Found::End(status) if !is_of(&status, owner) => {
                inspected.of_others.push("a directory".to_owned());
            }
            Found::File(..) | Found::End(_) => {}
        }
        Ok(())
    })?;
    Ok(Some(inspected))
}

fn is_of(status: &Stat, owner: u32) -> bool {
    (status.st_uid, status.st_gid) == (owner, owner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    /// A data directory as an earlier version has left it.
    fn earlier() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in ["sandcove.db", "sandcove.db-wal", "sandcove.db-shm", "server.json"] {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        for name in ["builds/a.log", "file-sets/team/a"] {
            std::fs::create_dir_all(dir.path().join(name).parent().unwrap()).unwrap();
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        dir
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn own_id() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[test]
    fn files_of_an_earlier_version_are_moved() {
        let dir = earlier();
        let lock = Lock::take(dir.path()).unwrap();
        for _ in 0..2 {
            let directory = path(dir.path());
            drop(prepare(dir.path(), own_id(), &lock).unwrap());
            assert_eq!(names(dir.path()), ["server", "server.json", "server.lock"]);
            assert_eq!(names(&directory), ["builds", "file-sets", "lock", "sandcove.db", "sandcove.db-wal"]);
            assert_eq!(
                std::fs::read_to_string(directory.join("file-sets/team/a")).unwrap(),
                "file-sets/team/a"
            );
            assert_eq!(directory.metadata().unwrap().mode() & 0o777, 0o700);
        }
    }

    #[test]
    fn a_move_that_was_interrupted_goes_on() {
        // After each number of steps.
        for done in 0..=MOVED.len() {
            let dir = earlier();
            std::fs::create_dir(path(dir.path())).unwrap();
            for name in &MOVED[..done] {
                std::fs::rename(dir.path().join(name), path(dir.path()).join(name)).unwrap();
            }
            let lock = Lock::take(dir.path()).unwrap();
            prepare(dir.path(), own_id(), &lock).unwrap();
            assert_eq!(
                names(&path(dir.path())),
                ["builds", "file-sets", "lock", "sandcove.db", "sandcove.db-wal"]
            );
        }
    }

    #[test]
    fn a_second_database_is_not_overwritten() {
        let dir = earlier();
        std::fs::create_dir(path(dir.path())).unwrap();
        std::fs::write(database(dir.path()), "newer").unwrap();
        let lock = Lock::take(dir.path()).unwrap();
        let error = prepare(dir.path(), own_id(), &lock).unwrap_err();
        assert!(format!("{error:#}").contains("remove one of them"), "{error:#}");
        assert_eq!(std::fs::read_to_string(database(dir.path())).unwrap(), "newer");
    }

    #[test]
    fn links_and_names_of_other_files_are_left_alone() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let lock = Lock::take(dir.path()).unwrap();
        prepare(dir.path(), 60_001, &lock).unwrap();
        let directory = path(dir.path());
        let outside = dir.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("secret"), "").unwrap();
        symlink(&outside, directory.join("a-link")).unwrap();
        std::fs::hard_link(outside.join("secret"), directory.join("another-name")).unwrap();
        std::fs::write(directory.join("own"), "").unwrap();
        for owner in [60_002, 0] {
            prepare(dir.path(), owner, &lock).unwrap();
            for path in [&outside, &outside.join("secret")] {
                assert_eq!(path.metadata().unwrap().uid(), 0);
            }
            for path in [&directory, &directory.join("own")] {
                assert_eq!((path.metadata().unwrap().uid(), path.metadata().unwrap().gid()), (owner, owner));
            }
        }
    }

    #[test]
    fn what_does_not_belong_into_the_directory_is_found() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(inspect(dir.path()).unwrap(), None);
        let directory = path(dir.path());
        std::fs::create_dir_all(directory.join("builds")).unwrap();
        std::fs::write(directory.join("builds/log"), "").unwrap();
        symlink("/etc", directory.join("builds/a-link")).unwrap();
        let found = inspect(dir.path()).unwrap().unwrap();
        assert_eq!((found.owner, found.of_others), (own_id(), vec![]));
        assert_eq!(found.strangers, ["a-link"]);
        std::fs::remove_dir_all(&directory).unwrap();
        symlink("/etc", &directory).unwrap();
        assert!(inspect(dir.path()).is_err());
    }

    #[test]
    fn a_database_that_is_no_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(claim(dir.path()).unwrap(), None);
        std::fs::create_dir(path(dir.path())).unwrap();
        symlink("/etc/passwd", database(dir.path())).unwrap();
        let error = claim(dir.path()).unwrap_err().to_string();
        assert!(error.ends_with("is not a file"), "{error}");
    }

    #[test]
    fn files_that_somebody_put_there_are_claimed_for_the_account() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let lock = Lock::take(dir.path()).unwrap();
        drop(prepare(dir.path(), 60_001, &lock).unwrap());
        drop(lock);
        // As from a backup.
        std::fs::write(database(dir.path()), "").unwrap();
        assert_eq!(claim(dir.path()).unwrap(), Some(60_001));
        assert_eq!(database(dir.path()).metadata().unwrap().uid(), 60_001);
    }
}
