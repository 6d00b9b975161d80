//! The first message of a spawner.

use serde::{Deserialize, Serialize};

use crate::jail::Failure;

/// Message of the spawner to the server, once, before the server asks for anything.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Greeting {
    /// The spawner has its own view of the file system and takes requests.
    Ready,
    /// The spawner cannot work and is ending.
    Failed(Failure),
}
