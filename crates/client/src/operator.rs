//! What an operator of a server may do: manage its teams and its node (contract: control-plane, section 13).

use http::{HeaderName, Method, Response};
use hyper::body::Incoming;
use sandcove_wire::api::admin::{
    AdminTeam, Killed, NewTeam, Node, NodeStatus, NodeStatusChange, RunningCounts, TeamUpdate,
};
use sandcove_wire::api::audit::AuditRecord;
use sandcove_wire::api::team::{Named, NewApiKey};
use sandcove_wire::secret::Secret;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};
use crate::server::{Client, segment};

/// A client of a server, with the rights of its operator.
#[derive(Clone, Debug)]
pub struct Operator {
    client: Client,
}

impl Operator {
    /// A client of the server at `url`, which accepts `token` as its admin token. Does not connect yet.
    ///
    /// # Errors
    /// [`Error::Address`](crate::Error::Address) if the URL or the token is invalid.
    pub fn new(url: &str, token: &Secret) -> Result<Self> {
        Ok(Self { client: Client::with_credential(url, HeaderName::from_static("x-admin-token"), token)? })
    }

    /// All teams.
    ///
    /// # Errors
    /// If the server does not answer, or refuses the token.
    pub async fn teams(&self) -> Result<Vec<AdminTeam>> {
        self.json(Method::GET, "/admin/teams", None::<&()>).await
    }

    /// The number of running sandboxes by team id.
    ///
    /// # Errors
    /// If the server does not answer, or refuses the token.
    pub async fn running_counts(&self) -> Result<RunningCounts> {
        self.json(Method::GET, "/admin/sandboxes/running-counts", None::<&()>).await
    }

    /// Creates a team.
    ///
    /// # Errors
    /// If the server refuses the name, the namespace or a limit.
    pub async fn create_team(&self, new: &NewTeam) -> Result<AdminTeam> {
        self.json(Method::POST, "/admin/teams", Some(new)).await
    }

    /// Changes a team.
    ///
    /// # Errors
    /// If the server does not know the team, or refuses the change.
    pub async fn update_team(&self, id: &str, update: &TeamUpdate) -> Result<AdminTeam> {
        self.json(Method::PATCH, &format!("/admin/teams/{}", segment(id)), Some(update)).await
    }

    /// Creates an API key for a team.
    ///
    /// # Errors
    /// If the server does not know the team, or refuses the name.
    pub async fn create_key(&self, team: &str, name: &str) -> Result<NewApiKey> {
        let body = Named { name: name.to_owned() };
        self.json(Method::POST, &format!("/admin/teams/{}/api-keys", segment(team)), Some(&body)).await
    }

    /// Kills all sandboxes of a team.
    ///
    /// # Errors
    /// If the server does not know the team.
    pub async fn kill_sandboxes(&self, team: &str) -> Result<Killed> {
        let path = format!("/admin/teams/{}/sandboxes/kill", segment(team));
        self.json(Method::POST, &path, None::<&()>).await
    }

    /// The hosts of the server.
    ///
    /// # Errors
    /// If the server does not answer, or refuses the token.
    pub async fn nodes(&self) -> Result<Vec<Node>> {
        self.json(Method::GET, "/nodes", None::<&()>).await
    }

    /// Opens a host for new sandboxes, or closes it.
    ///
    /// # Errors
    /// If the server does not know the host, or the status is not one that can be set.
    pub async fn set_node_status(&self, node: &str, status: NodeStatus) -> Result<()> {
        let body = NodeStatusChange { status };
        self.call(Method::POST, &format!("/nodes/{}", segment(node)), Some(&body)).await.map(drop)
    }

    /// Records of the audit log: newest first, or after a number, oldest first.
    ///
    /// # Errors
    /// If the server does not answer, or refuses the token or the filter.
    pub async fn audit(&self, filter: &AuditFilter) -> Result<Vec<AuditRecord>> {
        self.json(Method::GET, &format!("/admin/audit?{}", filter.query()), None::<&()>).await
    }

    async fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T> {
        self.client.json(method, path, body).await.map_err(of_the_token)
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<Response<Incoming>> {
        self.client.call(method, path, body).await.map_err(of_the_token)
    }
}

/// Names the credential that was refused: the answer to a wrong admin token is like that to a wrong API key.
fn of_the_token(error: Error) -> Error {
    match error {
        Error::Refused { status: 401, url, .. } => Error::AdminToken { url },
        other => other,
    }
}

/// A filter for records of the audit log; the default matches all.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Id of the team that acted.
    pub team: Option<String>,
    /// Id of the API key.
    pub key: Option<String>,
    /// The action, or its beginning.
    pub action: Option<String>,
    /// Id of what was changed.
    pub object: Option<String>,
    /// Earliest time, as RFC 3339.
    pub since: Option<String>,
    /// Maximum number of records; the server's default when unset.
    pub limit: Option<u32>,
    /// Number after which records are wanted, oldest first.
    pub after: Option<u64>,
}

impl AuditFilter {
    fn query(&self) -> String {
        let (limit, after) =
            (self.limit.map(|number| number.to_string()), self.after.map(|id| id.to_string()));
        let pairs = [
            ("teamID", &self.team),
            ("keyID", &self.key),
            ("action", &self.action),
            ("object", &self.object),
            ("since", &self.since),
            ("limit", &limit),
            ("after", &after),
        ];
        let given = pairs.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        given.map(|(name, value)| format!("{name}={}", segment(value))).collect::<Vec<_>>().join("&")
    }
}
