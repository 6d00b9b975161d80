//! What an operator of a server may do: manage its teams and its node (contract: control-plane, section 13).

use http::{Method, Response};
use hyper::body::Incoming;
use sandcove_wire::api::admin::{
    AdminTeam, Cancelled, Killed, NewTeam, Node, NodeStatus, NodeStatusChange, RunningCounts, TeamUpdate,
};
use sandcove_wire::api::audit::AuditRecord;
use sandcove_wire::api::team::{ApiKey, Named, NewApiKey};
use sandcove_wire::secret::Secret;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};
use crate::query::pairs;
use crate::sandbox::Route;
use crate::server::{Client, segment};
use crate::transport::Transport;

/// A client of a server, with the rights of its operator.
#[derive(Clone, Debug)]
pub struct Operator {
    client: Client,
}

impl Operator {
    /// A client of the server at `url`, which accepts `token` as its admin token. Does not connect yet. It sends each
    /// request once, and waits as long as an answer takes: all sandboxes of a team may be killed in one.
    ///
    /// # Errors
    /// [`Error::Address`](crate::Error::Address) if the URL or the token is invalid.
    pub fn new(url: &str, token: &Secret) -> Result<Self> {
        let transport = Transport::new(url, false)?;
        let route = Route::Shared(transport.base().to_owned());
        Ok(Self { client: Client::over(transport, &[("x-admin-token", token.expose())], route)? })
    }

    /// A client that acts for the team with this id, such as to list its sandboxes or to rename a key. Does not connect yet. A server of
    /// Sandcove takes the admin token in place of the credentials of a user of the team; only access tokens are created and deleted by users
    /// alone (contract: control-plane, section 2).
    ///
    /// # Errors
    /// [`Error::Address`](crate::Error::Address) if the id is invalid.
    pub fn for_team(&self, team: &str) -> Result<Client> {
        self.client.clone().with_header("x-team-id", team)
    }

    /// All teams.
    ///
    /// # Errors
    /// If the server does not answer, or refuses the token.
    pub async fn teams(&self) -> Result<Vec<AdminTeam>> {
        self.json(Method::GET, "/admin/teams", None::<&()>).await
    }

    /// The team with this id.
    ///
    /// # Errors
    /// If the server does not know the team, or refuses the token.
    pub async fn team(&self, id: &str) -> Result<AdminTeam> {
        self.json(Method::GET, &format!("/admin/teams/{}", segment(id)), None::<&()>).await
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

    /// The API keys of a team, without their secrets.
    ///
    /// # Errors
    /// If the server does not know the team, or refuses the token.
    pub async fn keys(&self, team: &str) -> Result<Vec<ApiKey>> {
        self.for_team(team)?.api_keys().await.map_err(of_the_token)
    }

    /// Deletes an API key of a team, which is not accepted from then on; false if there is no such team or key.
    ///
    /// # Errors
    /// If an id is not a UUID, or the server refuses the token.
    pub async fn delete_key(&self, team: &str, key: &str) -> Result<bool> {
        let path = format!("/admin/teams/{}/api-keys/{}", segment(team), segment(key));
        self.client.delete(&path).await.map_err(of_the_token)
    }

    /// Kills all sandboxes of a team.
    ///
    /// # Errors
    /// If the server does not know the team.
    pub async fn kill_sandboxes(&self, team: &str) -> Result<Killed> {
        let path = format!("/admin/teams/{}/sandboxes/kill", segment(team));
        self.json(Method::POST, &path, None::<&()>).await
    }

    /// Cancels the builds of a team that wait or are in progress. There is no such call for the team itself: its build ends when a newer one
    /// of the template starts, or when the template is deleted.
    ///
    /// # Errors
    /// If the server does not know the team, or refuses the token.
    pub async fn cancel_builds(&self, team: &str) -> Result<Cancelled> {
        let path = format!("/admin/teams/{}/builds/cancel", segment(team));
        self.json(Method::POST, &path, None::<&()>).await
    }

    /// The hosts of the server.
    ///
    /// # Errors
    /// If the server does not answer, or refuses the token.
    pub async fn nodes(&self) -> Result<Vec<Node>> {
        self.json(Method::GET, "/nodes", None::<&()>).await
    }

    /// The host with this id.
    ///
    /// # Errors
    /// If the server does not know the host, or refuses the token.
    pub async fn node(&self, id: &str) -> Result<Node> {
        self.json(Method::GET, &format!("/nodes/{}", segment(id)), None::<&()>).await
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
        pairs(&[
            ("teamID", self.team.clone()),
            ("keyID", self.key.clone()),
            ("action", self.action.clone()),
            ("object", self.object.clone()),
            ("since", self.since.clone()),
            ("limit", self.limit.map(|number| number.to_string())),
            ("after", self.after.map(|id| id.to_string())),
        ])
    }
}
