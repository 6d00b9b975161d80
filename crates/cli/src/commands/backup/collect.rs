//! Collects what a backup has, and writes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{CWD, Mode, OFlags, openat};
use sandcove_backup::{Counts, FORMAT, Manifest, Reading, Subvolume, Writer, Written};
use sandcove_image::{HostCertificates, Languages, LayerStore, Lease, templates};
use sandcove_isolate::{Copies, Shelf};
use sandcove_server::store::backup::{Named, schema};

use super::database::{self, Copied, DatabaseTask, States};
use crate::commands::restore::{DATABASE, SETTINGS};
use crate::output::note;
use crate::server_dir;

/// Attempts to find everything that the database names, beside a server that creates and deletes.
const ATTEMPTS: usize = 5;
/// Files of the data directory beside the pool and the server's own: keys, and how programs of this machine reach the server.
const FILES: [&str; 5] =
    ["secrets.key", "identity.key", "parked.key", "egress-authority.json", "server.json"];

/// Contents of a backup.
pub(super) struct Plan {
    /// The data directory.
    pub(super) data_dir: PathBuf,
    /// The configuration file of the server, if there is one.
    pub(super) settings_file: Option<PathBuf>,
    /// Whether the templates that come with Sandcove are part of it.
    pub(super) has_server_templates: bool,
}

/// Everything that a database names, copied.
struct Taken {
    copies: Copies,
    named: Named,
    /// Names of what was taken.
    shelves: BTreeMap<Shelf, BTreeSet<String>>,
    /// Keep layers from being deleted.
    leases: Vec<Lease>,
    missing: Vec<String>,
}

/// Writes the backup to `out`.
pub(super) fn collect<W: Write>(plan: &Plan, account: u32, out: W) -> Result<(W, Counts, Written)> {
    let directory = server_dir::path(&plan.data_dir);
    let copy = database::copy_in(&directory);
    let written = take(plan, account, &directory).and_then(|taken| write(plan, &taken, &copy, out));
    let removed = database::remove(&copy);
    let written = written?;
    removed?;
    Ok(written)
}

/// Copies the database and what it names, until nothing is missing.
fn take(plan: &Plan, account: u32, directory: &Path) -> Result<Taken> {
    for attempt in 1.. {
        let Copied { named, states } = database::ask(account, directory, DatabaseTask::Copy)?;
        check_names(&named)?;
        let copies = Copies::open(&plan.data_dir)?;
        if attempt == 1 && !copies.are_of_one_moment() {
            note!(
                "the pool is not on btrfs: files that change during the backup may be half old and half new"
            );
        }
        let mut taken =
            Taken { copies, named, shelves: BTreeMap::new(), leases: Vec::new(), missing: Vec::new() };
        taken.all(plan)?;
        // A sandbox that was resumed meanwhile may have written to its files: they do not fit its memory any more.
        let now: States = database::ask(account, directory, DatabaseTask::States)?;
        if let Some(parked) = taken.shelves.get_mut(&Shelf::Parked) {
            parked.retain(|id| now.get(id).is_some_and(|state| states.get(id) == Some(state)));
        }
        if taken.missing.is_empty() || attempt == ATTEMPTS {
            return Ok(taken);
        }
    }
    unreachable!("the last attempt returns")
}

impl Taken {
    fn all(&mut self, plan: &Plan) -> Result<()> {
        let named = self.named.clone();
        self.layers(plan, &named)?;
        for (name, snapshot) in &named.snapshots {
            if !self.one(Shelf::Snapshots, name)? {
                self.missing.push(format!("snapshot {name}"));
            } else if snapshot.has_memory {
                self.one(Shelf::SnapshotMemory, name)?;
            }
        }
        for name in &named.volumes {
            if !self.one(Shelf::Volumes, name)? {
                self.missing.push(format!("volume {name}"));
            }
        }
        for (id, sandbox) in &named.sandboxes {
            // Memory first: without it, a sandbox is one that was paused with its files.
            if sandbox.is_parked {
                self.one(Shelf::Parked, id)?;
            }
            // One that is gone was killed; the next server finds that too.
            self.one(Shelf::Sandboxes, id)?;
        }
        Ok(())
    }

    fn layers(&mut self, plan: &Plan, named: &Named) -> Result<()> {
        let left_out: BTreeSet<String> = if plan.has_server_templates {
            BTreeSet::new()
        } else {
            let certificates = HostCertificates::read(Path::new(HostCertificates::DIRECTORY))?;
            let own = templates(&certificates, Languages::All);
            own.iter().flat_map(|template| &template.layers).map(|layer| layer.id.to_string()).collect()
        };
        let store = LayerStore::open(&plan.data_dir.join("pool/layers"))?;
        for name in named.layers.difference(&left_out) {
            if !name.starts_with(LayerStore::WRITTEN_PREFIX) {
                self.leases.extend(store.lease_named(name)?);
            }
            if !self.one(Shelf::Layers, name)? {
                self.missing.push(format!("layer {name}"));
            }
        }
        Ok(())
    }

