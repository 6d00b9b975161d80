//! What an operator decides. The composition root parses flags, environment and file into this once.

use std::path::PathBuf;
use std::time::Duration;

use sandcove_wire::secret::Secret;

/// Settings of a server.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where `sandcove.db` is.
    pub data_dir: PathBuf,
    /// Base of `{port}-{id}.<domain>` host names, as told to clients. `localhost:<port>` when unset: browsers and
    /// curl resolve that without any set-up.
    pub domain: Option<String>,
    /// The first API key (`SANDCOVE_API_KEY`); made up when unset and there is none yet.
    pub api_key: Option<Secret>,
    /// A Bearer token that stands for the default team.
    pub access_token: Option<Secret>,
    /// The secret of `X-Admin-Token`; without it there is no such access.
    pub admin_token: Option<Secret>,
    /// Path below which everything is the API, e.g. `/api`.
    pub api_prefix: Option<String>,
    /// Path below which everything is sandbox traffic, e.g. `/sandbox`.
    pub sandbox_prefix: Option<String>,
    /// Sandboxes the default team may run at once.
    pub max_sandboxes: u32,
    /// Longest session of a sandbox of the default team; whole hours read best in messages.
    pub max_session: Duration,
    /// Sandboxes that run at once on this host, of all teams; starts beyond that wait.
    pub capacity: u32,
    /// Starts under way at once; more wait.
    pub max_starts: u32,
    /// How long a start waits for its turn. Clients give up after 60 seconds.
    pub start_patience: Duration,
    /// How long traffic waits for a sandbox that changes its state.
    pub transition_deadline: Duration,
    /// Requests a minute that a team may make to each route; no limit when unset.
    pub rate_limit: Option<u32>,
    /// The most one volume holds, MiB; less when the team's sandboxes may have less.
    pub volume_mib: u64,
    /// How often it is written down how busy teams are.
    pub team_metrics_step: Duration,
    /// Whether webhooks may be delivered on private networks and this host, too.
    pub private_webhooks: bool,
    /// How long a stop waits for requests under way.
    pub grace: Duration,
}

impl Config {
    /// The defaults, with the database in `data_dir`.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            domain: None,
            api_key: None,
            access_token: None,
            admin_token: None,
            api_prefix: None,
            sandbox_prefix: None,
            max_sandboxes: 1000,
            max_session: Duration::from_secs(24 * 3600),
            capacity: 1000,
            max_starts: usual_starts(),
            start_patience: Duration::from_secs(30),
            transition_deadline: Duration::from_secs(60),
            rate_limit: None,
            volume_mib: 10 << 10,
            team_metrics_step: Duration::from_secs(10),
            private_webhooks: false,
            grace: Duration::from_secs(5),
        }
    }
}

/// More at once than this only slow each other down: then all of them run into a deadline instead of some of them waiting.
fn usual_starts() -> u32 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(processors * 4).unwrap_or(u32::MAX).max(8)
}
