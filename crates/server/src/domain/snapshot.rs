//! Snapshots: templates of a team whose files are what one of its sandboxes had written, with the memory of its processes if that could be
//! stored.

use jiff::Timestamp;
use sandcove_wire::id::{SandboxId, TemplateId};

use super::reference::Reference;
use super::team::Team;

/// A snapshot under one of its tags.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The template id, which snapshots of the same name share.
    pub template_id: TemplateId,
    /// The name without namespace; none when the caller gave none.
    pub name: Option<String>,
    /// The tag.
    pub tag: String,
    /// The sandbox the snapshot was taken of.
    pub sandbox: SandboxId,
    /// Time of the snapshot.
    pub created_at: Timestamp,
    /// Size of its memory, bytes, if it has any.
    pub memory_bytes: Option<u64>,
}

impl Snapshot {
    /// The reference that clients create sandboxes with.
    pub fn id(&self, team: &Team) -> String {
        match &self.name {
            Some(name) => format!("{}/{name}:{}", team.slug, self.tag),
            None => format!("{}:{}", self.template_id, self.tag),
        }
    }

    /// The name with namespace, if there is one; with the tag unless it is the default one.
    pub fn names(&self, team: &Team) -> Vec<String> {
        let name = self.name.as_ref().map(|name| format!("{}/{name}", team.slug));
        let tagged =
            |name| if self.tag == Reference::DEFAULT_TAG { name } else { format!("{name}:{}", self.tag) };
        name.map(tagged).into_iter().collect()
    }
}
