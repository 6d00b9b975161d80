//! Leftovers of volumes that could not be removed at once, most likely because a sandbox kept writing there. They are tried
//! again until they are gone. The next start finds those that a stopped server has not removed.

use std::time::Duration;

use sandcove_host::Host;
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::{Error, Result};

/// Leftovers that may wait, in the channel and with the task each. One takes about 200 bytes.
const MAX_WAITING: usize = 10_000;
/// Pause after the first attempt; every further pause is twice as long, up to the maximum.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Files that nobody can reach any more and that still take space.
#[derive(Debug)]
pub(super) enum Leftover {
    /// The directory of a deleted volume.
    Volume(String),
    /// A removed tree among the unfinished work of a volume.
    Tree { volume: String, name: String },
}

/// The queue of leftovers; clones share it.
#[derive(Debug, Clone)]
pub(super) struct Leftovers(mpsc::Sender<Leftover>);

impl Leftovers {
    /// A queue, and the task that removes what is added to it.
    pub(super) fn new(host: Host) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        (Self(sender), remove_all(host, receiver))
    }

    /// Removes a leftover as soon as possible. When the queue is full, or the server stops, the next start removes it.
    pub(super) fn add(&self, leftover: Leftover) {
        if let Err(mpsc::error::TrySendError::Full(leftover)) = self.0.try_send(leftover) {
            tracing::warn!(?leftover, "too many leftovers of volumes: this one stays until the next start");
        }
    }
}

async fn remove_all(host: Host, mut added: mpsc::Receiver<Leftover>) {
    let mut waiting = Vec::new();
    let mut pause = FIRST_PAUSE;
    while let Some(first) = added.recv().await {
        waiting.push(first);
        while !waiting.is_empty() {
            sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
            while waiting.len() < MAX_WAITING
                && let Ok(more) = added.try_recv()
            {
                waiting.push(more);
            }
            let mut again = Vec::new();
            for leftover in waiting {
                match leftover.remove(&host).await {
                    Ok(()) => tracing::info!(?leftover, "leftover of a volume removed"),
                    Err(err) => {
                        tracing::debug!(?leftover, error = ?err, "leftover of a volume not removed yet");
                        again.push(leftover);
                    }
                }
            }
            waiting = again;
        }
        pause = FIRST_PAUSE;
    }
}

impl Leftover {
    async fn remove(&self, host: &Host) -> Result<()> {
        match self {
            Self::Volume(name) => {
                let removed = host.delete_volume(name).await;
                removed.map_err(|source| Error::Volume { action: "delete", source })
            }
            Self::Tree { volume, name } => {
                host.volume(volume).take_apart(name).await.map_err(Error::VolumeFiles)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_waits_has_a_bound() {
        let (leftovers, _task) = Leftovers::new(Host::here(sandcove_isolate::Backend::fake()));
        for n in 0..MAX_WAITING + 10 {
            leftovers.add(Leftover::Volume(n.to_string()));
        }
        assert_eq!(leftovers.0.capacity(), 0);
    }
}
