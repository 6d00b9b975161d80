//! Settings that the operator decides. The composition root parses flags, environment and file into [`Config`] once.

use std::path::PathBuf;
use std::time::Duration;

use sandcove_image::oci::Mirror;
use sandcove_wire::secret::Secret;
use serde::{Deserialize, Serialize};

use crate::tls::Certificates;

/// Settings of a server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Config {
    /// The directory of `sandcove.db`, the audit log, logs of builds and uploads; nothing else is written.
    pub data_dir: PathBuf,
    /// Base of `{port}-{id}.<domain>` host names, as returned to clients. `localhost:<port>` when unset, which browsers and
    /// curl resolve without any set-up.
    pub domain: Option<String>,
    /// The certificate with which the listener takes TLS beside plain HTTP; plain HTTP only when unset.
    ///
    /// No part of what another process sends: the certificate is sent by itself.
    #[serde(skip)]
    pub tls: Option<Certificates>,
    /// Whether other machines are refused plain HTTP.
    pub tls_only: bool,
    /// The first API key (`SANDCOVE_API_KEY`); a new one is created when unset and there is none yet.
    pub api_key: Option<Secret>,
    /// A bearer token of the default team.
    pub access_token: Option<Secret>,
    /// The secret of `X-Admin-Token`; without it, calls of operators are refused.
    pub admin_token: Option<Secret>,
    /// Path prefix of the API, e.g. `/api`.
    pub api_prefix: Option<String>,
    /// Path prefix of sandbox traffic, e.g. `/sandbox`.
    pub sandbox_prefix: Option<String>,
    /// Sandboxes that the default team may run at once.
    pub max_sandboxes: u32,
    /// Maximum session of a sandbox of the default team; error messages show whole hours.
    pub max_session: Duration,
    /// Sandboxes of all teams that run at once on this host; further starts wait.
    pub capacity: u32,
    /// Memory that paused sandboxes of all teams may hold, percent of the host's. Beyond it the oldest lose theirs, and keep
    /// their files.
    pub paused_memory_percent: u32,
    /// Time after which the memory of a paused sandbox goes to disk, if this host can store memory; only when memory is needed otherwise,
    /// if unset.
    pub park_after: Option<Duration>,
    /// Starts in progress at once; further ones wait.
    pub max_starts: u32,
    /// Time that a start waits to be admitted. Clients give up after 60 seconds.
    pub start_timeout: Duration,
    /// Time that traffic waits for a sandbox in transition.
    pub transition_deadline: Duration,
    /// Requests per minute that a team may make to each route; no limit when unset.
    pub rate_limit: Option<u32>,
    /// Maximum size of a volume, MiB; the disk limit of the team's sandboxes when that is less.
    pub volume_mib: u64,
    /// Time between two samples of the activity of teams.
    pub team_metrics_step: Duration,
    /// Whether webhooks may be delivered to private networks and this host.
    pub private_webhooks: bool,
    /// Sandboxes whose code interpreter runs code only for clients with the sandbox's token.
    pub interpreter_token: InterpreterToken,
    /// Whether clients of the first generation, before 1.0, are served.
    pub legacy: bool,
    /// Whether the dashboard is served.
    pub dashboard: bool,
    /// Where metrics are sent, the whole URL; nowhere when unset.
    pub metrics_to: Option<Secret>,
    /// Registries that images of template builds come from.
    pub registries: Registries,
    /// Builds of templates in progress at once; further ones wait.
    pub max_builds: usize,
    /// Maximum duration of a build, without the time it waits.
    pub build_timeout: Duration,
    /// Time between deletions of what no template, sandbox or build uses.
    pub gc_interval: Duration,
    /// Memory of the warm interpreters of teams' templates.
    pub warm_memory: WarmMemory,
    /// Time in which a client has to send the head of a request.
    pub header_timeout: Duration,
    /// Time that a stop waits for requests in progress.
    pub grace: Duration,
}

/// Memory of the warm interpreters of teams' templates, MiB.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct WarmMemory {
    /// Maximum of all together.
    pub total_mib: u64,
    /// Maximum of those that one team uses.
    pub team_mib: u64,
}

impl Default for WarmMemory {
    fn default() -> Self {
        Self { total_mib: 4096, team_mib: 2048 }
    }
}

/// Registries that images of template builds come from. Without settings, registries are on the internet and have TLS.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Registries {
    /// Servers that are asked before a registry.
    pub mirrors: Vec<Mirror>,
    /// Registries without TLS, as `host` or `host:port`; their addresses may be private.
    pub insecure: Vec<String>,
    /// Registries with TLS whose addresses may be private, as `host` or `host:port`.
    pub private: Vec<String>,
    /// Whether the address of every registry may be private.
    pub allow_private: bool,
}

/// The sandboxes whose code interpreter runs code only for clients with the sandbox's token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum InterpreterToken {
    /// All sandboxes. Managing contexts needs the token too, which current official clients do not send.
    Always,
    /// Secure sandboxes, unless a client created them that cannot send the token.
    #[default]
    Secure,
    /// No sandbox.
    Never,
}

impl Config {
    /// The default settings, with the database in `data_dir`.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            domain: None,
            tls: None,
            tls_only: false,
            api_key: None,
            access_token: None,
            admin_token: None,
            api_prefix: None,
            sandbox_prefix: None,
            max_sandboxes: 1000,
            max_session: Duration::from_secs(24 * 3600),
            capacity: 1000,
            paused_memory_percent: 50,
            park_after: None,
            max_starts: default_max_starts(),
            start_timeout: Duration::from_secs(30),
            transition_deadline: Duration::from_secs(60),
            rate_limit: None,
            volume_mib: 10 << 10,
            team_metrics_step: Duration::from_secs(10),
            private_webhooks: false,
            interpreter_token: InterpreterToken::default(),
            legacy: true,
            dashboard: true,
            metrics_to: None,
            registries: Registries::default(),
            max_builds: default_max_builds(),
            build_timeout: Duration::from_secs(3600),
            gc_interval: Duration::from_secs(600),
            warm_memory: WarmMemory::default(),
            header_timeout: Duration::from_secs(30),
            grace: Duration::from_secs(5),
        }
    }
}

/// The default of [`Config::max_builds`]: builds wait for networks most of the time, and one that hangs must not hold up the others.
fn default_max_builds() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).saturating_mul(2).clamp(8, 32)
}

/// The default of [`Config::max_starts`]. Further starts would slow down all of them until each one misses its deadline.
fn default_max_starts() -> u32 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(processors * 4).unwrap_or(u32::MAX).max(8)
}
