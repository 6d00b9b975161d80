//! The team of a client and its keys (contract: control-plane, sections 4.1 and 12).

use http::Method;
use jiff::Timestamp;
use sandcove_wire::api::observe::TeamMetric;
use sandcove_wire::api::team::{ApiKey, Named, NewApiKey, Team};

use crate::error::Result;
use crate::server::{Client, segment};

impl Client {
    /// The teams of the caller.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn teams(&self) -> Result<Vec<Team>> {
        self.json(Method::GET, "/teams", None::<&()>).await
    }

    /// Samples of how many sandboxes a team has run from a time on, oldest first.
    ///
    /// # Errors
    /// If the server does not answer, or the team is not the caller's.
    pub async fn team_metrics(&self, team: &str, from: Option<Timestamp>) -> Result<Vec<TeamMetric>> {
        let start = from.map(|from| format!("?start={}", from.as_second())).unwrap_or_default();
        self.json(Method::GET, &format!("/teams/{}/metrics{start}", segment(team)), None::<&()>).await
    }

    /// The API keys of the team, without their secrets.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn api_keys(&self) -> Result<Vec<ApiKey>> {
        self.json(Method::GET, "/api-keys", None::<&()>).await
    }

    /// Creates an API key of the team. Only this answer has its secret.
    ///
    /// # Errors
    /// If the server refuses the name.
    pub async fn create_api_key(&self, name: &str) -> Result<NewApiKey> {
        self.json(Method::POST, "/api-keys", Some(&Named { name: name.to_owned() })).await
    }

    /// Names an API key anew.
    ///
    /// # Errors
    /// If the team has no such key, or the server refuses the name.
    pub async fn rename_api_key(&self, id: &str, name: &str) -> Result<()> {
        let body = Named { name: name.to_owned() };
        self.call(Method::PATCH, &format!("/api-keys/{}", segment(id)), Some(&body)).await.map(drop)
    }

    /// Deletes an API key, which is not accepted from then on; false if there is none.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn delete_api_key(&self, id: &str) -> Result<bool> {
        self.delete(&format!("/api-keys/{}", segment(id))).await
    }
}
