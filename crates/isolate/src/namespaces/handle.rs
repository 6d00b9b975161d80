//! A running sandbox, as the server holds it.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Signal, pidfd_send_signal};
use sandcove_wire::id::SandboxId;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::{Host, process, record};
use crate::{Error, ExitReason, Files, NetworkPolicy, Record, Result, Usage};

/// How long killed processes may take to be gone.
const KILL_DEADLINE: Duration = Duration::from_secs(15);

/// A sandbox of this backend; see [`crate::Handle`].
#[derive(Clone)]
pub struct Handle {
    live: Arc<Live>,
}

struct Live {
    host: Arc<Host>,
    record: Record,
    pidfd: AsyncFd<OwnedFd>,
    network_namespace: OwnedFd,
    ended: Mutex<bool>,
}

impl Handle {
    /// Opens what `record` describes; `None` when that process has ended.
    ///
    /// # Errors
    /// When it cannot be told, or the process is not where it belongs: that is no proof that it has ended.
    pub(super) fn open(host: Arc<Host>, record: Record) -> Result<Option<Self>> {
        let failed = |source| Error::Kernel { action: format!("look at process {}", record.pid), source };
        let Some(pidfd) = process::find(record.pid, record.start_ticks).map_err(failed)? else {
            return Ok(None);
        };
        if !host.cgroups.contains(record.slot, record.pid)? {
            return match process::user(record.pid) {
                Ok(user) if user == host.addresses.id_base(record.slot) => Err(Error::Unproven {
                    id: record.id.to_string(),
                    reason: format!("process {} runs, but not in control group s{}", record.pid, record.slot),
                }),
                // Another process, which started in the same tick of another boot.
                Ok(_) => Ok(None),
                Err(error) if process::is_gone(&error) => Ok(None),
                Err(error) => Err(failed(error)),
            };
        }
        let namespace = format!("/proc/{}/ns/net", record.pid);
        let network_namespace = match open(&namespace, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(namespace) => namespace,
            Err(error) if process::is_gone(&error.into()) => return Ok(None),
            Err(error) => {
                return Err(Error::Path { action: "open", path: namespace.into(), source: error.into() });
            }
        };
        let pidfd = crate::sys::watch(pidfd).map_err(failed)?;
        let ended = Mutex::new(false);
        Ok(Some(Self { live: Arc::new(Live { host, record, pidfd, network_namespace, ended }) }))
    }

    pub(crate) fn record(&self) -> &Record {
        &self.live.record
    }

    pub(crate) async fn connect(&self, port: u16) -> std::io::Result<TcpStream> {
        self.live.host.dialer.connect(&self.live.network_namespace, port).await
    }

    pub(crate) fn control_socket(&self) -> PathBuf {
        self.live.host.run_dir(&self.live.record.id).join("control.sock")
    }

    pub(crate) async fn wait(&self) -> ExitReason {
        // A process descriptor turns readable when the process ends, and stays so.
        let _ = self.live.pidfd.readable().await;
        ExitReason::Gone
    }

    pub(crate) async fn usage(&self) -> Result<Usage> {
        let live = self.live.clone();
        blocking(move || {
            let mut usage = live.host.cgroups.usage(live.record.slot)?;
            usage.disk_bytes = live.host.pool.used_bytes(&live.record.id);
            Ok(usage)
        })
        .await
    }

    pub(crate) async fn set_network(&self, policy: NetworkPolicy) -> Result<()> {
        let Live { host, record, .. } = &*self.live;
        host.firewall.set(record.slot, &policy).await?;
        record::write(&host.run_dir(&record.id), &Record { network: policy, ..record.clone() })
    }

    pub(super) fn host(&self) -> &Arc<Host> {
        &self.live.host
    }

    /// Whether its processes are gone and all it held was given back, or will be.
    pub(super) fn ended(&self) -> &Mutex<bool> {
        &self.live.ended
    }

