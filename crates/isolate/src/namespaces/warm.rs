//! Warm processes: for each template with the code interpreter, one Python process that has done the imports of its kernels, and
//! waits in a jail of its own to be forked into new sandboxes. The fork is the sandbox's zygote, from which kernels are forked. So the
//! start of Python with its libraries, a second or more, is paid once, before any request.
//!
//! A warm process runs code of its template, which may be hostile. The user and PID namespaces of its sandboxes are made in its
//! own, so it may enter these and no others (docs/decisions/0014-a-warm-process-is-a-tenant.md). When a warm process dies, new
//! sandboxes start zygotes of their own, cold, until it is replaced.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};

use sandcove_wire::boot::{ENV_PYTHON, PYTHON, WARM_ARGUMENTS};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::process;
use super::warm_priority::{Raised, WarmPriority};
use crate::cgroup::Cgroups;
use crate::checkpoint::{Common, Process};
use crate::jail::Parent;
use crate::{Blueprint, Error, Limits, Result, WarmState, jail, packet};

/// Prefix of the directory names of warm processes; ids of sandboxes begin with an `i`.
pub(super) const WARM_PREFIX: &str = "warm";

/// Resource limits of a warm process of the server's own templates.
const OWN_LIMITS: Limits = Limits { memory_mib: 4096, cpus: 2, pids: 256, disk_mib: 256 };
/// Bytes of variables that a warm process gets at most: they go to the spawner in one packet.
const MAX_ENVIRONMENT: usize = 24 * 1024;
/// Time for which starts of sandboxes wait for the first start of a process: beyond it, each starts an interpreter of its own.
const FIRST_START_TIMEOUT: Duration = Duration::from_secs(10);

/// A warm process to keep running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WarmSpec {
    /// Layers of the template, topmost first: sandboxes of exactly these layers get forks of the process.
    pub(super) layers: Vec<PathBuf>,
    /// Program and arguments. Descriptor 3 is the control socket: the process writes one byte when it is warm, then
    /// forks for every message (see [`Enter`]).
    pub(super) command: Vec<String>,
    /// Variables beside the usual ones.
    pub(super) env: BTreeMap<String, String>,
    /// Resource limits until it is ready.
    pub(super) limits: Limits,
    /// Whether a stranger has written the template: the process has the lowest priority, gets less memory once it is ready, and is
    /// given up when it fails.
    pub(super) is_foreign: bool,
}

impl WarmSpec {
    /// Describes the warm process for sandboxes of `blueprint`. `memory_mib` is its maximum memory if the template is not the
    /// server's own.
    pub(super) fn of(blueprint: &Blueprint, memory_mib: Option<u64>) -> Self {
        let given = blueprint.warm_service().map(|service| &service.env);
        let python = given.and_then(|env| env.get(ENV_PYTHON)).map_or(PYTHON, String::as_str);
        let mut env = given.cloned().unwrap_or_default();
        if env.iter().map(|(name, value)| name.len() + value.len() + 8).sum::<usize>() > MAX_ENVIRONMENT {
            env.clear();
        }
        env.entry("HOME".to_owned()).or_insert_with(|| "/root".to_owned());
        Self {
            layers: blueprint.layers.clone(),
            command: std::iter::once(python).chain(WARM_ARGUMENTS).map(str::to_owned).collect(),
            env,
            limits: memory_mib.map_or(OWN_LIMITS, |memory_mib| Limits { memory_mib, ..OWN_LIMITS }),
            is_foreign: memory_mib.is_some(),
        }
    }
}

/// A warm process that is kept running.
struct Kept {
    spec: WarmSpec,
    keeping: Keeping,
    state: WarmState,
    /// Present limit of its memory, MiB; 0 when it has failed.
    limit_mib: u64,
}

/// State that a warm process shares with the task that keeps it.
#[derive(Debug, Clone)]
pub(super) struct Keeping {
    /// Ends the process for good.
    pub(super) end: CancellationToken,
    /// Cancelled once the first start of the process has succeeded or failed, and with `end`.
    pub(super) tried: CancellationToken,
    /// Priority of the process.
    pub(super) priority: Arc<WarmPriority>,
}

