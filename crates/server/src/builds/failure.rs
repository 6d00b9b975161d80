//! Why a build fails, and what the client learns of it. Faults of the server are hidden behind one text that asks for the build
//! id; the details are in the server's log.

use sandcove_isolate::Error as IsolateError;
use uuid::Uuid;

use crate::Error;
use crate::domain::build::BuildReason;
use crate::domain::team::Team;

/// A failure of a build.
#[derive(Debug)]
pub(super) struct Failure {
    kind: Kind,
    step: Option<String>,
}

#[derive(Debug)]
enum Kind {
    /// The text is for the client.
    Client(String),
    /// A fault of the server.
    Internal(Box<dyn std::error::Error + Send + Sync>),
    /// The files of a step in the cache are gone.
    Stale(String),
}

impl Failure {
    /// A failure with a text for the client.
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { kind: Kind::Client(message.into()), step: None }
    }

    /// The failure when the snapshots and templates of a team take all the disk they may.
    pub(super) fn no_disk(team: &Team) -> Self {
        Self::new(format!(
            "the snapshots and templates of a team may take {} MiB of disk: delete some, and what builds have cached \
             (`sandcove template gc`)",
            team.quota.snapshots_mib
        ))
    }

    /// The failure to begin with a snapshot from the cache.
    pub(super) fn stale(snapshot: String) -> Self {
        Self { kind: Kind::Stale(snapshot), step: None }
    }

    /// A fault of the server.
    pub(super) fn internal(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { kind: Kind::Internal(error.into()), step: None }
    }

    /// The failure at a step, unless it is known to be that of another.
    pub(super) fn at(mut self, step: &str) -> Self {
        self.step.get_or_insert_with(|| step.to_owned());
        self
    }

    /// The failure with a text in front of that for the client.
    pub(super) fn prefixed(mut self, prefix: &str) -> Self {
        if let Kind::Client(message) = &mut self.kind {
            message.insert_str(0, prefix);
        }
        self
    }

    /// The failure with another name for what the client knows under it.
    pub(super) fn renamed(mut self, name: &str, shown: &str) -> Self {
        if let Kind::Client(message) = &mut self.kind {
            *message = message.replace(name, shown);
        }
        self
    }

    /// The snapshot whose files are gone, if that is the failure.
    pub(super) fn stale_snapshot(&self) -> Option<&str> {
        match &self.kind {
            Kind::Stale(snapshot) => Some(snapshot),
            Kind::Client(_) | Kind::Internal(_) => None,
        }
    }

    /// The reason for the client. Details of faults of the server go to its log.
    pub(super) fn reason(self, build: Uuid) -> BuildReason {
        let hidden = || {
            format!(
                "An internal error occurred. Please quote the build id {build} to the operator of this server."
            )
        };
        let message = match self.kind {
            Kind::Client(message) => message,
            Kind::Internal(error) => {
                tracing::error!(build_id = %build, step = self.step, error = &*error as &dyn std::error::Error, "a build failed");
                hidden()
            }
            Kind::Stale(snapshot) => {
                tracing::error!(build_id = %build, snapshot, "a build failed: the files of a cached step are gone");
                hidden()
            }
        };
        BuildReason { message, step: self.step }
    }
}

impl From<IsolateError> for Failure {
    fn from(error: IsolateError) -> Self {
        match error {
            IsolateError::NoSnapshots => {
                Self::new("this server cannot build templates: its storage is not on btrfs")
            }
            IsolateError::NoSlot(_) => Self::new("this server runs too many sandboxes: try again later"),
            error if error.is_full() || matches!(error, IsolateError::PoolNearlyFull { .. }) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "no room for a build");
                Self::new(
                    "the storage of this server is too full for this build: delete templates, snapshots or sandboxes",
                )
            }
            error => Self::internal(error),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            error @ (Error::TemplateNotFound(_)
            | Error::TagNotFound { .. }
            | Error::InvalidTemplateReference(_)
            | Error::TemplateForbidden(_)
            | Error::StoreFull(_)) => Self::new(error.to_string()),
            error => Self::internal(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_the_server_are_hidden_and_named_by_the_build() {
        let failure = Failure::internal(std::io::Error::other("/secret/path")).at("2").at("finalize");
        let reason = failure.reason(Uuid::nil());
        assert_eq!(reason.step.as_deref(), Some("2"));
        assert!(!reason.message.contains("secret") && reason.message.contains(&Uuid::nil().to_string()));
    }

    #[test]
    fn what_the_client_can_change_is_said() {
        let reason = Failure::from(Error::TemplateNotFound("x".to_owned())).at("base").reason(Uuid::nil());
        assert_eq!(reason.message, "template 'x' not found");
        assert_eq!(reason.step.as_deref(), Some("base"));
    }
}
