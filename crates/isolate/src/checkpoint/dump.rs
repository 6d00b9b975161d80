//! Storing the processes of a frozen sandbox with CRIU.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use super::generation::Begun;
use super::refusal::refused;
use super::{
    attributes, descriptor_refusal, foreign, images, inotify, mappings, network_refusal, refusal, sockets,
    terminals,
};
use crate::criu::{Program, first_error};
use crate::jail::FOREIGN;
use crate::net::Dialer;
use crate::{Error, Result};

/// Time after which CRIU is killed: it may wait for a process that does not let itself be traced.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Interval between two looks whether CRIU has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
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
pub(crate) struct Subject<'a> {
    /// Host pid of PID 1.
    pub(crate) pid: u32,
    /// Host pids of all processes.
    pub(crate) pids: &'a [u32],
    /// The control group that is frozen.
    pub(crate) group: PathBuf,
    /// Whether the group is of version 1.
    pub(crate) is_first_version: bool,
    /// The sandbox's network namespace.
    pub(crate) network: &'a OwnedFd,
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
    subject: &Subject<'_>,
    begun: &Begun,
) -> Result<()> {
    let directory = begun.path();
    let failed = |source| Error::Kernel { action: format!("store process {}", subject.pid), source };
    let mountinfo = std::fs::read_to_string(format!("/proc/{}/mountinfo", subject.pid)).map_err(failed)?;
    let mounts = Mounts::parse(&mountinfo).ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))?;
    refusal::check(subject.pids, subject.is_first_version)?;
    let reason = network_refusal::reason(subject.pids).or_else(|| descriptor_refusal::reason(subject.pids));
    if let Some(reason) = reason {
        return Err(refused(reason));
    }
    let watchers = inotify::find(subject.pids, directory, &mounts.devices)?;
    let foreign = foreign::find(subject.pids, &mounts.numbers).map_err(failed)?;

    let program = criu.command();
    let (loader, arguments) = program.split_first().ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
    let lock = begun.lock().try_clone().map_err(failed)?;
    let mut command = Command::new(loader);
    command
        .args(arguments)
        .arg("dump")
        .args(["--tree", &subject.pid.to_string(), "--images-dir"])
        .arg(directory)
        .args(["--log-file", LOG, "--no-default-config", "--leave-running", "--network-lock", "skip"])
        .args(["--ghost-limit", "1G", "--freeze-cgroup"])
        .arg(&subject.group)
        .args(COMMON)
        .args(subject.may_skip.then_some("--skip-in-flight"))
        .args(mounts.built.iter().map(|path| format!("--external=mnt[{path}]:{path}")))
        .args(foreign.keys().map(|name| format!("--external={name}")))
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .current_dir("/")
        .stdin(Stdio::from(lock))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // The namespace belongs to the user namespace above the sandbox's, which is not stored: CRIU has to be inside.
    let child = dialer.create(subject.network, move || command.spawn()).await.map_err(failed)?;
    let status = wait(child).await.map_err(failed)?;
    let log = directory.join(LOG);
    match status {
        Some(status) if status.success() => {}
        Some(_) => return Err(refused(first_error(&std::fs::read_to_string(log).unwrap_or_default()))),
        None => return Err(refused(format!("CRIU did not end within {} s", TIMEOUT.as_secs()))),
    }
    if images::have_semaphores(directory).map_err(failed)? {
        return Err(refused("it has semaphores of System V".into()));
    }
    images::correct(directory).map_err(failed)?;
    mappings::separate(directory).map_err(failed)?;
    terminals::store(subject.pids, directory).map_err(failed)?;
    attributes::store(subject.pids, directory).map_err(failed)?;
    sockets::store(subject.pids, directory).map_err(failed)?;
    inotify::store(&watchers, directory).map_err(failed)?;
    let foreign = serde_json::to_vec(&foreign).map_err(|error| failed(error.into()))?;
    std::fs::write(directory.join(FOREIGN), foreign).map_err(failed)
}

/// Waits for a process without a signal handler, which the server does not have; `None` when it had to be killed.
async fn wait(mut child: Child) -> io::Result<Option<ExitStatus>> {
    let ended = async {
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
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
