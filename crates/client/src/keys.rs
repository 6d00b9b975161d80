//! The team of a client, its activity, and its keys (contract: control-plane, sections 4.1, 8 and 10).

use http::Method;
use jiff::Timestamp;
use sandcove_wire::api::observe::{TeamMetric, TeamMetricMax};
use sandcove_wire::api::team::{ApiKey, Named, NewAccessToken, NewApiKey, Team};

use crate::error::Result;
use crate::query::span;
use crate::server::{Client, segment};

/// A metric of the activity of a team.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TeamActivity {
    /// Number of sandboxes that run at the same time.
    ConcurrentSandboxes,
    /// Number of sandboxes started per second.
    SandboxStartRate,
}

impl Client {
    /// The teams of the user, each with an API key that is created for this answer. Needs an
    /// [access token](crate::ClientBuilder::access_token).
    ///
    /// # Errors
    /// If the server does not answer, or does not accept the access token.
    pub async fn teams(&self) -> Result<Vec<Team>> {
        self.json(Method::GET, "/teams", None::<&()>).await
    }

    /// Samples of how many sandboxes a team has run from `from` to `to`, oldest first. The times are whole seconds, at most 31 days apart; by
    /// default, they are the last 7 days.
    ///
    /// # Errors
    /// If the team is not the caller's, or the server refuses the times.
    pub async fn team_metrics(
        &self,
        team: &str,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
    ) -> Result<Vec<TeamMetric>> {
        let path = format!("/teams/{}/metrics?{}", segment(team), span(from, to));
        self.json(Method::GET, &path, None::<&()>).await
    }

    /// The maximum of a metric of a team, among the samples that [`Self::team_metrics`] returns for the same times.
    ///
    /// # Errors
    /// If the team is not the caller's, or the server refuses the times.
    pub async fn team_metrics_max(
        &self,
        team: &str,
        metric: TeamActivity,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
    ) -> Result<TeamMetricMax> {
        let metric = match metric {
            TeamActivity::ConcurrentSandboxes => "concurrent_sandboxes",
            TeamActivity::SandboxStartRate => "sandbox_start_rate",
        };
        let path = format!("/teams/{}/metrics/max?metric={metric}&{}", segment(team), span(from, to));
        self.json(Method::GET, &path, None::<&()>).await
    }

    /// The API keys of the team, without their secrets. This call and the others for keys need an
    /// [access token](crate::ClientBuilder::access_token), or the rights of an [operator](crate::Operator::for_team).
    ///
    /// # Errors
    /// If the server does not answer, or does not accept the access token.
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

    /// Creates an access token of the user for the team. Only this answer has its secret. Needs an
    /// [access token](crate::ClientBuilder::access_token).
    ///
    /// # Errors
    /// If the server refuses the name, or does not accept the access token.
    pub async fn create_access_token(&self, name: &str) -> Result<NewAccessToken> {
        self.json(Method::POST, "/access-tokens", Some(&Named { name: name.to_owned() })).await
    }

    /// Deletes an access token, which is not accepted from then on; false if there is none. Needs an
    /// [access token](crate::ClientBuilder::access_token).
    ///
    /// # Errors
    /// If the server does not answer, or does not accept the access token.
    pub async fn delete_access_token(&self, id: &str) -> Result<bool> {
        self.delete(&format!("/access-tokens/{}", segment(id))).await
    }
}
