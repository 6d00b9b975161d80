//! `sandcove restore`: fills an empty data directory from a backup. Whatever fails, nothing of it stays.

use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use rustix::fs::{CWD, Mode, OFlags, openat};
use sandcove_backup::{Manifest, Reader, Restored};
use sandcove_isolate::{Kept, Refill, Shelf};
use sandcove_server::store::backup::schema;
use serde_json::json;

use super::backup::{Progress, summary};
use super::purge;
use crate::data_dir::Lock;
use crate::output::{note, out};
use crate::server_dir;
use crate::settings::Settings;

/// Name of the database in a backup. It gets its own name when everything else is there and the digest has been compared.
pub(super) const DATABASE: &str = "server/restored.db";
/// Name of the configuration file of the server that was backed up.
pub(super) const SETTINGS: &str = "sandcove.toml";

/// Arguments of `restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// file that `sandcove backup` wrote; `-` reads standard input
    file: PathBuf,
    /// print a summary as JSON
    #[arg(long)]
    json: bool,
}

/// Restores a backup into the data directory, which must be empty or missing.
pub async fn restore(settings: &Settings, args: RestoreArgs) -> Result<ExitCode> {
    if !rustix::process::geteuid().is_root() {
        bail!("a restore needs root: it creates the files of all sandboxes\nhint: run the command with sudo");
    }
    let (data_dir, size_gib) = (settings.data_dir.clone(), settings.pool_size_gib);
    let file = args.file.clone();
    let (manifest, restored) =
        tokio::task::spawn_blocking(move || read(&file, &data_dir, size_gib)).await??;
    let data_dir = settings.data_dir.display();
    if args.json {
        out!(
            "{}",
            json!({
                "dataDir": settings.data_dir,
                "version": manifest.version,
                "schema": manifest.schema,
                "createdAt": manifest.created_at,
                "counts": manifest.counts,
                "contentBytes": restored.bytes,
                "sha256": restored.sha256,
            })
        );
        return Ok(ExitCode::SUCCESS);
    }
    note!("restored {} to `{data_dir}`, as of {:.0}", summary(&manifest.counts), manifest.created_at);
    if settings.data_dir.join(SETTINGS).exists() {
        note!(
            "the settings of that server are in `{data_dir}/{SETTINGS}`; they are used only where --config names them"
        );
    }
    note!(
        "hint: start the server with `sandcove up --data-dir {data_dir}`; do not run it beside the one that was backed up"
    );
    Ok(ExitCode::SUCCESS)
}

fn read(file: &Path, data_dir: &Path, size_gib: Option<u64>) -> Result<(Manifest, Restored)> {
    if file == Path::new("-") {
        return fill(io::stdin().lock(), data_dir, size_gib);
    }
    let failed = || format!("failed to read `{}`", file.display());
    let input = File::open(file).with_context(failed)?;
    let progress = Progress::new("restore", input.metadata().ok().map(|found| found.len()));
    fill(progress.reader(input), data_dir, size_gib)
        .with_context(|| format!("failed to restore `{}`", file.display()))
}

fn fill(input: impl Read, data_dir: &Path, size_gib: Option<u64>) -> Result<(Manifest, Restored)> {
    let reader = Reader::open(input)?;
    let manifest = reader.manifest().clone();
    check(&manifest)?;
    let is_new = !data_dir.exists();
    require_empty(data_dir)?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(data_dir)
        .with_context(|| format!("failed to create `{}`", data_dir.display()))?;
    let data_dir = &data_dir.canonicalize()?;
    let lock = Lock::take(data_dir)?;
    let restored = write(reader, &manifest, data_dir, size_gib);
    if restored.is_err() {
        let removed = Refill::erase(data_dir).map_err(Into::into).and_then(|()| purge::remove_own(data_dir));
        if let Err(error) = removed {
            note!("failed to remove what was restored so far ({error:#}); `sandcove purge` does");
        } else if is_new {
            let _ = std::fs::remove_dir(data_dir);
        }
    }
    drop(lock);
    Ok((manifest, restored?))
}

/// Refuses a backup of a later version, and one that names anything but objects of the pool.
fn check(manifest: &Manifest) -> Result<()> {
    if manifest.schema > schema() {
        bail!(
            "the backup was made by sandcove {}, whose database is newer (schema {}) than that of this version, {} (schema {})\n\
             hint: restore it with that version or a later one",
            manifest.version,
            manifest.schema,
            env!("CARGO_PKG_VERSION"),
            schema()
        );
    }
    match manifest.subvolumes.keys().find(|name| object(name).is_none()) {
        Some(name) => bail!("the backup has the subvolume `{name}`: it was not made by Sandcove"),
        None => Ok(()),
    }
}