/// The warm processes, by layers.
#[derive(Default)]
pub(super) struct WarmProcesses {
    kept: Mutex<Vec<Kept>>,
    ready: Mutex<HashMap<Vec<PathBuf>, Arc<WarmProcess>>>,
}

/// A warm process that is ready.
pub(super) struct WarmProcess {
    /// Host pid of the process, and its start time in clock ticks.
    pub(super) pid: u32,
    pub(super) start_ticks: u64,
    /// Whether a stranger has written its template.
    pub(super) is_foreign: bool,
    /// Memory of the process, which its sandboxes have too, once it was asked for.
    pub(super) common: Mutex<Stored>,
    /// Slot that it holds, and in whose control group its forks begin.
    pub(super) slot: u32,
    /// The namespaces that those of its sandboxes are made in.
    pub(super) namespaces: Parent,
    pub(super) control: OwnedFd,
}

/// Memory of a warm process, stored for its sandboxes.
#[derive(Debug, Default)]
pub(super) enum Stored {
    /// Nobody has asked for it yet.
    #[default]
    Unknown,
    /// Failed to be stored, which is not tried again.
    Failed,
    /// Stored in a file, to be compared with.
    Here(Arc<Common>),
}

/// Message to a warm process: fork, enter the sandbox, serve. Descriptors: the sandbox's PID, network and user namespaces, its
/// first process as a pidfd, the socket on which the fork reports, and the control socket to serve.
#[derive(Debug, Serialize)]
struct Enter {
    /// Bit mask of the capabilities to keep.
    capabilities: u64,
    /// The last seccomp filter to load, as hexadecimal.
    seccomp: String,
}

impl WarmProcesses {
    /// The warm process for `layers`, if it is ready.
    pub(super) fn get(&self, layers: &[PathBuf]) -> Option<Arc<WarmProcess>> {
        self.lock().get(layers).cloned()
    }

