//! The one place where a failed API request becomes a status, a body and a log line (contract: control-plane, section 3).
//! Every `match` here names every variant, so that a new one cannot be forgotten.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use hyper::ext::ReasonPhrase;
use sandcove_image::files::FileError;
use sandcove_wire::api::error::ErrorBody;
use sandcove_wire::api::volume::ContentError;

use super::body;
use crate::Error;

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let status = status(&self);
        log(&self, status);
        match &self {
            // The only two error answers of the API that are not JSON.
            Error::IdNotFound => (status, self.to_string()).into_response(),
            Error::NodeNotFound => status.into_response(),
            _ => {
                let mut answer = body::json(status, &error_body(&self));
                if let Error::TooManyRequests(seconds) = self {
                    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
                }
                if let Error::LegacyClient(_) = &self
                    && let Ok(reason) = ReasonPhrase::try_from(self.to_string())
                {
                    // JavaScript clients of that age show nothing else of an answer.
                    answer.extensions_mut().insert(reason);
                }
                if is_harmful_to_repeat(&self) {
                    answer.headers_mut().insert("should-retry", HeaderValue::from_static("false"));
                }
                answer
            }
        }
    }
}

fn log(error: &Error, status: StatusCode) {
    // The connection that holds the answers is noted when it is closed; those that are refused meanwhile may be thousands.
    if status.is_server_error() && !matches!(error, Error::TooManyUnread) {
        tracing::error!(error = ?error, status = status.as_u16(), "request failed");
    } else {
        tracing::debug!(error = %error, status = status.as_u16(), "request refused");
    }
}

/// An error of a call for a volume's files, whose body has a code in words.
pub(super) struct StringCoded(Error);

