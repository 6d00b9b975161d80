//! Releasing the resources that servers of a data directory hold on this host, with a database or without.

use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};

use super::host::blocking;
use crate::cgroup::Cgroups;
use crate::instance::Instance;
use crate::net::{Firewall, Links, link_prefix};
use crate::pool::Pool;
use crate::{Error, Result, SweepReport};

/// Number of slots emptied at a time.
const MAX_CONCURRENT: usize = 16;
/// Timeout for spawners to exit after their sandboxes have ended.
const SPAWNER_TIMEOUT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(5);

/// Name of the parent control group of an instance.
pub(super) fn group_name(instance: u32) -> String {
    format!("sandcove{instance}")
}

/// Whether sandboxes of the instance run, or may run.
pub(super) fn in_use(instance: u32) -> bool {
    Cgroups::find(&group_name(instance)).map_or(true, |cgroups| !cgroups.are_empty())
}

/// Removes the firewall and the parent control groups and unmounts the pool, unless a sandbox needs them.
pub(super) async fn remove_shared(
    data_dir: &Path,
    instance: u32,
    cgroups: &Cgroups,
    report: &mut SweepReport,
) {
    if !cgroups.are_empty() {
        return;
    }
    note(report, "firewall".into(), Firewall::remove(instance).await);
    cgroups.close();
    let data_dir = data_dir.to_owned();
    note(report, "pool mount".into(), blocking(move || Pool::close(&data_dir)).await);
}

/// Extent of a [`purge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The contents of the pool too.
    Everything,
    /// Processes and what they need on the host, as at a reboot. Files stay.
    Running,
}

/// Ends every process of every sandbox of `data_dir` and removes all its resources on this host: interfaces, control groups,
/// firewall, mounts, loop device, and with [`Extent::Everything`] the contents of the pool. The caller holds the lock of the directory. `data_dir` is
/// absolute and without symbolic links.
///
/// # Errors
/// When a process does not end or something cannot be removed; a second call continues from there.
pub async fn purge(data_dir: &Path, extent: Extent) -> Result<SweepReport> {
    let mut report = SweepReport::default();
    if Instance::of(data_dir).is_some() {
        let instance = Instance::claim(data_dir, in_use)?;
        let number = instance.number();
        let cgroups = Cgroups::find(&group_name(number))?;
        let mut emptied = stream::iter(cgroups.slots())
            .map(|slot| {
                let cgroups = cgroups.clone();
                async move { (slot, blocking(move || cgroups.remove(slot)).await) }
            })
            .buffer_unordered(MAX_CONCURRENT);
        while let Some((slot, result)) = emptied.next().await {
            note(&mut report, format!("slot {slot}"), result);
        }
        let links = Links::open()?;
        for link in links.list(&link_prefix(number)).await? {
            note(&mut report, link.clone(), links.delete(&link).await);
        }
        let pool = data_dir.join("pool");
        blocking(move || end_spawners(&pool)).await?;
        remove_shared(data_dir, number, &cgroups, &mut report).await;
        if report.failed.is_empty() {
            let path = Path::new("/run/sandcove").join(number.to_string());
            instance.give_up().map_err(|source| Error::Path { action: "remove", path, source })?;
        }
    }
    if report.failed.is_empty() {
        let directory = data_dir.to_owned();
        let end = match extent {
            Extent::Everything => Pool::erase,
            Extent::Running => Pool::close,
        };
        note(&mut report, "pool".into(), blocking(move || end(&directory)).await);
    }
    Ok(report)
}

/// Adds the outcome of one removal to `report`.
pub(super) fn note(report: &mut SweepReport, name: String, result: Result<()>) {
    match result {
        Ok(()) => report.removed.push(name),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, leftover = %name, "failed to remove a leftover");
            report.failed.push(name);
        }
    }
}

/// Waits for the spawners of this pool to exit, and kills those that do not: they keep the pool mounted.
fn end_spawners(pool: &Path) -> Result<()> {
    let deadline = Instant::now() + SPAWNER_TIMEOUT;
    loop {
        let left = spawners(pool);
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            for pid in left {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        if Instant::now() > deadline + SPAWNER_TIMEOUT {
            return Err(Error::Kernel {
                action: "end the spawner".into(),
                source: std::io::ErrorKind::TimedOut.into(),
            });
        }
        std::thread::sleep(POLL);
    }
}

fn spawners(pool: &Path) -> Vec<rustix::process::Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_ours = |line: &[u8]| {
        let mut words = line.split(|byte| *byte == 0).skip(1);
        words.next() == Some(b"__spawner") && words.next() == Some(pool.as_os_str().as_encoded_bytes())
    };
    entries
        .filter(|entry| std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| is_ours(&line)))
        .filter_map(|entry| rustix::process::Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
        .collect()
}