/// The object of the pool with this name.
fn object(name: &str) -> Option<(Shelf, &str)> {
    let (shelf, name) = name.strip_prefix("pool/")?.split_once('/')?;
    let is_plain = !name.is_empty() && !name.contains(['/', '\0']) && !name.starts_with('.');
    Shelf::ALL.into_iter().find(|known| known.name() == shelf).filter(|_| is_plain).map(|shelf| (shelf, name))
}

/// Refuses a directory with anything but an empty pool, which may be a file system of its own.
fn require_empty(data_dir: &Path) -> Result<()> {
    let entries = match std::fs::read_dir(data_dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(|| format!("failed to read `{}`", data_dir.display()))?,
    };
    for entry in entries {
        let name = entry?.file_name();
        let is_empty = name == "pool"
            && std::fs::read_dir(data_dir.join("pool")).is_ok_and(|mut all| all.next().is_none());
        if !is_empty {
            bail!(
                "`{}` is not empty: a backup is restored into an empty data directory\n\
                 hint: choose another one with --data-dir, or remove this one with `sandcove purge`",
                data_dir.display()
            );
        }
    }
    Ok(())
}

fn write(
    reader: Reader<'_>,
    manifest: &Manifest,
    data_dir: &Path,
    size_gib: Option<u64>,
) -> Result<Restored> {
    let pool = Refill::create(data_dir, size_gib).context("failed to create the pool")?;
    let root = openat(CWD, data_dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let restored = reader.restore(&root, &mut |name| match object(name) {
        Some((shelf, name)) => pool.begin(shelf, name),
        None => Err(io::ErrorKind::InvalidInput.into()),
    })?;
    pool.sync()?;
    for (name, subvolume) in &manifest.subvolumes {
        let kept = Kept { room: subvolume.room, account: subvolume.account };
        if let Some((shelf, name)) = object(name) {
            pool.finish(shelf, name, kept)?;
        }
    }
    pool.sync()?;
    drop(root);
    pool.close()?;
    let database = server_dir::database(data_dir);
    std::fs::rename(data_dir.join(DATABASE), &database)
        .and_then(|()| File::open(server_dir::path(data_dir))?.sync_all())
        .and_then(|()| rustix::fs::syncfs(File::open(data_dir)?).map_err(Into::into))
        .with_context(|| format!("failed to write `{}`", database.display()))?;
    Ok(restored)
}

#[cfg(test)]
mod tests {
    use sandcove_backup::{Counts, FORMAT, Subvolume};

    use super::*;

    fn manifest(schema: i64, subvolume: &str) -> Manifest {
        Manifest {
            format: FORMAT,
            version: "9.8.7".into(),
            schema,
            created_at: jiff::Timestamp::UNIX_EPOCH,
            counts: Counts::default(),
            subvolumes: [(subvolume.to_owned(), Subvolume::default())].into(),
        }
    }

    #[test]
    fn a_newer_database_is_refused_before_anything_is_written() {
        check(&manifest(schema(), "pool/volumes/a")).unwrap();
        let (archive, _) =
            sandcove_backup::Writer::new(Vec::new(), &manifest(schema() + 1, "pool/volumes/a"), 0)
                .unwrap()
                .finish()
                .unwrap();
        let directory = tempfile::tempdir().unwrap();
        let data_dir = directory.path().join("data");
        let error = fill(&archive[..], &data_dir, None).unwrap_err().to_string();
        assert!(
            error.contains("made by sandcove 9.8.7") && error.contains("hint: restore it with"),
            "{error}"
        );
        assert!(!data_dir.exists());
    }

    #[test]
    fn subvolumes_are_objects_of_the_pool() {
        for name in [
            "server",
            "pool/volumes",
            "pool/volumes/../x/y",
            "pool/volumes/.x",
            "pool/else/x",
            "pool/volumes/",
        ] {
            assert!(check(&manifest(0, name)).is_err(), "{name}");
        }
    }

    #[test]
    fn only_an_empty_directory_is_filled() {
        let directory = tempfile::tempdir().unwrap();
        require_empty(&directory.path().join("missing")).unwrap();
        std::fs::create_dir(directory.path().join("pool")).unwrap();
        require_empty(directory.path()).unwrap();
        std::fs::write(directory.path().join("pool/file"), "").unwrap();
        let error = require_empty(directory.path()).unwrap_err().to_string();
        assert!(error.contains("is not empty") && error.contains("sandcove purge"), "{error}");
    }
}
