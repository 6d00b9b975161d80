//! Templates of which the server has pooled sandboxes kept.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sandcove_isolate::Blueprint;

use super::Result;
use crate::failure::Failure;

/// Maximum number of blueprints. A server gives up those that nobody uses, and what warm interpreters take bounds them long before.
const MAX_KEPT: usize = 1024;
/// Maximum size of all blueprints as text, bytes.
const MAX_BYTES: usize = 64 << 20;

/// The blueprints that are kept, as far as it takes to bound them.
#[derive(Default)]
pub(super) struct Kept(Mutex<Vec<Entry>>);

struct Entry {
    layers: Vec<PathBuf>,
    digest: u64,
    bytes: usize,
}

impl Kept {
    /// Adds a blueprint, unless it is there.
    pub(super) fn add(&self, blueprint: &Blueprint) -> Result<()> {
        let text = serde_json::to_vec(blueprint).map_err(std::io::Error::from)?;
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let (digest, bytes) = (hasher.finish(), text.len());
        let mut entries = self.lock();
        if entries.iter().any(|entry| entry.digest == digest && entry.layers == blueprint.layers) {
            return Ok(());
        }
        let sum: usize = entries.iter().map(|entry| entry.bytes).sum();
        if entries.len() >= MAX_KEPT || sum + bytes > MAX_BYTES {
            return Err(Failure::refused("the server has too many templates kept"));
        }
        entries.push(Entry { layers: blueprint.layers.clone(), digest, bytes });
        Ok(())
    }

    /// Removes the blueprints of these layers.
    pub(super) fn remove(&self, layers: &[PathBuf]) {
        self.lock().retain(|entry| entry.layers != layers);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
