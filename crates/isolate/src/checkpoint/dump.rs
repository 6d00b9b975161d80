//! Storing the processes of a frozen sandbox with CRIU.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::budget::Budget;
use super::common::Common;
use super::comparison::{Comparison, Pages};
use super::generation::NewGeneration;
use super::inotify::Watcher;
use super::refusal::refused;
use super::{
    attributes, descriptor_refusal, foreign, images, inotify, mappings, network_refusal, refusal, sockets,
    terminals,
};
use crate::criu::{Program, first_error};
use crate::jail::FOREIGN;
use crate::net::Dialer;
use crate::{Error, Result, sys};

/// Time after which CRIU is killed: it may wait for a process that does not let itself be traced.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Interval between two looks whether CRIU has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// How many of these looks pass until the size of the images is looked at.
const SIZE_INTERVAL: u32 = 10;
/// Name of CRIU's log in the directory of the images.
const LOG: &str = "dump.log";
/// Options of a dump, as in [`crate::criu::RestoreOptions`]. Control groups and the network are the server's.
const COMMON: [&str; 6] =
    ["--tcp-established", "--file-locks", "--manage-cgroups=ignore", "--empty-ns", "net", "--ext-unix-sk"];
/// Kinds of file systems that CRIU stores; all others are mounted by the builder of a restore.
const STORED: [&str; 4] = ["proc", "tmpfs", "devpts", "mqueue"];
/// Mounts of such kinds that the builder makes all the same.
const BUILT: [&str; 4] = ["/dev", "/sys", "/proc/vmstat", "/proc/sys/kernel/random/boot_id"];

/// A sandbox to be stored.
pub(crate) struct DumpSource<'a> {
    /// Facts about its processes, of the same freeze.
    pub(crate) found: Found,
    /// The control group that is frozen.
    pub(crate) group: PathBuf,
    /// The sandbox's network namespace.
    pub(crate) network: &'a OwnedFd,
    /// Maximum size of its images, bytes.
    pub(crate) max_bytes: u64,
    /// The file in which CRIU keeps what it knows of the kernel.
    pub(crate) cache: &'a Path,
    /// Memory that it may have in common with others.
    pub(crate) common: Option<Comparison>,
    /// Whether connections may be left out that no process has accepted yet: the sandbox itself goes on, and keeps them.
    pub(crate) may_skip: bool,
}

/// Stores a frozen sandbox in the directory that was begun, corrected for a restore; the sandbox stays frozen.
///
/// CRIU goes on when the server is killed, since processes that it has changed would be lost otherwise. It has the directory as its
/// standard input, and so keeps the directory locked.
pub(crate) async fn dump(
    criu: &Program,
    dialer: &Dialer,
    mut source: DumpSource<'_>,
    begun: &mut NewGeneration,
) -> Result<()> {
    let directory = &begun.path().to_owned();
    let began = Instant::now();
    let Found { pid, pids, mounts, foreign, .. } = &source.found;
    let failed = |source| Error::Kernel { action: format!("store process {pid}"), source };

    let program = criu.command();
    let (loader, arguments) = program.split_first().ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
    let lock = begun.lock().try_clone().map_err(failed)?;
    let (reader, writer) = std::io::pipe().map_err(failed)?;
    let mut command = Command::new(loader);
    command
        .args(arguments)
        .arg("dump")
        .args(["--tree", &pid.to_string(), "--images-dir"])
        .arg(directory)
        .args(["--log-file", LOG, "--no-default-config", "--leave-running", "--network-lock", "skip"])
        .args(["--ghost-limit", "1G", "--freeze-cgroup"])
        .arg(&source.group)
        .args(COMMON)
        .args(source.may_skip.then_some("--skip-in-flight"))
        .args(mounts.built.iter().map(|path| format!("--external=mnt[{path}]:{path}")))
        .args(foreign.keys().map(|name| format!("--external={name}")))
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("SANDCOVE_COMMON", "1")
        .env("SANDCOVE_CACHE", source.cache)
        .current_dir("/")
        .stdin(Stdio::from(lock))
        .stdout(Stdio::from(reader))
        .stderr(Stdio::null());
    sys::start_without_precedence(&mut command);
    // The namespace belongs to the user namespace above the sandbox's, which is not stored: CRIU has to be inside.
    let child = dialer.create(source.network, move || command.spawn()).await.map_err(failed)?;
    let images = Images { directory, max_bytes: source.max_bytes };
    let common = {
        let (common, pids) = (source.common.take(), pids.clone());
        blocking(move || Ok(common.map(|common| common.report(&pids, writer))))
    };
    let (common, status) = tokio::join!(common, wait(child, &images));
    let (common, status) = (common?, status.map_err(failed)?);
    let dumped = began.elapsed();
    let log = directory.join(LOG);
    match status {
        Some(status) if status.success() => {}
        Some(_) if images.are_too_large() => {
            return Err(Error::MemoryTooLarge { max_bytes: source.max_bytes });
        }
        Some(_) => return Err(refused(first_error(&std::fs::read_to_string(log).unwrap_or_default()))),
        None => return Err(refused(format!("CRIU did not end within {} s", TIMEOUT.as_secs()))),
    }
    let (pid, found, directory) = (*pid, source.found, directory.to_owned());
    begun.known = blocking(move || complete(&found, common, &directory)).await?;
    tracing::debug!(pid, ?dumped, completed = ?began.elapsed(), "processes stored");
    Ok(())
}

