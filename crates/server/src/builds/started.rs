//! The state after the start command, which sandboxes of a template continue from (contract: templates, section 9.4).

use sandcove_isolate::{Files, Mounted, NetworkPolicy, SandboxSpec, SnapshotMemory, crash};
use sandcove_wire::boot::Settings as AgentSettings;
use uuid::Uuid;

use super::collect::delete_started;
use super::engine::Engine;
use super::failure::Failure;
use super::guest::Guest;
use crate::domain::template::{Started, TemplateRecord};
use crate::random;

impl Engine<'_> {
    /// Whether the state after the start command is kept. With the code interpreter it is not: forks of the warm interpreter begin sooner and
    /// share its memory.
    pub(super) async fn keeps_started(&self, record: &TemplateRecord) -> Result<bool, Failure> {
        if record.blueprint().wants_warm() || !self.shared.host.can_park().await? {
            return Ok(false);
        }
        let team = &self.job.order.team;
        let has_room = self.shared.kept_bytes(team).await? < team.max_kept_bytes();
        if !has_room {
            self.note("", "The memory of the start command is not kept: snapshots of the team take all the disk they may");
        }
        Ok(has_room)
    }

    /// Runs the start command in a sandbox until it is ready, and takes a snapshot with memory of that. Without memory there is nothing to
    /// keep: sandboxes run the start command.
    pub(super) async fn started(&self, record: &TemplateRecord) -> Result<Option<Started>, Failure> {
        let blueprint = self.shared.templates.blueprint(&self.job.order.team, record);
        let mounted = Mounted { layers: blueprint.layers.clone(), volumes: Vec::new() };
        let spec = SandboxSpec {
            id: random::sandbox_id(),
            blueprint,
            files: Files::Empty,
            memory: false,
            mounts: Vec::new(),
            network: NetworkPolicy::default(),
            settings: AgentSettings {
                env_vars: Some(record.env.clone()),
                default_user: Some(record.default_user.clone()),
                default_workdir: record.default_workdir.clone(),
                ..AgentSettings::default()
            },
        };
        let guest = self.follow(|log| Guest::start(self.shared, spec, Some(log))).await?;
        self.note("", "Template is ready");
        let snapshot = format!("t-{}", Uuid::new_v4().simple());
        {
            let look = self.job.uses.look().await;
            look.keep([snapshot.as_str()]);
            self.shared.store.note_started(&snapshot).await?;
        }
        let taken = guest.handle().snapshot(&snapshot, self.job.order.team.account(), Some(mounted)).await;
        crash::point("build.started");
        guest.end().await;
        let reason = match taken {
            Ok(report) => match report.memory {
                SnapshotMemory::Stored { bytes } => {
                    let size = bytes.div_ceil(1 << 20);
                    self.note("", &format!("Memory of the start command kept, {size} MiB"));
                    return Ok(Some(Started { snapshot, memory_bytes: bytes }));
                }
                SnapshotMemory::Refused { reason } => reason,
                SnapshotMemory::NotWanted => "it was not stored".to_owned(),
            },
            Err(error) => error.to_string(),
        };
        delete_started(self.shared, vec![snapshot]).await?;
        self.note(
            "",
            &format!("The memory of the start command cannot be kept, each sandbox runs it: {reason}"),
        );
        Ok(None)
    }
}
