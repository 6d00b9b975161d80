//! Checkpoints: the processes of a frozen sandbox on disk, stored by CRIU (docs/decisions/0025-memory-on-disk.md).
//!
//! | part | files |
//! | --- | --- |
//! | what cannot be stored, found before CRIU runs | `refusal` |
//! | files that a fork of a warm process has mapped from mounts that are not the sandbox's | `foreign` |
//! | attributes of threads that CRIU does not store | `attributes` |
//! | running CRIU | `dump` |
//! | corrections of its images | `images` |
//! | the directory that holds them, what it is valid for, and the proof that this server wrote it | `generation`, `manifest` |

mod attributes;
mod dump;
mod foreign;
mod generation;
mod images;
mod manifest;
mod refusal;

pub(crate) use attributes::restore as restore_attributes;
pub(crate) use dump::{Subject, dump};
pub(crate) use generation::{Begun, Generations};
pub(crate) use manifest::{Host, Manifest};
pub(crate) use refusal::refused;
