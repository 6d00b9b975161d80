//! Volumes: directories that outlive sandboxes.

use uuid::Uuid;

/// A volume of a team.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// The id, which also names the volume's directory.
    pub id: Uuid,
    /// The name, unique within the team.
    pub name: String,
}
