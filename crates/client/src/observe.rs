//! Reads logs and metrics of sandboxes (contract: control-plane, section 8).

use http::Method;
use jiff::Timestamp;
use sandcove_wire::api::observe::{
    EgressConnection, EgressLog, LatestMetrics, LogEntry, LogLevel, SandboxLogsV2, SandboxMetric,
};
use sandcove_wire::id::SandboxId;

use crate::error::Result;
use crate::query::{LogFilter, span};
use crate::server::{Client, segment};

impl Client {
    /// The log of a sandbox from a time on, oldest first, at most 1,000 entries of a severity or above.
    ///
    /// # Errors
    /// If the server does not answer. An unknown sandbox has an empty log.
    pub async fn logs(&self, id: &SandboxId, from: Timestamp, level: LogLevel) -> Result<Vec<LogEntry>> {
        let filter = LogFilter { cursor: Some(from), level: Some(level), ..LogFilter::default() };
        self.logs_where(id, &filter, None).await
    }

    /// The entries of the log of a sandbox that a filter matches, and that contain `search`: a text of at most 256 characters.
    ///
    /// # Errors
    /// If the server refuses the filter or the text. An unknown sandbox has an empty log.
    pub async fn logs_where(
        &self,
        id: &SandboxId,
        filter: &LogFilter,
        search: Option<&str>,
    ) -> Result<Vec<LogEntry>> {
        let search = search.map(|text| format!("&search={}", segment(text))).unwrap_or_default();
        let path = format!("/v2/sandboxes/{id}/logs?{}{search}", filter.query());
        Ok(self.json::<SandboxLogsV2>(Method::GET, &path, None::<&()>).await?.logs)
    }

    /// The last connections of a sandbox through its egress proxy, oldest first.
    ///
    /// # Errors
    /// If the server does not answer, or does not know the sandbox.
    pub async fn egress(&self, id: &SandboxId) -> Result<Vec<EgressConnection>> {
        let path = format!("/sandboxes/{id}/egress");
        Ok(self.json::<EgressLog>(Method::GET, &path, None::<&()>).await?.connections)
    }

    /// Samples of the resource usage of a sandbox from `from` to `to`, in whole seconds, oldest first.
    ///
    /// # Errors
    /// If the server does not answer, or `from` is after `to`. An unknown sandbox has no samples.
    pub async fn metrics(
        &self,
        id: &SandboxId,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
    ) -> Result<Vec<SandboxMetric>> {
        self.json(Method::GET, &format!("/sandboxes/{id}/metrics?{}", span(from, to)), None::<&()>).await
    }

    /// The newest sample of each of up to 100 sandboxes that has one.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn latest_metrics(&self, ids: &[SandboxId]) -> Result<LatestMetrics> {
        if ids.is_empty() {
            return Ok(LatestMetrics::default());
        }
        let ids: Vec<&str> = ids.iter().map(SandboxId::as_str).collect();
        let path = format!("/sandboxes/metrics?sandbox_ids={}", ids.join(","));
        self.json(Method::GET, &path, None::<&()>).await
    }
}
