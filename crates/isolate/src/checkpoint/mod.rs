//! Checkpoints: the processes of a frozen sandbox on disk, stored by CRIU (docs/decisions/0025-memory-on-disk.md).
//!
//! | part | files |
//! | --- | --- |
//! | what cannot be stored, found before CRIU runs | `refusal`, `network_refusal`, `descriptor_refusal` |
//! | files that a fork of a warm process has mapped from mounts that are not the sandbox's | `foreign` |
//! | attributes of threads, options of sockets and watches of files, which CRIU does not store | `attributes`, `sockets`, `inotify` |
//! | the processor time that looking at processes may take | `budget` |
//! | running CRIU | `dump` |
//! | memory that is stored once for many sandboxes | `common`, `comparison` |
//! | corrections of its images | `images`, `mappings`, `terminals` |
//! | descriptors and numbers of processes | `descriptors`, `numbers` |
//! | the directory that holds them, what it is valid for, and the proof that this server wrote it | `generation`, `manifest` |

mod attributes;
mod budget;
mod common;
mod comparison;
mod descriptor_refusal;
mod descriptors;
mod dump;
mod foreign;
mod generation;
mod images;
mod inotify;
mod manifest;
mod mappings;
mod network_refusal;
mod numbers;
mod refusal;
mod sockets;
mod terminals;

pub(crate) use common::Common;
pub(crate) use comparison::{Comparison, Process};
pub(crate) use dump::{DumpSource, Found, dump};
pub(crate) use generation::{Generations, NewGeneration};
pub(crate) use manifest::{HostFacts, Manifest};
pub(crate) use refusal::refused;

use std::io;
use std::path::Path;

use serde::de::DeserializeOwned;

/// Gives the restored processes `pids` what CRIU does not store, from the directory `generation`, before they run.
pub(crate) fn complete(pids: &[u32], generation: &Path) -> io::Result<()> {
    attributes::restore(pids, generation)?;
    sockets::restore(pids, generation)?;
    inotify::restore(pids, generation)
}

/// Reads what a dump has left in the file `name` of the directory `generation`. One of an earlier version has none.
fn stored<T: DeserializeOwned + Default>(generation: &Path, name: &str) -> io::Result<T> {
    match std::fs::read(generation.join(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
        text => Ok(serde_json::from_slice(&text?)?),
    }
}
