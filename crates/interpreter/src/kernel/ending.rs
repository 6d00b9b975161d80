//! The end of a kernel: which signal killed it, from the process that reaped it.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

/// Time in which a process that ends is dead, and in which a dead one is reaped.
pub(super) const REAP_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause before reports are read again.
const READ_AGAIN: Duration = Duration::from_millis(5);

/// The source of a kernel's exit status.
pub enum Ending {
    /// The kernel is a child of this process.
    Child(oneshot::Receiver<ExitStatus>),
    /// The kernel is a child of a process that reports the ends of its children.
    Reported(Arc<dyn Reports>),
}

/// Reports of a process about the ends of its children.
pub trait Reports: Send + Sync {
    /// Takes the report about this process, if it has arrived: the signal that ended it, or 0.
    fn take(&self, pid: i32) -> Option<i32>;
}

impl Ending {
    /// Returns the signal that ended the process, which is dead; 0 if none did. `None` if nobody says so in time.
    pub(super) async fn signal(&mut self, pid: i32) -> Option<i32> {
        let deadline = Instant::now() + REAP_TIMEOUT;
        match self {
            Self::Child(status) => {
                let status = tokio::time::timeout_at(deadline, status).await.ok()?.ok()?;
                Some(status.signal().unwrap_or_default())
            }
            Self::Reported(reports) => loop {
                match reports.take(pid) {
                    Some(signal) => return Some(signal),
                    // Zygotes of older templates report nothing.
                    None if Instant::now() > deadline => return None,
                    None => tokio::time::sleep(READ_AGAIN).await,
                }
            },
        }
    }
}

impl fmt::Debug for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Child(_) => "Child",
            Self::Reported(_) => "Reported",
        })
    }
}
