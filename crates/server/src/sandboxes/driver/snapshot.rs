//! What follows a snapshot: log, event and answer say whether it has memory.

use sandcove_isolate::SnapshotMemory;
use sandcove_wire::api::observe::LogLevel;

use super::Driver;
use crate::domain::event::LifecycleEvent;
use crate::domain::lifecycle::Keep;
use crate::events;
use crate::sandboxes::command::Outcome;

impl Driver {
    /// Says that a snapshot was taken, and what became of its memory.
    pub(super) async fn snapshot_taken(&mut self, memory: Option<&SnapshotMemory>) -> Outcome {
        let bytes = match memory {
            Some(SnapshotMemory::Stored { bytes }) => Some(*bytes),
            Some(SnapshotMemory::Refused { .. } | SnapshotMemory::NotWanted) | None => None,
        };
        let (level, text) = match memory {
            Some(SnapshotMemory::Refused { reason }) => {
                self.shared.telemetry.sandbox_not_parked();
                let text = format!("snapshot taken, of its files: memory cannot be stored on disk: {reason}");
                (LogLevel::Warn, text)
            }
            Some(SnapshotMemory::Stored { bytes }) => {
                (LogLevel::Info, format!("snapshot taken, with {} MiB of memory", bytes.div_ceil(1 << 20)))
            }
            Some(SnapshotMemory::NotWanted) | None => (LogLevel::Info, "snapshot taken".to_owned()),
        };
        self.log.write(level, &text);
        let view = self.view.borrow().clone();
        let kept = if bytes.is_some() { Keep::Memory } else { Keep::Files };
        let event = LifecycleEvent::Checkpointed(kept);
        let event = events::describe(&view.details, &view.session, &view.settings.network, &event);
        events::record(&self.shared.store, &event).await;
        Outcome::SnapshotTaken(bytes)
    }
}
