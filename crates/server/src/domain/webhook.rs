//! Webhooks: receivers of a team's events.

use jiff::Timestamp;
use sandcove_wire::secret::Secret;
use uuid::Uuid;

/// Attempts to deliver an event after the first one.
pub(crate) const MAX_RETRIES: i64 = 3;

/// A receiver of a team's events.
#[derive(Debug, Clone)]
pub(crate) struct Webhook {
    pub(crate) id: Uuid,
    pub(crate) team: Uuid,
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) enabled: bool,
    /// The types of events that are delivered.
    pub(crate) events: Vec<String>,
    /// The secret that deliveries are signed with.
    pub(crate) secret: Secret,
    pub(crate) created_at: Timestamp,
}