/// Facts about the processes that are read before CRIU runs.
pub(crate) struct Found {
    /// Host pid of PID 1.
    pid: u32,
    /// Host pids of all processes.
    pids: Arc<[u32]>,
    mounts: Mounts,
    watchers: Vec<Watcher>,
    /// Files that are not on mounts of the sandbox, by CRIU's names for them.
    foreign: BTreeMap<String, PathBuf>,
}

impl Found {
    /// Looks at the frozen processes `pids`, of which `pid` is PID 1, and refuses what cannot be stored. `is_first_version` says that their control
    /// group is of version 1; images go to `directory`.
    ///
    /// # Errors
    /// [`Error::NotStored`] for what cannot be stored, and others when this cannot be determined.
    pub(crate) fn look(pid: u32, pids: Arc<[u32]>, is_first_version: bool, directory: &Path) -> Result<Self> {
        let failed = |source| Error::Kernel { action: format!("store process {pid}"), source };
        let budget = Budget::start();
        let mountinfo = std::fs::read_to_string(format!("/proc/{pid}/mountinfo")).map_err(failed)?;
        let mounts = Mounts::parse(&mountinfo).ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))?;
        refusal::check(&pids, is_first_version, &budget)?;
        let reason = match network_refusal::reason(&pids, &budget)? {
            None => descriptor_refusal::reason(&pids, &budget)?,
            reason => reason,
        };
        if let Some(reason) = reason {
            return Err(refused(reason));
        }
        let watchers = inotify::find(&pids, directory, &mounts.devices, &budget)?;
        let foreign = foreign::find(&pids, &mounts.numbers, &budget)?;
        Ok(Self { pid, pids, mounts, watchers, foreign })
    }
}

/// Corrects the images of CRIU in `directory`, and adds what CRIU does not store, also what is in common; returns the digests of files that have one.
fn complete(
    found: &Found,
    common: Option<(Pages, Arc<Common>)>,
    directory: &Path,
) -> Result<BTreeMap<String, String>> {
    let Found { pid, pids, .. } = found;
    let failed = |source| Error::Kernel { action: format!("store process {pid}"), source };
    let budget = Budget::start();
    if images::have_semaphores(directory).map_err(failed)? {
        return Err(refused("it has semaphores of System V".into()));
    }
    if images::have_too_many_files(directory).map_err(failed)? {
        return Err(refused("its processes have too many open files".into()));
    }
    let linked = match common {
        Some((pages, common)) => common.complete(directory, &pages).map_err(|error| match error.kind() {
            io::ErrorKind::Other => refused(error.to_string()),
            _ => failed(error),
        })?,
        None => None,
    };
    images::correct(directory).map_err(failed)?;
    mappings::separate(directory).map_err(failed)?;
    terminals::store(pids, directory).map_err(failed)?;
    attributes::store(pids, directory).map_err(failed)?;
    sockets::store(pids, directory, &budget)?;
    inotify::store(&found.watchers, directory).map_err(failed)?;
    let foreign = serde_json::to_vec(&found.foreign).map_err(|error| failed(error.into()))?;
    std::fs::write(directory.join(FOREIGN), foreign).map_err(failed)?;
    Ok(linked.into_iter().collect())
}

