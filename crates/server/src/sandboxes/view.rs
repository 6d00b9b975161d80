//! A sandbox at one moment, as everything but its driver sees it.

use std::sync::Arc;

use super::live_session::LiveSession;
use crate::domain::lifecycle::{Keep, Phase, Session};
use crate::domain::sandbox::{Details, Settings};

/// A sandbox at one moment.
#[derive(Debug, Clone)]
pub struct View {
    /// The part that never changes.
    pub details: Arc<Details>,
    /// The part that requests may change.
    pub settings: Arc<Settings>,
    /// The phase of the lifecycle.
    pub phase: Phase,
    /// The present session, or the last one of a paused sandbox, ended by the pause.
    pub session: Session,
    /// Memory that the processes hold while they are frozen, bytes.
    pub(crate) memory: u64,
    /// The way in for traffic, while the sandbox runs.
    pub(crate) live: Option<Arc<LiveSession>>,
}

impl View {
    /// Whether callers see the sandbox at all.
    pub fn is_visible(&self) -> bool {
        !matches!(self.phase, Phase::Stopping | Phase::Gone)
    }

    /// Whether the agent of the paused sandbox did not answer, so that its memory is not resumed.
    pub fn is_unresponsive(&self) -> bool {
        let has_memory = matches!(self.phase, Phase::Paused(Keep::Memory) | Phase::Parking);
        has_memory && self.settings.unresponsive
    }

    /// Whether callers see the sandbox as paused.
    pub fn is_paused(&self) -> bool {
        matches!(self.phase, Phase::Pausing(_) | Phase::Paused(_) | Phase::Parking)
    }
}