impl From<Error> for StringCoded {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for StringCoded {
    fn into_response(self) -> Response {
        let status = status(&self.0);
        log(&self.0, status);
        let words = status.canonical_reason().unwrap_or("error").to_lowercase().replace(' ', "_");
        body::json(status, &ContentError { code: words, message: public_message(&self.0) })
    }
}

/// Whether a repeated request could have its effect twice, because the first one may have had it already or may have it
/// later. Clients repeat requests after 502, 503 and 504 unless the answer forbids it (contract: control-plane, section
/// 15.7).
fn is_harmful_to_repeat(error: &Error) -> bool {
    matches!(error, Error::Deadline)
}

/// The body for an error; its `code` is the status.
pub(super) fn error_body(error: &Error) -> ErrorBody {
    ErrorBody {
        code: status(error).as_u16(),
        message: public_message(error),
        error_code: error_code(error).map(str::to_owned),
    }
}

fn status(error: &Error) -> StatusCode {
    match error {
        Error::InvalidRequest(_)
        | Error::Refused(_)
        | Error::NotAUuid
        | Error::InvalidPageToken
        | Error::InvalidTimeRange
        | Error::TimeoutNotPositive
        | Error::TimeoutTooLong(_)
        | Error::MaxSessionExceeded
        | Error::TooManyOfTeam { .. }
        | Error::SnapshotsTooLarge(_)
        | Error::LegacyClient(_)
        | Error::InvalidSandboxId
        | Error::InvalidTemplateReference(_)
        | Error::InvalidTeamId
        | Error::TemplateInUse { .. }
        | Error::TooManyTags(_)
        | Error::VolumeFiles(FileError::Refused(_))
        | Error::BodyTooLarge(_)
        | Error::BodyAborted => StatusCode::BAD_REQUEST,
        Error::VolumeFiles(FileError::Full) | Error::NoSpaceForUpload(_) => StatusCode::INSUFFICIENT_STORAGE,
        Error::UploadTooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
        Error::NoCredentials(_)
        | Error::MalformedCredential(_)
        | Error::UnknownApiKey(_)
        | Error::UnknownAccessToken(_)
        | Error::UnknownAdminToken => StatusCode::UNAUTHORIZED,
        Error::FeatureOff(_)
        | Error::TlsOnly
        | Error::TemplateForbidden(_)
        | Error::BuildForbidden
        | Error::InvalidUploadLink(_)
        | Error::TeamForbidden
        | Error::TeamBanned
        | Error::TeamBlocked(_) => StatusCode::FORBIDDEN,
        Error::SandboxNotFound(_)
        | Error::SecretNotFound
        | Error::TemplateNotFound(_)
        | Error::TagNotFound { .. }
        | Error::TemplateTagNotFound { .. }
        | Error::BuildNotFound(_)
        | Error::TeamNotFound
        | Error::IdNotFound
        | Error::NodeNotFound
        | Error::VolumeNotFound(_)
        | Error::WebhookNotFound(_)
        | Error::DeliveryNotFound(_)
        | Error::VolumeFiles(FileError::NotFound(_))
        | Error::NoRoute(_)
        | Error::DeprecatedRoute => StatusCode::NOT_FOUND,
        Error::AlreadyPaused(_)
        | Error::SecretConflict
        | Error::TooManySecrets
        | Error::SnapshotsUnsupported(_)
        | Error::AlreadyRunning(_)
        | Error::InTransition(_)
        | Error::BeingKilled(_)
        | Error::PausedUnresponsive(_)
        | Error::NodeRefused(_)
        | Error::NameTaken(_)
        | Error::GlobalNameTaken { .. }
        | Error::VolumeFiles(FileError::Exists(_))
        | Error::IdempotencyInProgress
        | Error::BuildsInProgress
        | Error::NotParked(..)
        | Error::WebhookDisabled(_)
        | Error::IdempotencyOutcomeUnknown
        | Error::IdempotencySandboxGone => StatusCode::CONFLICT,
        Error::IdempotencyMismatch => StatusCode::UNPROCESSABLE_ENTITY,
        Error::TooManySandboxes(_)
        | Error::TooManyAtOnce { .. }
        | Error::TooManyPaused(_)
        | Error::TooManyBuilds(_)
        | Error::TooManyDeliveries(_)
        | Error::TooManyRequests(_) => StatusCode::TOO_MANY_REQUESTS,
        Error::NoCapacity(_)
        | Error::PoolFull(_)
        | Error::PoolNearlyFull(_)
        | Error::StoreFull(_)
        | Error::Busy(..)
        | Error::TooManyUnread
        | Error::AgentUnresponsive(_)
        | Error::HostFull
        | Error::Draining
        | Error::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
        Error::Shared(error) => status(error),
        Error::Deadline | Error::PlacementTimeout | Error::StartTimeout(_) => StatusCode::GATEWAY_TIMEOUT,
        Error::CreateFailed { .. }
        | Error::Seal(_)
        | Error::Backend { .. }
        | Error::Volume { .. }
        | Error::VolumeFiles(FileError::Io { .. })
        | Error::Upload(_)
        | Error::Store(_)
        | Error::Migrate(_)
        | Error::NewerDatabase(_)
        | Error::Corrupt { .. }
        | Error::DataDir { .. }
        | Error::Export { .. }
        | Error::NotRecovered { .. }
        | Error::Leftovers(_)
        | Error::DatabaseMissing(_)
        | Error::Serve(_)
        | Error::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn error_code(error: &Error) -> Option<&'static str> {
    match error {
        Error::NoCapacity(_) | Error::HostFull | Error::Draining => Some("sandbox_capacity_unavailable"),
        Error::PlacementTimeout | Error::StartTimeout(_) => Some("sandbox_placement_timeout"),
        Error::SnapshotsUnsupported(_) => Some("snapshot_filesystem_only_unsupported_node"),
        Error::CreateFailed { .. } => Some("sandbox_create_failed"),
        Error::PausedUnresponsive(_) => Some("sandbox_snapshot_guest_agent_unresponsive"),
        Error::TooManySecrets => Some("secret_limit_reached"),
        Error::Shared(error) => error_code(error),
        Error::IdempotencyMismatch => Some("idempotency_request_mismatch"),
        Error::IdempotencyInProgress => Some("idempotency_in_progress"),
        Error::IdempotencyOutcomeUnknown | Error::IdempotencySandboxGone => {
            Some("idempotency_outcome_unknown")
        }
        Error::Backend { .. }
        | Error::Seal(_)
        | Error::Volume { .. }
        | Error::Upload(_)
        | Error::Store(_)
        | Error::Migrate(_)
        | Error::NewerDatabase(_)
        | Error::Corrupt { .. }
        | Error::DataDir { .. }
        | Error::NotRecovered { .. }
        | Error::Leftovers(_)
        | Error::DatabaseMissing(_)
        | Error::Serve(_)
        | Error::Internal(_) => Some("internal_server_error"),
        Error::InvalidRequest(_)
        | Error::Refused(_)
        | Error::NotAUuid
        | Error::InvalidPageToken
        | Error::InvalidTimeRange
        | Error::TimeoutNotPositive
        | Error::TimeoutTooLong(_)
        | Error::MaxSessionExceeded
        | Error::TooManyOfTeam { .. }
        | Error::LegacyClient(_)
        | Error::FeatureOff(_)
        | Error::InvalidSandboxId
        | Error::SandboxNotFound(_)
        | Error::SecretNotFound
        | Error::SecretConflict
        | Error::AlreadyPaused(_)
        | Error::NotParked(..)
        | Error::AlreadyRunning(_)
        | Error::InTransition(_)
        | Error::BeingKilled(_)
        | Error::TooManySandboxes(_)
        | Error::TooManyAtOnce { .. }
        | Error::TooManyPaused(_)
        | Error::SnapshotsTooLarge(_)
        | Error::PoolNearlyFull(_)
        | Error::TooManyRequests(_)
        | Error::IdNotFound
        | Error::TeamForbidden
        | Error::VolumeNotFound(_)
        | Error::WebhookNotFound(_)
        | Error::DeliveryNotFound(_)
        | Error::WebhookDisabled(_)
        | Error::TooManyDeliveries(_)
        | Error::VolumeFiles(_)
        | Error::NodeNotFound
        | Error::NodeRefused(_)
        | Error::TemplateNotFound(_)
        | Error::TagNotFound { .. }
        | Error::TemplateTagNotFound { .. }
        | Error::TemplateForbidden(_)
        | Error::BuildForbidden
        | Error::BuildsInProgress
        | Error::Export { .. }
        | Error::BuildNotFound(_)
        | Error::NameTaken(_)
        | Error::GlobalNameTaken { .. }
        | Error::TemplateInUse { .. }
        | Error::TooManyBuilds(_)
        | Error::TooManyTags(_)
        | Error::InvalidUploadLink(_)
        | Error::UploadTooLarge(_)
        | Error::NoSpaceForUpload(_)
        | Error::InvalidTemplateReference(_)
        | Error::NoCredentials(_)
        | Error::MalformedCredential(_)
        | Error::UnknownApiKey(_)
        | Error::UnknownAccessToken(_)
        | Error::UnknownAdminToken
        | Error::TeamBanned
        | Error::TeamBlocked(_)
        | Error::InvalidTeamId
        | Error::TeamNotFound
        | Error::NoRoute(_)
        | Error::DeprecatedRoute
        | Error::BodyTooLarge(_)
        | Error::BodyAborted
        | Error::Deadline
        | Error::TlsOnly
        | Error::PoolFull(_)
        | Error::StoreFull(_)
        | Error::Busy(..)
        | Error::TooManyUnread
        | Error::AgentUnresponsive(_)
        | Error::ShuttingDown => None,
    }
}

/// The message for the caller; internal details stay in the log.
fn public_message(error: &Error) -> String {
    match status(error) {
        StatusCode::INTERNAL_SERVER_ERROR => match error.unshared() {
            Error::CreateFailed { .. } | Error::Backend { .. } => error.to_string(),
            _ => "internal server error".to_owned(),
        },
        _ => error.to_string(),
    }
}

/// The answer to a panic in a handler.
pub(super) fn panicked(_: Box<dyn std::any::Any + Send>) -> Response {
    Error::Internal("a handler panicked").into_response()
}
