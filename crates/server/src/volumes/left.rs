//! What could not be removed at once, most likely because a sandbox kept writing there: tried again until it is gone. What
//! a stopped server had not finished is found again at the next start.

use std::io;
use std::path::Path;
use std::time::Duration;

use sandcove_image::files::FileTree;
use sandcove_isolate::Backend;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::sleep;

use crate::{Error, Result};

/// Pause after the first attempt; each further one is twice as long, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Something that nobody can reach any more and that still takes space.
#[derive(Debug)]
pub(super) enum Left {
    /// The directory of a deleted volume.
    Volume(String),
    /// A removed tree among the unfinished work of a volume.
    Tree { volume: String, name: String },
}

/// Removes what is sent, for as long as it takes.
pub(super) async fn remove(backend: Backend, mut sent: UnboundedReceiver<Left>) {
    let mut left = Vec::new();
    let mut pause = FIRST_PAUSE;
    while let Some(first) = sent.recv().await {
        left.push(first);
        while !left.is_empty() {
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            while let Ok(more) = sent.try_recv() {
                left.push(more);
            }
            let mut again = Vec::new();
            for one in left {
                match one.remove(&backend).await {
                    Ok(()) => tracing::info!(what = ?one, "what was left of a volume is removed"),
                    Err(err) => {
                        tracing::debug!(what = ?one, error = ?err, "what is left of a volume stays for now");
                        again.push(one);
                    }
                }
            }
            left = again;
        }
        pause = FIRST_PAUSE;
    }
}

impl Left {
    async fn remove(&self, backend: &Backend) -> Result<()> {
        let failed = |source| Error::from_volume("remove a tree", source);
        match self {
            Self::Volume(name) => {
                let removed = backend.delete_volume(name).await;
                removed.map_err(|source| Error::Volume { action: "delete", source })
            }
            Self::Tree { volume, name } => {
                let (directory, name) = (backend.volume_dir().join(volume), name.clone());
                let done = tokio::task::spawn_blocking(move || take_apart(&directory, &name)).await;
                done.unwrap_or_else(|err| Err(io::Error::other(err))).map_err(failed)
            }
        }
    }
}

fn take_apart(directory: &Path, name: &str) -> io::Result<()> {
    match FileTree::open(directory) {
        Ok(tree) => tree.take_apart(name),
        // The volume has been deleted meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