    /// The warm process for `layers`, for a sandbox that a client waits for. If the process is in its first start, the sandbox waits
    /// with it: it is ahead of an interpreter that this sandbox would start, and both would need the same processors. The process has the
    /// usual priority while the guard exists.
    pub(super) async fn for_client<'a>(
        &self,
        layers: &[PathBuf],
        cgroups: &'a Cgroups,
    ) -> Option<(Arc<WarmProcess>, Raised<'a>)> {
        let Keeping { tried, priority, .. } = self.keeping(layers)?;
        let raised = priority.raise(cgroups);
        if tokio::time::timeout(FIRST_START_TIMEOUT, tried.cancelled()).await.is_err() {
            // The next ones do not wait again.
            tried.cancel();
        }
        self.get(layers).map(|warm| (warm, raised))
    }

    fn keeping(&self, layers: &[PathBuf]) -> Option<Keeping> {
        let kept = self.kept();
        kept.iter().find(|kept| kept.spec.layers == layers).map(|kept| kept.keeping.clone())
    }

    /// Registers the process for `spec`; `None` when there is one for these layers.
    pub(super) fn begin(&self, spec: &WarmSpec) -> Option<Keeping> {
        let mut kept = self.kept();
        if kept.iter().any(|known| known.spec.layers == spec.layers) {
            return None;
        }
        let end = CancellationToken::new();
        let keeping = Keeping { tried: end.child_token(), end, priority: Arc::default() };
        let limit_mib = spec.limits.memory_mib;
        let (spec, state) = (spec.clone(), WarmState::Starting);
        kept.push(Kept { spec, keeping: keeping.clone(), state, limit_mib });
        Some(keeping)
    }

    /// Ends the process for these layers for good.
    pub(super) fn remove(&self, layers: &[PathBuf]) {
        for kept in self.kept().extract_if(.., |kept| kept.spec.layers == layers) {
            kept.keeping.end.cancel();
        }
    }

    /// Notes the state of the process that `end` ends, and its present limit in MiB.
    pub(super) fn note(&self, end: &CancellationToken, layers: &[PathBuf], state: WarmState, limit_mib: u64) {
        let mut kept = self.kept();
        let of = |kept: &&mut Kept| kept.spec.layers == layers && !end.is_cancelled();
        if let Some(kept) = kept.iter_mut().find(of) {
            (kept.state, kept.limit_mib) = (state, limit_mib);
        }
    }

    /// The state of the process for these layers and its present limit in MiB; `None` when none is kept.
    pub(super) fn state(&self, layers: &[PathBuf]) -> Option<(WarmState, u64)> {
        let kept = self.kept();
        let found = kept.iter().find(|kept| kept.spec.layers == layers)?;
        Some((found.state.clone(), found.limit_mib))
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a process that is ready.
    pub(super) fn insert(&self, layers: Vec<PathBuf>, process: WarmProcess) {
        self.lock().insert(layers, Arc::new(process));
    }

    /// Takes out a process that is no longer ready.
    pub(super) fn take_out(&self, layers: &[PathBuf]) {
        self.lock().remove(layers);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Vec<PathBuf>, Arc<WarmProcess>>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WarmProcess {
    /// Memory of the process as it was when it was first asked for, stored then under the name and up to the size that `place` has; `None` when there is no
    /// room, or that fails.
    pub(super) fn common(&self, place: impl FnOnce() -> Option<(PathBuf, u64)>) -> Option<Arc<Common>> {
        let mut stored = self.common.lock().unwrap_or_else(PoisonError::into_inner);
        if let Stored::Unknown = *stored {
            let (path, max_bytes) = place()?;
            *stored = match self.store(path, max_bytes) {
                Ok(common) => Stored::Here(Arc::new(common)),
                Err(error) => {
                    tracing::warn!(%error, pid = self.pid, "the memory of a warm process was not stored");
                    Stored::Failed
                }
            };
        }
        if let Stored::Here(common) = &*stored { Some(common.clone()) } else { None }
    }

    fn store(&self, path: PathBuf, max_bytes: u64) -> std::io::Result<Common> {
        let process = Process::open(self.pid)?;
        // What is open is the process itself, and not another one that has its number now.
        if process::start_ticks(self.pid)? != self.start_ticks {
            return Err(std::io::ErrorKind::NotFound.into());
        }
        Common::store(process, max_bytes, self.is_foreign, path)
    }

    /// Asks the process to fork into the sandbox whose first process is `pid`, to report on `report`, and to serve `served`
    /// there. Both close if the fork fails.
    pub(super) fn enter(&self, pid: u32, report: &OwnedFd, served: &OwnedFd) -> std::io::Result<()> {
        let pidfd = process::open(pid)?;
        let namespace = |name: &str| {
            open(format!("/proc/{pid}/ns/{name}"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        };
        let (processes, network, users) = (namespace("pid")?, namespace("net")?, namespace("user")?);
        let filter = jail::refusals().map_err(std::io::Error::other)?;
        let message = Enter {
            capabilities: jail::kept_mask(),
            seccomp: filter.iter().map(|byte| format!("{byte:02x}")).collect(),
        };
        let fds: [BorrowedFd<'_>; 6] =
            [&processes, &network, &users, &pidfd, report, served].map(|descriptor| descriptor.as_fd());
        // The socket does not block: a process that does not take its messages is as good as dead.
        packet::send(&self.control, &message, &fds)
    }
}

/// Creates a pair of packet sockets of which the first, the server's, does not block.
pub(super) fn nonblocking_pair() -> Result<(OwnedFd, OwnedFd)> {
    let pair = packet::pair().map_err(|source| failed("make a socket pair", source))?;
    rustix::io::ioctl_fionbio(&pair.0, true).map_err(|error| failed("prepare a socket", error.into()))?;
    Ok(pair)
}

fn failed(action: &str, source: std::io::Error) -> Error {
    Error::Kernel { action: action.to_owned(), source }
}