    fn one(&mut self, shelf: Shelf, name: &str) -> Result<bool> {
        let is_there = self.copies.take(shelf, name)?;
        if is_there {
            self.shelves.entry(shelf).or_default().insert(name.to_owned());
        }
        Ok(is_there)
    }

    fn names(&self, shelf: Shelf) -> impl Iterator<Item = &String> {
        self.shelves.get(&shelf).into_iter().flatten()
    }

    fn manifest(&self) -> Manifest {
        let mut subvolumes = BTreeMap::new();
        for (shelf, names) in &self.shelves {
            for name in names.iter().filter(|name| self.copies.is_subvolume(*shelf, name)) {
                let account = match shelf {
                    Shelf::Snapshots => self.named.snapshots.get(name).and_then(|snapshot| snapshot.account),
                    _ => None,
                };
                let room = self.copies.room(*shelf, name);
                let subvolume = Subvolume { room, account, read_only: shelf.is_read_only() };
                subvolumes.insert(format!("pool/{}/{name}", shelf.name()), subvolume);
            }
        }
        let sandboxes = || self.names(Shelf::Sandboxes).filter_map(|id| self.named.sandboxes.get(id));
        let running_sandboxes = sandboxes().filter(|sandbox| sandbox.is_running).count();
        Manifest {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            schema: schema(),
            created_at: jiff::Timestamp::now(),
            counts: Counts {
                running_sandboxes,
                paused_sandboxes: sandboxes().count() - running_sandboxes,
                with_memory: self.names(Shelf::Parked).count(),
                snapshots: self.names(Shelf::Snapshots).count(),
                volumes: self.names(Shelf::Volumes).count(),
                layers: self.names(Shelf::Layers).count(),
            },
            subvolumes,
        }
    }
}

fn write<W: Write>(plan: &Plan, taken: &Taken, database: &Path, out: W) -> Result<(W, Counts, Written)> {
    let manifest = taken.manifest();
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get().min(8));
    let mut writer = Writer::new(out, &manifest, u32::try_from(threads).unwrap_or(1))?;
    for name in FILES {
        if let Some(file) = open(&plan.data_dir.join(name), OFlags::empty())? {
            writer.file(name, &File::from(file))?;
        }
    }
    if let Some(file) = &plan.settings_file
        && let Ok(file) = File::open(file)
    {
        writer.file(SETTINGS, &file)?;
    }
    let has_memory =
        [Shelf::Parked, Shelf::SnapshotMemory].iter().any(|shelf| taken.names(*shelf).next().is_some());
    // Processes in memory hold on to the programs that they run.
    let programs: &[&str] = if has_memory { &["libexec", "criu"] } else { &[] };
    for name in [&["tls"], programs].concat() {
        if let Some(directory) = open(&plan.data_dir.join(name), OFlags::DIRECTORY)? {
            writer.tree(name, directory, Reading::Live)?;
        }
    }
    let reading = if taken.copies.are_of_one_moment() { Reading::Frozen } else { Reading::Live };
    writer.directory("pool", 0o755)?;
    for shelf in Shelf::ALL {
        let at = format!("pool/{}", shelf.name());
        writer.directory(&at, 0o700)?;
        for name in taken.names(shelf) {
            let directory = taken.copies.open_copy(shelf, name)?;
            writer.tree(&format!("{at}/{name}"), directory.into(), reading)?;
        }
    }
    writer.directory("server", 0o700)?;
    for name in ["acme", "audit", "builds"] {
        if let Some(directory) = open(&server_dir::path(&plan.data_dir).join(name), OFlags::DIRECTORY)? {
            writer.tree(&format!("server/{name}"), directory, Reading::Live)?;
        }
    }
    // Last: a data directory that is filled halfway is not taken for a complete one.
    let Some(file) = open(database, OFlags::empty())? else { bail!("the copy of the database is gone") };
    writer.file(DATABASE, &File::from(file))?;
    let (out, mut written) = writer.finish()?;
    written.skipped.extend(taken.missing.iter().map(|what| format!("{what}: it is not in the pool")));
    Ok((out, manifest.counts, written))
}

/// Opens a file or directory; no link, which may be somebody else's. `None` if there is none.
fn open(path: &Path, flags: OFlags) -> Result<Option<OwnedFd>> {
    let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match openat(CWD, path, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => Ok(None),
        opened => opened.map(Some).with_context(|| format!("failed to open `{}`", path.display())),
    }
}

/// Checks that what a database names are names, and no paths: the server writes it.
fn check_names(named: &Named) -> Result<()> {
    let is_plain = |name: &str| {
        let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        !name.is_empty() && !name.starts_with('.') && name.bytes().all(is_usual)
    };
    let names =
        named.sandboxes.keys().chain(named.snapshots.keys()).chain(&named.volumes).chain(&named.layers);
    match names.into_iter().find(|name| !is_plain(name)) {
        Some(name) => {
            bail!("the database of the server has the name `{name}`, which is not one of Sandcove's")
        }
        None => Ok(()),
    }
}
