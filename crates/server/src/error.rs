//! Everything that can go wrong in the control plane, by what happened. Which status that is, `http::error` knows.

use sandcove_wire::id::SandboxId;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request does not have the documented form; the text starts behind `validation error: `.
    #[error("validation error: {0}")]
    Schema(String),
    /// The request has the right form and asks for something that is refused.
    #[error("{0}")]
    Refused(String),
    /// Refused, with a name clients know.
    #[error("{message}")]
    RefusedAs {
        /// The name.
        code: &'static str,
        /// For the caller.
        message: String,
    },
    /// A client of the first generation, whose protocol is another one.
    #[error("e2b {0} is not supported by this server: use release 1.0 or later of the package")]
    LegacyClient(String),
    /// The feature is off on this server.
    #[error("{0}")]
    FeatureOff(&'static str),
    /// Not a sandbox id.
    #[error("Invalid sandbox ID")]
    InvalidSandboxId,
    /// No such sandbox, or somebody else's.
    #[error("Sandbox \"{0}\" doesn't exist or you don't have access to it")]
    SandboxNotFound(String),
    /// It is paused already.
    #[error("Sandbox \"{0}\" is already paused")]
    AlreadyPaused(SandboxId),
    /// It is running already.
    #[error("Sandbox \"{0}\" is already running")]
    AlreadyRunning(SandboxId),
    /// It is on its way to another state.
    #[error("Sandbox \"{0}\" is changing its state, try again")]
    InTransition(SandboxId),
    /// Its agent does not answer, and the caller wants it paused only if it does.
    #[error("the agent of sandbox \"{0}\" does not answer: it was not paused")]
    AgentUnresponsive(SandboxId),
    /// It is being killed.
    #[error("Sandbox \"{0}\" is being killed")]
    BeingKilled(SandboxId),
    /// The team runs as many as it may.
    #[error("You have reached the maximum number of concurrent E2B sandboxes ({0}).")]
    TooManySandboxes(u32),
    /// As many sandboxes run as the host takes, and none ended in time.
    #[error("no capacity for another sandbox, try again later")]
    NoRoom,
    /// Other starts were in the way for too long.
    #[error("the sandbox could not be started in time, try again later")]
    PlacementTimeout,
    /// It was begun, and the host was too busy to get it done.
    #[error("the sandbox could not be started in time, try again later")]
    StartTimeout(#[source] sandcove_isolate::Error),
    /// An operator has closed the door.
    #[error("this server takes no new sandboxes at the moment")]
    Draining,
    /// The team asks too often.
    #[error("too many requests, try again in {0} seconds")]
    TooManyRequests(u64),
    /// No host resources for one more sandbox.
    #[error("no capacity for another sandbox")]
    NoCapacity(#[source] sandcove_isolate::Error),
    /// No room for what is to be kept.
    #[error("the storage of this server is full: delete snapshots or sandboxes")]
    PoolFull(#[source] sandcove_isolate::Error),
    /// Its processes cannot be stopped just now.
    #[error("Sandbox \"{0}\" is busy, try again")]
    Busy(SandboxId, #[source] sandcove_isolate::Error),
    /// Files cannot be kept apart on this server.
    #[error("this server cannot take snapshots: its storage is not on btrfs")]
    SnapshotsUnsupported(#[source] sandcove_isolate::Error),
    /// The sandbox could not be started.
    #[error("failed to start sandbox {id}")]
    CreateFailed {
        /// Which.
        id: SandboxId,
        /// Why.
        source: sandcove_isolate::Error,
    },
    /// A running sandbox could not be changed.
    #[error("failed to {action} sandbox {id}")]
    Backend {
        /// What was tried.
        action: &'static str,
        /// Which.
        id: SandboxId,
        /// Why.
        source: sandcove_isolate::Error,
    },
    /// No such template.
    #[error("template '{0}' not found")]
    TemplateNotFound(String),
    /// The template is there, the tag is not.
    #[error("tag '{tag}' does not exist for template '{template}'")]
    TagNotFound {
        /// As asked for.
        template: String,
        /// As asked for.
        tag: String,
    },
    /// The template exists and is somebody else's.
    #[error("You don't have access to template '{0}'")]
    TemplateForbidden(String),
    /// The reference does not follow the grammar.
    #[error("Invalid template reference: {0}")]
    InvalidTemplateReference(String),
    /// No credentials at all; with those that the call takes.
    #[error("authorization header is missing: send {0}")]
    NoCredentials(&'static str),
    /// A credential without the right prefix.
    #[error("{0}")]
    MalformedCredential(&'static str),
    /// An API key nobody has.
    #[error("Invalid API key, please visit {0} for more information.")]
    UnknownApiKey(&'static str),
    /// An access token nobody has.
    #[error("Invalid Access token, try to login again by running {0}.")]
    UnknownAccessToken(&'static str),
    /// Not the admin's secret.
    #[error("Invalid admin token")]
    UnknownAdminToken,
    /// The team may nothing.
    #[error("team is banned")]
    TeamBanned,
    /// The team may only look and clean up.
    #[error("team is blocked: {0}")]
    TeamBlocked(String),
    /// No such volume, or somebody else's.
    #[error("volume '{0}' not found")]
    VolumeNotFound(uuid::Uuid),
    /// No such webhook, or somebody else's.
    #[error("webhook '{0}' not found")]
    WebhookNotFound(uuid::Uuid),
    /// A file operation in a volume was not done.
    #[error(transparent)]
    VolumeFiles(sandcove_image::files::FileError),
    /// The host could not make a volume.
    #[error("failed to {action} a volume")]
    Volume {
        /// What was tried.
        action: &'static str,
        /// Why.
        source: sandcove_isolate::Error,
    },
    /// No such key or token, or somebody else's.
    #[error("id not found")]
    IdNotFound,
    /// No such host.
    #[error("no such node")]
    NodeNotFound,
    /// The host cannot be made what was asked for.
    #[error("{0}")]
    NodeRefused(String),
    /// `X-Team-ID` is not an id.
    #[error("Invalid team ID")]
    InvalidTeamId,
    /// The team a path names is not that of the credentials, or there is none.
    #[error("you don't have access to this team")]
    TeamForbidden,
    /// `X-Team-ID` names no team.
    #[error("Team not found")]
    TeamNotFound,
    /// The idempotency key was used for another body.
    #[error("the Idempotency-Key was used with a different request")]
    IdempotencyMismatch,
    /// The first request with this key is still under way.
    #[error("a request with this Idempotency-Key is in progress")]
    IdempotencyInProgress,
    /// What the first request with this key led to is not known, or is gone.
    #[error("the outcome of the request with this Idempotency-Key is unknown")]
    IdempotencyOutcomeUnknown,
    /// No such path.
    #[error("no route for {0}")]
    NoRoute(String),
    /// The pre-1.0 API.
    #[error("this endpoint is deprecated, please update your E2B SDK or CLI")]
    DeprecatedRoute,
    /// The body is larger than the API reads.
    #[error("request body is larger than {0} bytes")]
    BodyTooLarge(usize),
    /// The body could not be read to its end.
    #[error("failed to read the request body")]
    BodyAborted,
    /// The request took longer than it may.
    #[error("request took too long")]
    Deadline,
    /// The store failed.
    #[error("store failed")]
    Store(#[source] sqlx::Error),
    /// The store's disk has no room.
    #[error("the disk of this server's database is full: nothing can be changed until there is room")]
    StoreFull(#[source] sqlx::Error),
    /// The store could not be brought up to date.
    #[error("store could not be migrated")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    /// A newer server has changed the tables.
    #[error(
        "the database was written by a newer sandcove (migration {0} is unknown); this is {version}: use the newer one, \
         or another data directory",
        version = env!("CARGO_PKG_VERSION")
    )]
    NewerDatabase(i64),
    /// A stored value cannot be read back.
    #[error("stored {what} `{id}` cannot be read")]
    Corrupt {
        /// Kind of row.
        what: &'static str,
        /// Its id.
        id: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The data directory cannot be used.
    #[error("failed to prepare data directory `{path}`")]
    DataDir {
        /// Where.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// At a start, a sandbox of an earlier server could be called neither alive nor dead.
    #[error("sandbox {id} of an earlier run was not found again, and may be alive: nothing was removed")]
    NotRecovered {
        /// The sandbox.
        id: SandboxId,
        /// What is not known, and why.
        source: sandcove_isolate::Error,
    },
    /// At a start, the database is not there though sandboxes are.
    #[error(
        "the database `{0}` is missing, but there are sandboxes, snapshots or volumes of an earlier run: put it back, or remove \
         them with `sandcove purge`"
    )]
    DatabaseMissing(std::path::PathBuf),
    /// The listener failed.
    #[error("failed to serve")]
    Serve(#[source] std::io::Error),
    /// The server is stopping.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// A broken promise of this server's own code.
    #[error("internal error: {0}")]
    Internal(&'static str),
}

impl From<sqlx::Error> for Error {
    fn from(source: sqlx::Error) -> Self {
        /// What SQLite calls a disk without room.
        const FULL: &str = "13";
        let full = match &source {
            sqlx::Error::Database(error) => error.code().as_deref() == Some(FULL),
            sqlx::Error::Io(error) => error.kind() == std::io::ErrorKind::StorageFull,
            _ => false,
        };
        if full { Self::StoreFull(source) } else { Self::Store(source) }
    }
}

impl Error {
    /// A failed file operation in a volume.
    pub(crate) fn from_volume(action: &'static str, source: std::io::Error) -> Self {
        use sandcove_image::files::FileError;
        Self::VolumeFiles(match source.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => FileError::Full,
            _ => FileError::Io { action, source },
        })
    }
}
