//! Reads logs and metrics of sandboxes (contract: control-plane, section 8).

use http::Method;
use jiff::Timestamp;
use sandcove_wire::api::observe::{
    EgressConnection, EgressLog, LatestMetrics, LogEntry, LogLevel, SandboxLogsV2, SandboxMetric,
};
use sandcove_wire::id::SandboxId;

use crate::error::Result;
use crate::server::Client;

impl Client {
    /// The log of a sandbox from a time on, oldest first, at most 1,000 entries of a severity or above.
    ///
    /// # Errors
    /// If the server does not answer. An unknown sandbox has an empty log.
    pub async fn logs(&self, id: &SandboxId, from: Timestamp, level: LogLevel) -> Result<Vec<LogEntry>> {
        let level = match level {
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
            LogLevel::Error => "error",
        };
        let from = from.as_millisecond();
        let path = format!("/v2/sandboxes/{id}/logs?direction=forward&cursor={from}&level={level}");
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

    /// Samples of the resource usage of a sandbox from a time on, oldest first.
    ///
    /// # Errors
    /// If the server does not answer. An unknown sandbox has no samples.
    pub async fn metrics(&self, id: &SandboxId, from: Option<Timestamp>) -> Result<Vec<SandboxMetric>> {
        let start = from.map(|from| format!("?start={}", from.as_second())).unwrap_or_default();
        self.json(Method::GET, &format!("/sandboxes/{id}/metrics{start}"), None::<&()>).await
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
