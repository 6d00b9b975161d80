//! Failures of the control plane, named for what happened. `http::error` chooses the status of each.

use std::sync::Arc;

use sandcove_wire::id::SandboxId;

/// Templates that the `sandcove` program builds when a user asks for them.
pub const ON_REQUEST: [&str; 2] = ["desktop", "mcp-gateway"];

/// The result of a function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure of the control plane.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request does not have the documented form; the text follows `validation error: `.
    #[error("validation error: {0}")]
    InvalidRequest(String),
    /// The request has the documented form and asks for something that is refused.
    #[error("{0}")]
    Refused(String),
    /// The text is not a UUID.
    #[error("the ID is not a UUID")]
    NotAUuid,
    /// The token is not one of a page, or of the other order.
    #[error("Invalid next token")]
    InvalidPageToken,
    /// The time span ends before it starts.
    #[error("start time cannot be after end time")]
    InvalidTimeRange,
    /// The timeout is zero or negative.
    #[error("Timeout must be greater than 0")]
    TimeoutNotPositive,
    /// The timeout is longer than the team's maximum session, in hours.
    #[error("Timeout cannot be greater than {0} hours")]
    TimeoutTooLong(u64),
    /// The session would become longer than the team's maximum session.
    #[error("Max instance length exceeded")]
    MaxSessionExceeded,
    /// The team has the maximum number of something.
    #[error("a team may have at most {max} {what}")]
    TooManyOfTeam {
        /// The maximum.
        max: usize,
        /// The thing, in the plural.
        what: &'static str,
    },
    /// The team does something the maximum number of times at once.
    #[error("a team may have at most {max} {what} at once; try again when one has ended")]
    TooManyAtOnce {
        /// The maximum.
        max: usize,
        /// The thing, in the plural.
        what: &'static str,
    },
    /// The client is of the first generation, which speaks another protocol.
    #[error("e2b {0} is not supported by this server: use release 1.0 or later of the package")]
    LegacyClient(String),
    /// The feature is off on this server.
    #[error("{0}")]
    FeatureOff(&'static str),
    /// The team has no such secret.
    #[error("Secret not found")]
    SecretNotFound,
    /// The team has a secret of that name, or somebody changed the secret at the same time.
    #[error("Secret cannot be modified in its current state")]
    SecretConflict,
    /// The team has as many secrets as it may; the contract has one text for this and a conflict.
    #[error("Secret cannot be modified in its current state")]
    TooManySecrets,
    /// The value of a secret could not be sealed.
    #[error("failed to seal the value of a secret")]
    Seal(#[source] sandcove_isolate::Error),
    /// The text is not a sandbox id.
    #[error("Invalid sandbox ID")]
    InvalidSandboxId,
    /// The team has no such sandbox.
    #[error("Sandbox \"{0}\" doesn't exist or you don't have access to it")]
    SandboxNotFound(String),
    /// The sandbox is already paused.
    #[error("Sandbox \"{0}\" is already paused")]
    AlreadyPaused(SandboxId),
    /// The sandbox is already running.
    #[error("Sandbox \"{0}\" is already running")]
    AlreadyRunning(SandboxId),
    /// The sandbox is in transition to another state.
    #[error("Sandbox \"{0}\" is changing its state, try again")]
    InTransition(SandboxId),
    /// The sandbox's agent does not answer, and the caller wants it paused only when it does.
    #[error("the agent of sandbox \"{0}\" does not answer: it was not paused")]
    AgentUnresponsive(SandboxId),
    /// The sandbox's agent did not answer when it was paused, and a resume from its memory is asked for (contract: control-plane, section 6.8).
    #[error(
        "the agent of sandbox \"{0}\" did not answer when it was paused: only its files can be resumed, with \"memory\": false or \
         `sandcove sandbox resume --files-only`"
    )]
    PausedUnresponsive(SandboxId),
    /// The sandbox is being killed.
    #[error("Sandbox \"{0}\" is being killed")]
    BeingKilled(SandboxId),
    /// The team runs as many sandboxes as it may.
    #[error("You have reached the maximum number of concurrent E2B sandboxes ({0}).")]
    TooManySandboxes(u32),
    /// The team has as many paused sandboxes as it may.
    #[error("You have reached the maximum number of paused sandboxes ({0}): resume or kill some of them.")]
    TooManyPaused(u32),
    /// The snapshots of the team take as much disk as they may, MiB.
    #[error(
        "the snapshots of a team, with the sandboxes they were taken of, may take {0} MiB of disk: delete some"
    )]
    SnapshotsTooLarge(u64),
    /// The storage is too full for another snapshot.
    #[error("the storage of this server is too full for snapshots and forks: delete snapshots or sandboxes")]
    PoolNearlyFull(#[source] sandcove_isolate::Error),
    /// The host runs as many sandboxes as it can, and none ended in time.
    #[error("no capacity for another sandbox, try again later")]
    HostFull,
    /// The start waited too long for other starts.
    #[error("the sandbox could not be started in time, try again later")]
    PlacementTimeout,
    /// The start began, and the host was too busy to finish it in time.
    #[error("the sandbox could not be started in time, try again later")]
    StartTimeout(#[source] sandcove_isolate::Error),
    /// An operator has set the host to admit no new sandboxes.
    #[error("this server takes no new sandboxes at the moment")]
    Draining,
    /// The team has exceeded its rate limit.
    #[error("too many requests, try again in {0} seconds")]
    TooManyRequests(u64),
    /// The host has no resources for another sandbox.
    #[error("no capacity for another sandbox")]
    NoCapacity(#[source] sandcove_isolate::Error),
    /// The storage has no space for the files to be kept.
    #[error("the storage of this server is full: delete snapshots or sandboxes")]
    PoolFull(#[source] sandcove_isolate::Error),
    /// The sandbox's processes cannot be frozen at the moment.
    #[error("Sandbox \"{0}\" is busy, try again")]
    Busy(SandboxId, #[source] sandcove_isolate::Error),
    /// The memory of the sandbox cannot be stored on disk.
    #[error("Sandbox \"{0}\" cannot be parked: {1}")]
    NotParked(SandboxId, String),
    /// The storage of this server does not support snapshots.
    #[error("this server cannot take snapshots: its storage is not on btrfs")]
    SnapshotsUnsupported(#[source] sandcove_isolate::Error),
    /// The sandbox could not be started.
    #[error("failed to start sandbox {id}")]
    CreateFailed {
        /// The sandbox.
        id: SandboxId,
        /// The failure of the host side.
        source: sandcove_isolate::Error,
    },
    /// A running sandbox could not be changed.
    #[error("failed to {action} sandbox {id}")]
    Backend {
        /// The operation that failed.
        action: &'static str,
        /// The sandbox.
        id: SandboxId,
        /// The failure of the host side.
        source: sandcove_isolate::Error,
    },
    /// The team can use no such template.
    #[error("template '{0}' not found{hint}", hint = how_to_build(.0))]
    TemplateNotFound(String),
    /// The template has no such tag.
    #[error("tag '{tag}' does not exist for template '{template}'")]
    TagNotFound {
        /// The template as requested.
        template: String,
        /// The tag as requested.
        tag: String,
    },
    /// The template has no build under that tag, which was to get other tags.
    #[error("Template '{template}' with tag '{tag}' not found")]
    TemplateTagNotFound {
        /// The template as requested.
        template: String,
        /// The tag as requested.
        tag: String,
    },
    /// The template exists and is another team's.
    #[error("You don't have access to template '{0}'")]
    TemplateForbidden(String),
    /// The builds of the template are another team's.
    #[error("User does not have access to the template")]
    BuildForbidden,
    /// Something of builds is to be deleted by hand while builds are in progress.
    #[error("builds or exports are in progress: try again when they have ended")]
    BuildsInProgress,
    /// The files of a build cannot be opened.
    #[error("failed to open the files of build {build}")]
    Export {
        /// The build.
        build: uuid::Uuid,
        /// Error of the host side.
        source: sandcove_isolate::Error,
    },
    /// The template has no such build.
    #[error("Build '{0}' not found")]
    BuildNotFound(uuid::Uuid),
    /// The name is that of a snapshot, or the id of a template.
    #[error("Alias '{0}' is already used")]
    NameTaken(String),
    /// Another template has that name in every team.
    #[error("Alias '{alias}' is already used by another public template: '{full}' can be used instead")]
    GlobalNameTaken {
        /// The name without namespace.
        alias: String,
        /// The name with namespace.
        full: String,
    },
    /// The template is in use by sandboxes, which are running or paused.
    #[error("cannot delete template '{template}' because there are {state} sandboxes using it")]
    TemplateInUse {
        /// The template as requested.
        template: String,
        /// The state of a sandbox that uses it.
        state: &'static str,
    },
    /// The team has as many unfinished builds as it may.
    #[error(
        "you have reached the maximum number of concurrent template builds ({0}): wait until some of them have finished"
    )]
    TooManyBuilds(u32),
    /// The template would have more tags than it may.
    #[error("a template may have at most {0} tags")]
    TooManyTags(usize),
    /// The link of an upload is wrong, or of another time.
    #[error("the upload link is not valid: {0}")]
    InvalidUploadLink(&'static str),
    /// The uploaded files, with those that the team's builds use, are larger than they may be, MiB.
    #[error("the uploaded files of a team's builds may have at most {0} MiB, in 10,000 archives, together")]
    UploadTooLarge(u64),
    /// There is no space for the uploaded files.
    #[error("there is no space for the files of another build: try again later")]
    NoSpaceForUpload(#[source] std::io::Error),
    /// The uploaded files could not be stored.
    #[error("failed to store the uploaded files")]
    Upload(#[source] std::io::Error),
    /// The template reference does not follow the grammar.
    #[error("Invalid template reference: {0}")]
    InvalidTemplateReference(String),
    /// The request has no credentials; with those that the call accepts.
    #[error("authorization header is missing: send {0}")]
    NoCredentials(&'static str),
    /// The credential does not have the right prefix.
    #[error("{0}")]
    MalformedCredential(&'static str),
    /// The API key is not known.
    #[error("Invalid API key, please visit {0} for more information.")]
    UnknownApiKey(&'static str),
    /// The access token is not known.
    #[error("Invalid Access token, try to login again by running {0}.")]
    UnknownAccessToken(&'static str),
    /// The admin token is wrong.
    #[error("Invalid admin token")]
    UnknownAdminToken,
    /// The team is banned from every call.
    #[error("team is banned")]
    TeamBanned,
    /// The team may only read and clean up.
    #[error("team is blocked: {0}")]
    TeamBlocked(String),
    /// The team has no such volume.
    #[error("volume '{0}' not found")]
    VolumeNotFound(uuid::Uuid),
    /// The team has no such webhook.
    #[error("webhook '{0}' not found")]
    WebhookNotFound(uuid::Uuid),
    /// The webhook has no such delivery.
    #[error("delivery '{0}' not found")]
    DeliveryNotFound(uuid::Uuid),
    /// The webhook is disabled, so nothing is delivered to it.
    #[error("webhook '{0}' is disabled: enable it to deliver to it")]
    WebhookDisabled(uuid::Uuid),
    /// The webhook has the maximum number of deliveries that wait.
    #[error("{0} deliveries wait for this webhook, try again later")]
    TooManyDeliveries(i64),
    /// A file operation in a volume failed or was refused.
    #[error(transparent)]
    VolumeFiles(sandcove_image::files::FileError),
    /// The host side could not create or delete a volume.
    #[error("failed to {action} a volume")]
    Volume {
        /// The operation that failed.
        action: &'static str,
        /// The failure of the host side.
        source: sandcove_isolate::Error,
    },
    /// The team has no such key or token.
    #[error("id not found")]
    IdNotFound,
    /// The node does not exist.
    #[error("no such node")]
    NodeNotFound,
    /// The node cannot be set to the requested status.
    #[error("{0}")]
    NodeRefused(String),
    /// `X-Team-ID` is not an id.
    #[error("Invalid team ID")]
    InvalidTeamId,
    /// The path names a team other than that of the credentials.
    #[error("you don't have access to this team")]
    TeamForbidden,
    /// `X-Team-ID` names no team.
    #[error("Team not found")]
    TeamNotFound,
    /// The idempotency key was used for another body.
    #[error("the Idempotency-Key was used with a different request")]
    IdempotencyMismatch,
    /// The first request with this key is still in progress.
    #[error("a request with this Idempotency-Key is in progress")]
    IdempotencyInProgress,
    /// The outcome of the first request with this key is unknown.
    #[error("the outcome of the request with this Idempotency-Key is unknown")]
    IdempotencyOutcomeUnknown,
    /// The sandbox that was created with this key is gone.
    #[error("the sandbox that was created with this Idempotency-Key is gone; use another key for a new one")]
    IdempotencySandboxGone,
    /// The API has no such route.
    #[error("no route for {0}")]
    NoRoute(String),
    /// The route belongs to the API before 1.0.
    #[error("this endpoint is deprecated, please update your E2B SDK or CLI")]
    DeprecatedRoute,
    /// The request body is larger than the API accepts.
    #[error("request body is larger than {0} bytes")]
    BodyTooLarge(usize),
    /// The request body could not be read to its end.
    #[error("failed to read the request body")]
    BodyAborted,
    /// The request came without TLS, which the operator refuses.
    #[error(
        "this server takes TLS only, and everyone on the way has read what was sent; use https://, and replace the key"
    )]
    TlsOnly,
    /// The request took longer than its deadline.
    #[error("request took too long")]
    Deadline,
    /// Answers that clients have not read take all the memory that they may.
    #[error("this server holds too many answers that clients have not read yet; try again later")]
    TooManyUnread,
    /// The store failed.
    #[error("store failed")]
    Store(#[source] sqlx::Error),
    /// The disk of the store is full.
    #[error("the disk of this server's database is full: nothing can be changed until there is room")]
    StoreFull(#[source] sqlx::Error),
    /// The store could not be migrated.
    #[error("store could not be migrated")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    /// The database was migrated by a newer server.
    #[error(
        "the database was written by a newer sandcove (migration {0} is unknown); this is {version}: use the newer one, \
         or another data directory",
        version = env!("CARGO_PKG_VERSION")
    )]
    NewerDatabase(i64),
    /// A stored value cannot be read back.
    #[error("stored {what} `{id}` cannot be read")]
    Corrupt {
        /// The kind of row.
        what: &'static str,
        /// The id of the row.
        id: String,
        /// The reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The data directory cannot be used.
    #[error("failed to prepare data directory `{path}`")]
    DataDir {
        /// The path.
        path: std::path::PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// At a start, a sandbox of an earlier run was neither known to be alive nor known to be dead.
    #[error("sandbox {id} of an earlier run was not found again, and may be alive: nothing was removed")]
    NotRecovered {
        /// The sandbox.
        id: SandboxId,
        /// The failure to find out.
        source: sandcove_isolate::Error,
    },
    /// At a start, the host side did not answer or failed.
    #[error("failed to find out what an earlier run has left on this host")]
    Leftovers(#[source] sandcove_isolate::Error),
    /// At a start, the database is missing although there are sandboxes.
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
    /// A transition failed that several requests waited for; each of them gets this error.
    #[error(transparent)]
    Shared(Arc<Error>),
    /// An invariant of the server's own code does not hold.
    #[error("internal error: {0}")]
    Internal(&'static str),
}

impl From<sqlx::Error> for Error {
    fn from(source: sqlx::Error) -> Self {
        /// SQLite's code for a full disk.
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
    /// The error itself, of one that requests share.
    pub(crate) fn unshared(&self) -> &Self {
        match self {
            Self::Shared(error) => error,
            other => other,
        }
    }

    /// The error of a failed file operation in a volume.
    pub(crate) fn from_volume(action: &'static str, source: std::io::Error) -> Self {
        use sandcove_image::files::FileError;
        Self::VolumeFiles(match source.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => FileError::Full,
            _ => FileError::Io { action, source },
        })
    }
}

/// The end of a message about a missing template that users can build with one command.
fn how_to_build(reference: &str) -> String {
    let name = reference.split(':').next().unwrap_or(reference);
    if ON_REQUEST.contains(&name) {
        format!("; build it with `sandcove template build --builtin {name}`")
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_template_that_can_be_built_is_reported_with_the_command() {
        let message = |name: &str| Error::TemplateNotFound(name.to_owned()).to_string();
        assert_eq!(message("other"), "template 'other' not found");
        assert_eq!(
            message("desktop:v1"),
            "template 'desktop:v1' not found; build it with `sandcove template build --builtin desktop`"
        );
    }
}
