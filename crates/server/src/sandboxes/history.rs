//! Logs and samples of sandboxes as clients read them: from the store, and what is not stored yet.

use std::sync::Arc;

use sandcove_wire::api::observe::{LogEntry, SandboxMetric};
use sandcove_wire::id::SandboxId;

use super::observed::take_first;
use super::registry::Registry;
use super::samples::thinned;
use super::shared::Entry;
use crate::Result;
use crate::domain::team::Team;

impl Registry {
    /// The log of a sandbox of the team, also of a removed one; oldest first.
    pub(crate) async fn log(&self, team: &Team, id: &SandboxId) -> Result<Vec<LogEntry>> {
        // In this order, an entry that is being stored is found twice rather than not at all.
        let pending = self.known(team, id).map(|entry| entry.log.pending()).unwrap_or_default();
        let mut entries = self.shared.store.log_entries(team.id, id).await?;
        // Others may have been stored after those that were pending.
        let oldest = pending.first().map(|entry| entry.timestamp);
        let newest =
            oldest.map_or(entries.len(), |oldest| entries.partition_point(|one| one.timestamp < oldest));
        let new: Vec<LogEntry> = pending.into_iter().filter(|one| !entries[newest..].contains(one)).collect();
        entries.extend(new);
        Ok(entries)
    }

    /// Samples of a sandbox of the team, also of a removed one, within `start..=end` (Unix seconds) and thinned to the
    /// documented step of that span.
    pub(crate) async fn samples(
        &self,
        team: &Team,
        id: &SandboxId,
        start: Option<i64>,
        end: Option<i64>,
    ) -> Result<Vec<SandboxMetric>> {
        let entry = self.known(team, id);
        if let Some(entry) = &entry {
            take_first(entry).await;
        }
        let pending = entry.map(|entry| entry.samples.pending()).unwrap_or_default();
        let mut samples = self.shared.store.samples(team.id, id, start.unwrap_or(0)).await?;
        let last = samples.last().map(|sample| sample.timestamp);
        samples.extend(pending.into_iter().filter(|sample| last.is_none_or(|last| sample.timestamp > last)));
        Ok(thinned(samples, start, end))
    }

    /// The newest sample of a sandbox of the team.
    pub(crate) async fn latest_sample(&self, team: &Team, id: &SandboxId) -> Option<SandboxMetric> {
        let entry = self.entry(team, id).ok()?;
        take_first(&entry).await;
        entry.samples.latest()
    }

    /// A sandbox of the team, also a removed one of which not everything is stored.
    fn known(&self, team: &Team, id: &SandboxId) -> Option<Arc<Entry>> {
        let removed = || self.shared.removed.all().into_iter().find(|entry| entry.details.id == *id);
        self.find(id).or_else(removed).filter(|entry| entry.details.team == team.id)
    }
}
