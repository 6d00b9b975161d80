//! A running sandbox of this backend, and the release of its resources.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Signal, pidfd_send_signal};
use tokio::io::unix::AsyncFd;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::host::{Host, Keep, blocking};
use super::{control, process, record};
use crate::checkpoint::Common;
use crate::{Connection, Error, ExitReason, NetworkPolicy, Record, Result, Usage};

/// Timeout for killed processes to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(15);

/// A running sandbox of this backend; see [`crate::Handle`].
#[derive(Clone)]
pub struct RunningSandbox {
    inner: Arc<Inner>,
}

struct Inner {
    host: Arc<Host>,
    record: Record,
    pidfd: AsyncFd<OwnedFd>,
    network_namespace: OwnedFd,
    ended: Mutex<bool>,
    /// Memory that the sandbox had in common with others when it was restored.
    common: OnceLock<Arc<Common>>,
    /// Whether the processes went on for a few moments in this pause, so that they could be stored.
    went_on: AtomicBool,
}

impl RunningSandbox {
    /// Opens the sandbox that a record of an earlier server describes; `None` when its PID 1 has ended.
    ///
    /// # Errors
    /// When this cannot be determined, or PID 1 is not in its control group: that is no proof that it has ended.
    pub(super) fn recorded(host: Arc<Host>, record: Record) -> Result<Option<Self>> {
        let Some(sandbox) = Self::open(host, record)? else { return Ok(None) };
        let Inner { host, record, .. } = &*sandbox.inner;
        if host.cgroups.contains(record.slot, record.pid)? {
            return Ok(Some(sandbox));
        }
        match process::user(record.pid) {
            Ok(user) if user == host.addresses.id_base(record.slot) => Err(Error::Unproven {
                id: record.id.to_string(),
                reason: format!("process {} runs, but not in control group s{}", record.pid, record.slot),
            }),
            // Another process that started in the same tick of another boot.
            Ok(_) => Ok(None),
            Err(error) if process::is_gone(&error) => Ok(None),
            Err(source) => Err(Error::Kernel { action: format!("inspect process {}", record.pid), source }),
        }
    }

    /// Opens the sandbox that `record` describes, in whose control group this server has put PID 1; `None` when PID 1 has ended.
    ///
    /// # Errors
    /// When this cannot be determined.
    pub(super) fn open(host: Arc<Host>, record: Record) -> Result<Option<Self>> {
        let failed = |source| Error::Kernel { action: format!("inspect process {}", record.pid), source };
        let Some(pidfd) = process::find(record.pid, record.start_ticks).map_err(failed)? else {
            return Ok(None);
        };
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
        let common = OnceLock::new();
        let went_on = AtomicBool::new(false);
        let inner = Inner { host, record, pidfd, network_namespace, ended, common, went_on };
        Ok(Some(Self { inner: Arc::new(inner) }))
    }

    /// Notes the memory that the sandbox had in common with others when it was restored.
    pub(super) fn set_common(&self, common: Arc<Common>) {
        let _ = self.inner.common.set(common);
    }

    /// Memory that the sandbox had in common with others when it was restored.
    pub(super) fn common(&self) -> Option<Arc<Common>> {
        self.inner.common.get().cloned()
    }

    /// Whether the processes may go on for a few moments although the sandbox is paused, which is so once in each pause: who asks for it again and
    /// again would have a sandbox that runs and counts as paused.
    pub(super) fn may_go_on(&self) -> bool {
        !self.inner.went_on.swap(true, Ordering::Relaxed)
    }

    /// Notes that a pause has ended.
    pub(super) fn pause_has_ended(&self) {
        self.inner.went_on.store(false, Ordering::Relaxed);
    }

    pub(crate) fn record(&self) -> &Record {
        &self.inner.record
    }

    pub(crate) async fn connect(&self, port: u16) -> std::io::Result<TcpStream> {
        self.inner.host.dialer.connect(&self.inner.network_namespace, port).await
    }

    pub(crate) async fn wait(&self) -> ExitReason {
        // A process descriptor turns readable when the process ends, and stays so.
        let _ = self.inner.pidfd.readable().await;
        ExitReason::Gone
    }

    pub(crate) async fn usage(&self) -> Result<Usage> {
        let inner = self.inner.clone();
        blocking(move || {
            let mut usage = inner.host.cgroups.usage(inner.record.slot)?;
            usage.disk_bytes = inner.host.pool.used_bytes(&inner.record.id);
            Ok(usage)
        })
        .await
    }

    pub(crate) async fn egress_log(&self) -> Result<Vec<Connection>> {
        self.inner.host.firewall.egress_log(self.inner.record.slot).await
    }

    pub(crate) async fn set_network(&self, policy: NetworkPolicy) -> Result<()> {
        let Inner { host, record, network_namespace, .. } = &*self.inner;
        if !policy.hosts.is_empty() {
            let certificate = host.vault.authority()?.certificate;
            control::trust(&host.dialer, network_namespace, certificate).await.map_err(|source| {
                Error::Kernel { action: "have the agent trust the authority".into(), source }
            })?;
        }
        host.firewall.set(record.slot, &policy).await?;
        // Last, so that whatever ends this in between leaves a link that is closed too long, and never one that is open.
        let changed = Record { network: policy, closed_link: false, ..record.clone() };
        record::write(&host.run_dir(&record.id), &changed)?;
        host.links.set_closed(&host.addresses.link(record.slot), false).await
    }

    pub(super) fn network(&self) -> &OwnedFd {
        &self.inner.network_namespace
    }

    pub(super) fn host(&self) -> &Arc<Host> {
        &self.inner.host
    }

    /// Whether the processes have ended and the resources are released, or are being released.
    pub(super) fn ended(&self) -> &Mutex<bool> {
        &self.inner.ended
    }

    /// Kills all processes and waits for them to end.
    pub(super) async fn end_processes(&self) -> Result<()> {
        let Inner { host, record, pidfd, .. } = &*self.inner;
        host.burners.remove(&host.cgroups, record.slot);
        host.cgroups.kill(record.slot);
        // The kernel ends every process of a PID namespace with its first one.
        let _ = pidfd_send_signal(pidfd.get_ref().as_fd(), Signal::KILL);
        // Version 1: a frozen process does not die before it is thawed.
        let _ = host.cgroups.freeze(record.slot, false);
        if tokio::time::timeout(KILL_TIMEOUT, self.wait()).await.is_err() {
            return Err(Error::Kernel {
                action: format!("kill process {}", record.pid),
                source: std::io::ErrorKind::TimedOut.into(),
            });
        }
        Ok(())
    }

    pub(crate) async fn destroy(self) -> Result<()> {
        let mut ended = self.inner.ended.lock().await;
        if *ended {
            return Ok(());
        }
        let killed = self.end_processes().await;
        *ended = true;
        // The caller waits for the processes only. Releasing the resources takes milliseconds, tens of them with firewall
        // rules of its own, and on an overloaded host longer than a caller should wait. After a crash or a stop meanwhile, a sweep releases them.
        let sandbox = self.clone();
        self.host().tasks.spawn(async move {
            let (host, id, slot) = (sandbox.host(), &sandbox.record().id, sandbox.record().slot);
            tokio::select! {
                biased;
                _ = sandbox.wait() => {}
                () = host.stopping.cancelled() => return,
            }
            if let Err(error) = host.release(&[id], slot, Keep::Nothing).await {
                tracing::error!(sandbox_id = %id, error = &error as &dyn std::error::Error, "failed to release the resources of a sandbox");
            }
        });
        killed
    }
}
