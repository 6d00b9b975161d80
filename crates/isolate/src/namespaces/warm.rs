//! Warm processes: per template one interpreter that has done its imports and waits in a jail of its own to be forked into
//! new sandboxes. The start of an interpreter, a second or more, is paid once, before any request.
//!
//! The user namespace of a warm process is the parent of its sandboxes' user namespaces, so it may enter these and no
//! others. When a warm process dies, sandboxes start their interpreters cold until it is replaced.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use sandcove_wire::boot::WARM_COMMAND;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::{Blueprint, Error, Result, jail, packet};

/// Prefix of the directory names of warm processes; ids of sandboxes begin with an `i`.
pub(super) const WARM_PREFIX: &str = "warm";

/// A warm process to keep running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WarmSpec {
    /// Layers of the template, topmost first: sandboxes of exactly these layers get forks of the process.
    pub(super) layers: Vec<PathBuf>,
    /// Program and arguments. Descriptor 3 is the control socket: the process writes one byte when it is warm, then
    /// forks for every message (see [`Enter`]).
    pub(super) command: Vec<String>,
}

impl WarmSpec {
    /// Describes the warm process for sandboxes of `blueprint`.
    pub(super) fn of(blueprint: &Blueprint) -> Self {
        Self { layers: blueprint.layers.clone(), command: WARM_COMMAND.map(str::to_owned).to_vec() }
    }
}

/// The warm processes, by layers.
#[derive(Default)]
pub(super) struct WarmProcesses {
    /// Processes that are kept running, each with the token that ends it.
    kept: Mutex<Vec<(WarmSpec, CancellationToken)>>,
    ready: Mutex<HashMap<Vec<PathBuf>, Arc<WarmProcess>>>,
}

/// A warm process that is ready.
pub(super) struct WarmProcess {
    pub(super) user_namespace: OwnedFd,
    pub(super) control: OwnedFd,
}

/// Message to a warm process: fork, enter the jail, serve. Descriptors: the pidfd of the jail's first process, the control
/// socket to serve there, and the `cgroup.procs` files for the fork to join.
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

    /// Registers the process for `spec` and returns the token that ends it; `None` when it is registered already.
    pub(super) fn begin(&self, spec: &WarmSpec) -> Option<CancellationToken> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.iter().any(|(known, _)| known == spec) {
            return None;
        }
        let end = CancellationToken::new();
        kept.push((spec.clone(), end.clone()));
        Some(end)
    }

    /// Ends the process for these layers for good.
    pub(super) fn remove(&self, layers: &[PathBuf]) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, end) in kept.extract_if(.., |(spec, _)| spec.layers == layers) {
            end.cancel();
        }
    }

    /// Adds a process that is ready.
    pub(super) fn insert(&self, layers: Vec<PathBuf>, process: WarmProcess) {
        self.lock().insert(layers, Arc::new(process));
    }

    /// Takes out a process that is no longer ready.
    pub(super) fn take_out(&self, layers: &[PathBuf]) {
        self.lock().remove(layers);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Vec<PathBuf>, Arc<WarmProcess>>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WarmProcess {
    /// The user namespace that its sandboxes' user namespaces are created in.
    pub(super) fn user_namespace(&self) -> &OwnedFd {
        &self.user_namespace
    }

    /// Asks the process to fork into a jail, join the control groups with the files `groups`, and serve `socket` there.
    /// The socket closes if the fork fails.
    pub(super) fn enter(
        &self,
        groups: Vec<PathBuf>,
        pidfd: BorrowedFd<'_>,
        socket: &OwnedFd,
    ) -> std::io::Result<()> {
        let groups: Vec<File> = groups
            .into_iter()
            .map(|path| OpenOptions::new().write(true).open(path))
            .collect::<std::io::Result<_>>()?;
        let filter = jail::refusals().map_err(std::io::Error::other)?;
        let message = Enter {
            capabilities: jail::kept_mask(),
            seccomp: filter.iter().map(|byte| format!("{byte:02x}")).collect(),
        };
        let fds: Vec<BorrowedFd<'_>> =
            [pidfd, socket.as_fd()].into_iter().chain(groups.iter().map(AsFd::as_fd)).collect();
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