    /// Kills everything in it and waits until nothing runs.
    pub(super) async fn end_processes(&self) -> Result<()> {
        let Live { host, record, pidfd, .. } = &*self.live;
        host.cgroups.kill(record.slot);
        // The kernel ends every process of a PID namespace with its first one.
        let _ = pidfd_send_signal(pidfd.get_ref().as_fd(), Signal::KILL);
        // Version 1: a frozen process does not die before it is thawed.
        let _ = host.cgroups.freeze(record.slot, false);
        if tokio::time::timeout(KILL_DEADLINE, self.wait()).await.is_err() {
            return Err(Error::Kernel {
                action: format!("kill process {}", record.pid),
                source: std::io::ErrorKind::TimedOut.into(),
            });
        }
        Ok(())
    }

    pub(crate) async fn destroy(self) -> Result<()> {
        let mut ended = self.live.ended.lock().await;
        if *ended {
            return Ok(());
        }
        let killed = self.end_processes().await;
        *ended = true;
        // That nothing runs any more is what a caller waits for. Giving back what it held takes the kernel tens of
        // milliseconds (it waits for every processor to forget the interface), and an overloaded host longer than a caller
        // is asked to wait; a crash or a stop meanwhile is a sweep's work.
        let handle = self.clone();
        self.host().tasks.spawn(async move {
            let (host, id, slot) = (handle.host(), &handle.record().id, handle.record().slot);
            tokio::select! {
                biased;
                _ = handle.wait() => {}
                () = host.stopping.cancelled() => return,
            }
            if let Err(error) = host.release(&[id], slot, Leaving::Nothing).await {
                tracing::error!(sandbox_id = %id, error = &error as &dyn std::error::Error, "not all was given back");
            }
        });
        killed
    }
}

/// What stays of a sandbox whose processes are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    Nothing,
    /// What it wrote.
    Files,
}

impl Files {
    /// What a start that fails leaves of them.
    pub(super) fn leaving(&self) -> Leaving {
        match self {
            Self::Own => Leaving::Files,
            Self::Empty | Self::Snapshot(_) => Leaving::Nothing,
        }
    }
}

impl Host {
    /// Ends whatever runs in `slot` and gives back what was held in it under any of the names `ids`, but what is `leaving`. The
    /// slot is free again only when nothing is left in it.
    pub(super) async fn release(
        self: &Arc<Self>,
        ids: &[&SandboxId],
        slot: u32,
        leaving: Leaving,
    ) -> Result<()> {
        let ids: Vec<SandboxId> = ids.iter().map(|id| (*id).clone()).collect();
        let link = async {
            self.links.delete(&self.addresses.link(slot)).await?;
            let policy =
                ids.iter().find_map(|id| record::read(&self.run_dir(id)).ok()).map(|record| record.network);
            // Only a record says that there was no policy; when in doubt, clear it.
            if policy.is_some_and(|policy| policy == NetworkPolicy::default()) {
                return Ok(());
            }
            self.firewall.set(slot, &NetworkPolicy::default()).await
        };
        let files = {
            let (host, ids) = (self.clone(), ids.clone());
            blocking(move || {
                host.cgroups.remove(slot)?;
                match leaving {
                    Leaving::Nothing => ids.iter().try_for_each(|id| host.pool.delete(id)),
                    Leaving::Files => Ok(()),
                }
            })
        };
        let (link, files) = tokio::join!(link, files);
        link?;
        files?;
        // Last: as long as this directory is there, a sweep knows that something may be left.
        for run_dir in ids.iter().map(|id| self.run_dir(id)) {
            match std::fs::remove_dir_all(&run_dir) {
                Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::Path { action: "delete", path: run_dir, source });
                }
                _ => {}
            }
        }
        self.slots.release(slot);
        Ok(())
    }
}

/// Runs file work off the async threads.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::Kernel {
            action: "run a blocking task".into(),
            source: std::io::Error::other(error.to_string()),
        }),
    }
}