/// Runs work that blocks on a thread for it: others wait for the threads of the runtime.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let failed = |error: tokio::task::JoinError| Error::Kernel {
        action: "run a blocking task".into(),
        source: io::Error::other(error.to_string()),
    };
    tokio::task::spawn_blocking(work).await.map_err(failed)?
}

/// The images that CRIU is writing. CRIU writes pages that processes share once for each of them, and all blocks of deleted files that share them.
struct Images<'a> {
    directory: &'a Path,
    max_bytes: u64,
}

impl Images<'_> {
    /// Whether they have the maximum size. What cannot be read is not counted.
    fn are_too_large(&self) -> bool {
        let entries = std::fs::read_dir(self.directory).into_iter().flatten().flatten();
        let sizes = entries.filter_map(|entry| Some(entry.metadata().ok()?.len()));
        sizes.sum::<u64>() >= self.max_bytes
    }
}

/// Waits for CRIU without a signal handler, which the server does not have; `None` when it had to be killed. When `images` get too large, its writes
/// fail, so that it leaves the processes as they were.
async fn wait(mut child: Child, images: &Images<'_>) -> io::Result<Option<ExitStatus>> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if images.max_bytes < u64::MAX {
        // No single file gets larger until the first look at all of them.
        let max = Some(images.max_bytes);
        prlimit(pid, Resource::Fsize, Rlimit { current: max, maximum: max })?;
    }
    let ended = async {
        for look in 1_u32.. {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            if look.is_multiple_of(SIZE_INTERVAL) && images.are_too_large() {
                prlimit(pid, Resource::Fsize, Rlimit { current: Some(0), maximum: Some(0) })?;
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        Ok(None)
    };
    match tokio::time::timeout(TIMEOUT, ended).await {
        Ok(ended) => ended,
        Err(_) => {
            child.kill()?;
            child.wait()?;
            Ok(None)
        }
    }
}

/// The mounts of a sandbox.
#[derive(Debug, PartialEq, Eq)]
struct Mounts {
    /// Numbers of all.
    numbers: HashSet<u64>,
    /// Device numbers, as the kernel encodes them, and paths.
    devices: Vec<(u64, PathBuf)>,
    /// Paths of those that the builder makes.
    built: Vec<String>,
}

impl Mounts {
    fn parse(mountinfo: &str) -> Option<Self> {
        let mut mounts = Self { numbers: HashSet::new(), devices: Vec::new(), built: Vec::new() };
        for line in mountinfo.lines() {
            let (mount, file_system) = line.split_once(" - ")?;
            let fields: Vec<&str> = mount.split(' ').collect();
            let (&[number, _, device, _, path], _) = fields.split_first_chunk()?;
            mounts.numbers.insert(number.parse().ok()?);
            let (major, minor) = device.split_once(':')?;
            let device = major.parse::<u64>().ok()? << 20 | minor.parse::<u64>().ok()?;
            mounts.devices.push((device, path.into()));
            let kind = file_system.split(' ').next()?;
            if path != "/" && (BUILT.contains(&path) || !STORED.contains(&kind)) {
                mounts.built.push(path.to_owned());
            }
        }
        Some(mounts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_the_builder_are_told_from_those_that_are_stored() {
        let text = "946 821 0:281 / / rw,nodev - overlay sandcove rw,lowerdir=/layers/0\n\
                    947 946 0:283 / /dev rw,nosuid - tmpfs none rw\n\
                    952 947 0:289 / /dev/pts rw,nosuid - devpts none rw\n\
                    950 955 0:284 / /run/sandcove ro - overlay sandcove ro\n\
                    955 946 0:291 / /run rw - tmpfs none rw\n\
                    988 992 0:280 /class/net /sys/class/net ro - sysfs none rw\n\
                    989 946 0:40 /volumes/v/content /data rw - btrfs /dev/loop0 rw\n";
        let mounts = Mounts::parse(text).unwrap();
        assert_eq!(mounts.built, ["/dev", "/run/sandcove", "/sys/class/net", "/data"]);
        assert_eq!((mounts.numbers.len(), &mounts.devices[1]), (7, &(283, "/dev".into())));
        assert_eq!(Mounts::parse("no mount"), None);
    }
}
