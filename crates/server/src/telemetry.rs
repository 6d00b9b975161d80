//! Metrics for operators: few, typed, and never labelled with anything a client chooses. `GET /metrics` serves them.

use std::sync::{Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use sandcove_isolate::PoolState;

use crate::otlp;

/// The result of a start of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartResult {
    /// The sandbox runs.
    Started,
    /// The start was tried and failed.
    Failed,
    /// The start was not tried, because there was no capacity in time.
    Refused,
}

/// The state that a sandbox is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SandboxState {
    /// The sandbox's processes run.
    Running,
    /// The sandbox is paused.
    Paused,
    /// The sandbox is being started, or waits to be.
    Starting,
}

/// The result of an attempt to deliver to a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeliveryResult {
    /// The receiver accepted the delivery.
    Delivered,
    /// The receiver did not accept it, or was not reached.
    Failed,
}

impl StartResult {
    fn text(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Failed => "failed",
            Self::Refused => "refused",
        }
    }
}

impl SandboxState {
    fn text(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Starting => "starting",
        }
    }
}

impl DeliveryResult {
    fn text(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Failed => "failed",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StartLabels {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DeliveryLabels {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: String,
    route: String,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabels {
    template: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolStartLabels {
    template: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

/// The form of the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The text format of Prometheus.
    Plain,
    /// The text format of OpenMetrics.
    Open,
}

/// The metrics of pooled sandboxes. They are read from the host side each time.
#[derive(Debug)]
struct Pool {
    pooled: Family<PoolLabels, Gauge>,
    wanted: Family<PoolLabels, Gauge>,
    pool_memory: Family<PoolLabels, Gauge>,
    pool_age: Family<PoolLabels, Gauge>,
    pool_starts: Family<PoolStartLabels, Counter>,
}

/// The metrics of the server.
#[derive(Debug)]
pub(crate) struct Telemetry {
    registry: Registry,
    starts: Family<StartLabels, Counter>,
    start_seconds: Histogram,
    queue_seconds: Histogram,
    sandboxes: Family<StateLabels, Gauge>,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Histogram,
    deliveries: Family<DeliveryLabels, Counter>,
    freeze_seconds: Histogram,
    observed_lost: Counter,
    audit_lost: Counter,
    demoted: Counter,
    pool: Mutex<Pool>,
    parked: Counter,
    unparked: Counter,
    not_parked: Counter,
    memory_lost: Counter,
    parked_bytes: Gauge,
    capacity: Gauge,
    disk_size: Gauge,
    disk_used: Gauge,
}

impl Default for Telemetry {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("sandcove");
        let starts = Family::default();
        registry.register("sandbox_starts", "Starts of sandboxes by how they ended", starts.clone());
        let start_seconds = Histogram::new(exponential_buckets(0.001, 2.0, 15));
        registry.register_with_unit(
            "sandbox_start",
            "From the first step of a start to a ready agent",
            Unit::Seconds,
            start_seconds.clone(),
        );
        let queue_seconds = Histogram::new(exponential_buckets(0.001, 2.0, 16));
        registry.register_with_unit(
            "sandbox_queue",
            "How long starts waited for their turn",
            Unit::Seconds,
            queue_seconds.clone(),
        );
        let sandboxes = Family::default();
        registry.register("sandboxes", "Sandboxes by state", sandboxes.clone());
        let requests = Family::default();
        registry.register("api_requests", "Requests to the API", requests.clone());
        let request_seconds = Histogram::new(exponential_buckets(0.000_5, 2.0, 18));
        registry.register_with_unit(
            "api_request",
            "Time to answer requests to the API",
            Unit::Seconds,
            request_seconds.clone(),
        );
        let deliveries = Family::default();
        registry.register("webhook_deliveries", "Attempts to deliver webhooks", deliveries.clone());
        let freeze_seconds = Histogram::new(exponential_buckets(0.001, 2.0, 14));
        registry.register_with_unit(
            "snapshot_freeze",
            "How long the processes of a sandbox stood still for a snapshot",
            Unit::Seconds,
            freeze_seconds.clone(),
        );
        let observed_lost = Counter::default();
        registry.register(
            "observed_lost",
            "Sandboxes whose last logs and samples could not be stored and are lost",
            observed_lost.clone(),
        );
        let audit_lost = Counter::default();
        registry.register(
            "audit_lost",
            "Actions that could not be written to the audit log",
            audit_lost.clone(),
        );
        let demoted = Counter::default();
        registry.register(
            "sandboxes_demoted",
            "Paused sandboxes whose memory was released, because there was too much of it or no slot",
            demoted.clone(),
        );
        let pool = Mutex::new(Pool::register(&mut registry));
        let parked = Counter::default();
        registry.register(
            "sandboxes_parked",
            "Paused sandboxes whose memory was stored on disk",
            parked.clone(),
        );
        let unparked = Counter::default();
        registry.register(
            "sandboxes_unparked",
            "Sandboxes that were restored from memory on disk",
            unparked.clone(),
        );
        let not_parked = Counter::default();
        registry.register(
            "sandboxes_not_parked",
            "Paused sandboxes whose memory could not be stored on disk; they keep it",
            not_parked.clone(),
        );
        let memory_lost = Counter::default();
        registry.register(
            "sandboxes_memory_lost",
            "Sandboxes that were started from their files because their memory on disk could not be restored",
            memory_lost.clone(),
        );
        let parked_bytes = Gauge::default();
        registry.register_with_unit(
            "parked_memory",
            "Memory of paused sandboxes on disk",
            Unit::Bytes,
            parked_bytes.clone(),
        );
        let build: Family<BuildLabels, Gauge> = Family::default();
        build.get_or_create(&BuildLabels { version: env!("CARGO_PKG_VERSION") }).set(1);
        registry.register("build_info", "Version of the server; the value is always 1", build);
        let capacity = Gauge::default();
        registry.register(
            "capacity_sandboxes",
            "Sandboxes of all teams that may run at once",
            capacity.clone(),
        );
        let disk_size = Gauge::default();
        registry.register_with_unit(
            "disk_size",
            "Size of the file system of sandboxes, templates and snapshots",
            Unit::Bytes,
            disk_size.clone(),
        );
        let disk_used = Gauge::default();
        registry.register_with_unit(
            "disk_used",
            "Space in use on that file system",
            Unit::Bytes,
            disk_used.clone(),
        );
        registry.register(
            "trace_spans_dropped",
            "Spans that were not sent to the collector of traces",
            otlp::dropped_spans(),
        );
        registry.register(
            "log_records_dropped",
            "Lines of the log that were not sent to the collector of logs",
            otlp::dropped_records(),
        );
        Self {
            registry,
            starts,
            start_seconds,
            queue_seconds,
            sandboxes,
            requests,
            request_seconds,
            deliveries,
            freeze_seconds,
            observed_lost,
            audit_lost,
            demoted,
            parked,
            unparked,
            not_parked,
            memory_lost,
            parked_bytes,
            capacity,
            disk_size,
            disk_used,
            pool,
        }
    }
}

impl Pool {
    fn register(registry: &mut Registry) -> Self {
        let pooled = Family::default();
        registry.register("pool_sandboxes", "Pooled sandboxes that are ready", pooled.clone());
        let wanted = Family::default();
        registry.register(
            "pool_wanted",
            "Pooled sandboxes to keep, if there is memory for them",
            wanted.clone(),
        );
        let pool_memory = Family::default();
        registry.register_with_unit(
            "pool_memory",
            "Memory of pooled sandboxes",
            Unit::Bytes,
            pool_memory.clone(),
        );
        let pool_age = Family::default();
        registry.register_with_unit(
            "pool_age",
            "Age of the oldest pooled sandbox",
            Unit::Seconds,
            pool_age.clone(),
        );
        let pool_starts = Family::default();
        registry.register(
            "pool_starts",
            "Starts that found a pooled sandbox, and starts that found none",
            pool_starts.clone(),
        );
        Self { pooled, wanted, pool_memory, pool_age, pool_starts }
    }

    fn set(&self, states: Vec<PoolState>) {
        // Templates whose sandboxes are not kept any more are gone.
        for family in [&self.pooled, &self.wanted, &self.pool_memory, &self.pool_age] {
            family.clear();
        }
        self.pool_starts.clear();
        for PoolState { template, ready, wanted, memory_bytes, oldest, hits, misses } in states {
            let labels = PoolLabels { template: template.clone() };
            let oldest = oldest.map_or(0, |age| age.as_secs());
            let values = [
                (&self.pooled, ready as u64),
                (&self.wanted, wanted as u64),
                (&self.pool_memory, memory_bytes),
                (&self.pool_age, oldest),
            ];
            for (family, value) in values {
                // Builds of one template are counted together.
                family.get_or_create(&labels).inc_by(i64::try_from(value).unwrap_or(i64::MAX));
            }
            for (result, count) in [("hit", hits), ("miss", misses)] {
                let labels = PoolStartLabels { template: template.clone(), result };
                self.pool_starts.get_or_create(&labels).inc_by(count);
            }
        }
    }
}

impl Telemetry {
    /// Counts a start by its result.
    pub(crate) fn start_ended(&self, result: StartResult) {
        self.starts.get_or_create(&StartLabels { result: result.text() }).inc();
    }

    /// The number of starts with that result.
    pub(crate) fn starts(&self, result: StartResult) -> u64 {
        self.starts.get_or_create(&StartLabels { result: result.text() }).get()
    }

    /// Records the duration of a start that succeeded.
    pub(crate) fn started_in(&self, took: std::time::Duration) {
        self.start_seconds.observe(took.as_secs_f64());
    }

    /// Records how long a start waited to be admitted.
    pub(crate) fn waited(&self, took: std::time::Duration) {
        self.queue_seconds.observe(took.as_secs_f64());
    }

    /// Counts an answered request; `route` is the pattern that its path matched.
    pub(crate) fn answered(&self, method: &str, route: &str, status: u16, took: std::time::Duration) {
        let labels = RequestLabels { method: method.to_owned(), route: route.to_owned(), status };
        self.requests.get_or_create(&labels).inc();
        self.request_seconds.observe(took.as_secs_f64());
    }

    /// Counts an attempt to deliver to a webhook.
    pub(crate) fn delivery_ended(&self, result: DeliveryResult) {
        self.deliveries.get_or_create(&DeliveryLabels { result: result.text() }).inc();
    }

    /// Records how long processes were frozen for a snapshot.
    pub(crate) fn frozen_for(&self, took: std::time::Duration) {
        self.freeze_seconds.observe(took.as_secs_f64());
    }

    /// Counts sandboxes whose last logs and samples were lost.
    pub(crate) fn observed_lost(&self, sandboxes: usize) {
        self.observed_lost.inc_by(sandboxes as u64);
    }

    /// Counts an action that could not be written to the audit log.
    pub(crate) fn audit_lost(&self) {
        self.audit_lost.inc();
    }

    /// Counts a paused sandbox whose memory was released.
    pub(crate) fn sandbox_demoted(&self) {
        self.demoted.inc();
    }

    /// Counts a paused sandbox whose memory was stored on disk.
    pub(crate) fn sandbox_parked(&self) {
        self.parked.inc();
    }

    /// Counts a sandbox that was restored from memory on disk.
    pub(crate) fn sandbox_unparked(&self) {
        self.unparked.inc();
    }

    /// Counts a paused sandbox whose memory could not be stored on disk.
    pub(crate) fn sandbox_not_parked(&self) {
        self.not_parked.inc();
    }

    /// Counts a sandbox whose memory on disk could not be restored.
    pub(crate) fn memory_lost(&self) {
        self.memory_lost.inc();
    }

    /// Sets the size of the memory on disk.
    pub(crate) fn set_parked_bytes(&self, bytes: u64) {
        self.parked_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Sets the number of sandboxes in a state.
    pub(crate) fn set_sandboxes(&self, state: SandboxState, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.sandboxes.get_or_create(&StateLabels { state: state.text() }).set(count);
    }

    /// Sets the number of sandboxes that may run at once.
    pub(crate) fn set_capacity(&self, sandboxes: u32) {
        self.capacity.set(sandboxes.into());
    }

    /// Sets the space of the file system of sandboxes, bytes.
    pub(crate) fn set_disk(&self, size: u64, used: u64) {
        self.disk_size.set(i64::try_from(size).unwrap_or(i64::MAX));
        self.disk_used.set(i64::try_from(used).unwrap_or(i64::MAX));
    }

    /// The metrics, with these pooled sandboxes; `None` leaves those of the last time.
    pub(crate) fn text(&self, pool: Option<Vec<PoolState>>, form: Form) -> String {
        // Nobody reads the metrics while they are set.
        let states = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = pool {
            states.set(pool);
        }
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        match form {
            Form::Open => text,
            Form::Plain => plain(&text),
        }
    }
}

/// Text of OpenMetrics in the text format of Prometheus: a counter is described under the name of its samples, and there are no units.
fn plain(open: &str) -> String {
    let mut text = String::with_capacity(open.len());
    let mut about = None;
    for line in open.lines() {
        let described = |start: &str| line.strip_prefix(start).and_then(|rest| rest.split_once(' '));
        if let Some((_, words)) = described("# HELP ") {
            about = Some(words);
        } else if let Some((name, kind)) = described("# TYPE ") {
            let suffix = if kind == "counter" { "_total" } else { "" };
            let about = about.take().unwrap_or_default();
            text.push_str(&format!("# HELP {name}{suffix} {about}\n# TYPE {name}{suffix} {kind}\n"));
        } else if !line.starts_with("# ") {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;

    const ALERTS: &str = include_str!("../../../packaging/monitoring/alerts.yml");
    const DASHBOARD: &str = include_str!("../../../packaging/monitoring/dashboard.json");

    /// Metrics of a server in which everything has happened once.
    fn eventful() -> String {
        let telemetry = Telemetry::default();
        let second = Duration::from_secs(1);
        telemetry.start_ended(StartResult::Failed);
        telemetry.set_sandboxes(SandboxState::Running, 2);
        telemetry.answered("GET", "/health", 200, second);
        telemetry.delivery_ended(DeliveryResult::Delivered);
        telemetry.set_disk(9, 3);
        let template = "base".to_owned();
        let oldest = Some(second);
        let pool = PoolState { template, ready: 1, wanted: 2, memory_bytes: 3, oldest, hits: 4, misses: 5 };
        telemetry.text(Some(vec![pool]), Form::Plain)
    }

    /// Names in a text that begin like ours.
    fn names(text: &str) -> BTreeSet<&str> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        text.split(|c| !is_part(c)).filter(|word| word.starts_with("sandcove_")).collect()
    }

    #[test]
    fn alerts_and_dashboard_show_metrics_that_exist() {
        let text = eventful();
        let samples: String =
            text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
        let known = names(&samples);
        for (file, text) in [("alerts.yml", ALERTS), ("dashboard.json", DASHBOARD)] {
            let named = names(text);
            assert!(named.len() > 8, "{file} names {named:?}");
            let unknown: Vec<_> = named.difference(&known).collect();
            assert!(unknown.is_empty(), "{file} names {unknown:?}, which the server does not have");
        }
    }

    #[test]
    fn the_text_format_describes_each_metric_before_its_samples() {
        let text = eventful();
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"));
        assert!(text.contains("# TYPE sandcove_api_requests_total counter\nsandcove_api_requests_total{"));
        assert!(text.contains("# TYPE sandcove_disk_used_bytes gauge\nsandcove_disk_used_bytes 3\n"));
        let helped = |line: &str| line.strip_prefix("# HELP ").map(|rest| rest.split(' ').count() > 1);
        assert!(text.lines().filter_map(helped).all(|has_words| has_words));
        let described = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        let described: BTreeSet<_> = described.collect();
        for name in names(&text) {
            let bare = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            assert!(described.contains(name) || bare.is_some_and(|bare| described.contains(bare)), "{name}");
        }
    }
}
