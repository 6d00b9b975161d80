//! A client of the control plane.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method};
use http_body_util::BodyExt;
use jiff::Timestamp;
use sandcove_wire::api::sandbox::{ListedSandbox, Sandbox as Created, SandboxDetail, State};
use sandcove_wire::id::SandboxId;
use sandcove_wire::secret::Secret;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::DuplexStream;

use crate::connector::Connector;
use crate::error::{Error, Result};
use crate::files::percent_encoded;
use crate::new_sandbox::NewSandbox;
use crate::sandbox::{Route, Sandbox};
use crate::transport::Transport;

/// Path of the call that creates a sandbox.
const SANDBOXES: &str = "/v2/sandboxes";

/// A client of a server, with the rights of one team. Clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) transport: Transport,
    /// Headers of every request to the API.
    credentials: Vec<(HeaderName, HeaderValue)>,
    /// Way of requests to sandboxes that are not said to have another.
    route: Route,
}

/// A filter for lists of sandboxes; the default matches all.
#[derive(Debug, Clone, Default)]
pub struct ListFilter {
    /// State of the sandboxes to list; any when unset.
    pub state: Option<State>,
    /// Labels that the sandboxes to list have.
    pub metadata: BTreeMap<String, String>,
    /// Template of the sandboxes to list, by name or id; any when unset.
    pub template: Option<String>,
    /// Earliest start of the sandboxes to list.
    pub started_after: Option<Timestamp>,
}

impl ListFilter {
    /// The filter as parameters of a query, each after a `&`.
    fn query(&self) -> String {
        let mut query = match self.state {
            Some(State::Running) => "&state=running".to_owned(),
            Some(State::Paused) => "&state=paused".to_owned(),
            None => String::new(),
        };
        if !self.metadata.is_empty() {
            // Names and values are encoded separately, then as a form, and that again as a value of the query (contract:
            // control-plane, section 4.5).
            let twice = |text: &str| percent_encoded(&percent_encoded(text));
            let pair = |(name, value): (&String, &String)| format!("{}={}", twice(name), twice(value));
            let pairs: Vec<String> = self.metadata.iter().map(pair).collect();
            query.push_str(&format!("&metadata={}", percent_encoded(&pairs.join("&"))));
        }
        if let Some(template) = &self.template {
            query.push_str(&format!("&template={}", segment(template)));
        }
        if let Some(time) = self.started_after {
            query.push_str(&format!("&startedAfter={time}"));
        }
        query
    }
}

impl Client {
    /// A client of the server at `url` (`http://host:port`, or with TLS `https://host`), for the API and for traffic of sandboxes. Does not
    /// connect yet, sends no request again, and waits as long as an answer takes. [`ClientBuilder`](crate::ClientBuilder) has more settings.
    ///
    /// # Errors
    /// [`Error::Address`] if the URL or the key is invalid.
    pub fn new(url: &str, key: &Secret) -> Result<Self> {
        let transport = Transport::new(url, false)?;
        let route = Route::Shared(transport.base().to_owned());
        Self::over(transport, &[("x-api-key", key.expose())], route)
    }

    /// A client of a server in this process, which serves the other end of every pipe that `connect` makes. `url` is the address by which
    /// others know the server.
    ///
    /// # Errors
    /// [`Error::Address`] if the key is invalid.
    pub fn here(
        url: &str,
        key: &Secret,
        connect: impl Fn() -> DuplexStream + Send + Sync + 'static,
    ) -> Result<Self> {
        let transport = Transport::over(Connector::here(connect), url.to_owned());
        Self::over(transport, &[("x-api-key", key.expose())], Route::Shared(url.to_owned()))
    }

    /// A client whose requests have `credentials` as headers, and reach sandboxes on a route.
    ///
    /// # Errors
    /// [`Error::Address`] if a credential cannot be the value of a header.
    pub(crate) fn over(
        transport: Transport,
        credentials: &[(&'static str, &str)],
        route: Route,
    ) -> Result<Self> {
        let header = |(name, secret): &(&'static str, &str)| {
            Ok((HeaderName::from_static(name), sensitive(transport.base(), secret)?))
        };
        let credentials = credentials.iter().map(header).collect::<Result<_>>()?;
        Ok(Self { transport, credentials, route })
    }

    /// The client, with a further header in every request.
    ///
    /// # Errors
    /// [`Error::Address`] if `value` cannot be the value of a header.
    pub(crate) fn with_header(mut self, name: &'static str, value: &str) -> Result<Self> {
        let value = sensitive(self.transport.base(), value)?;
        self.credentials.push((HeaderName::from_static(name), value));
        Ok(self)
    }

    /// The address of the server.
    pub fn url(&self) -> &str {
        self.transport.base()
    }

    /// Checks that the server answers and accepts the key.
    ///
    /// # Errors
    /// If the server does not answer or refuses the key.
    pub async fn ping(&self) -> Result<()> {
        self.call(Method::GET, "/v2/sandboxes?limit=1", None::<&()>).await.map(drop)
    }

    /// Creates a sandbox, whose agent is reachable when this returns.
    ///
    /// # Errors
    /// If the server cannot create it or refuses to.
    pub async fn create(&self, new: &NewSandbox) -> Result<Sandbox> {
        self.created(self.call(Method::POST, SANDBOXES, Some(new)).await?).await
    }

    /// Creates a sandbox as [`Client::create`] does, once: with the same key, of 1 to 255 characters `a-z`, `0-9` and `-`, a further
    /// call returns the same sandbox. So a request that is sent again cannot leave a second one behind.
    ///
    /// # Errors
    /// As for `create`; with status 422 if the key was used for another sandbox, and 409 while the first call is in progress.
    pub async fn create_once(&self, new: &NewSandbox, key: &str) -> Result<Sandbox> {
        let key = HeaderValue::from_str(key).map_err(|_| Error::IdempotencyKey(key.to_owned()))?;
        let key = (HeaderName::from_static("idempotency-key"), key);
        self.created(self.call_with(Method::POST, SANDBOXES, Some(new), Some(key)).await?).await
    }

    async fn created(&self, response: http::Response<hyper::body::Incoming>) -> Result<Sandbox> {
        let created: Created = self.read(SANDBOXES, response).await?;
        Ok(self.sandbox(
            created.sandbox_id,
            created.envd_access_token.as_ref(),
            created.traffic_access_token.as_ref(),
            created.domain.as_deref(),
        ))
    }

    /// A handle for a sandbox, below its own domain if it has one.
    fn sandbox(
        &self,
        id: SandboxId,
        token: Option<&Secret>,
        traffic_token: Option<&Secret>,
        domain: Option<&str>,
    ) -> Sandbox {
        let route = match (&self.route, domain) {
            (Route::Names(_), Some(domain)) if !domain.is_empty() => Route::Names(domain.to_owned()),
            (route, _) => route.clone(),
        };
        Sandbox::new(self.transport.clone(), id, token, traffic_token, route)
    }

    /// Makes a handle for a sandbox that exists. Its end does not move.
    ///
    /// # Errors
    /// If the server does not know the sandbox.
    pub async fn attach(&self, id: &SandboxId) -> Result<Sandbox> {
        let info = self.info(id).await?;
        let agent = info["envdAccessToken"].as_str().map(Secret::new);
        let private = info["network"]["allowPublicTraffic"] == false;
        // Details do not have the token of private traffic, and a paused sandbox is not resumed for it.
        let traffic = if private && info["state"] == "running" {
            let unchanged = serde_json::json!({ "timeout": 0 });
            let path = format!("/sandboxes/{id}/connect");
            let connected: Created = self.json(Method::POST, &path, Some(&unchanged)).await?;
            connected.traffic_access_token
        } else {
            None
        };
        Ok(self.sandbox(id.clone(), agent.as_ref(), traffic.as_ref(), info["domain"].as_str()))
    }

    /// Lists running and paused sandboxes, newest first; all pages.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn list(&self) -> Result<Vec<ListedSandbox>> {
        self.list_where(&ListFilter::default()).await
    }

    /// Lists the sandboxes that a filter matches, newest first; all pages.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn list_where(&self, filter: &ListFilter) -> Result<Vec<ListedSandbox>> {
        self.pages(&format!("/v2/sandboxes?limit=100{}", filter.query())).await
    }

    /// All pages of a list, whose path has a query.
    pub(crate) async fn pages<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>> {
        let (mut all, mut token) = (Vec::new(), None);
        loop {
            let (page, next): (Vec<T>, _) = self.page(path, token.as_deref()).await?;
            all.extend(page);
            match next {
                Some(next) => token = Some(next),
                None => return Ok(all),
            }
        }
    }

    /// A page of a list, and the token of the next one.
    pub(crate) async fn page<T: DeserializeOwned>(
        &self,
        path: &str,
        token: Option<&str>,
    ) -> Result<(T, Option<String>)> {
        let path = match token {
            Some(token) => format!("{path}&nextToken={}", segment(token)),
            None => path.to_owned(),
        };
        let response = self.call(Method::GET, &path, None::<&()>).await?;
        let next = response.headers().get("x-next-token").and_then(|token| token.to_str().ok());
        let next = next.filter(|token| !token.is_empty()).map(str::to_owned);
        Ok((self.read(&path, response).await?, next))
    }

    /// The details of a sandbox, as the server sent them.
    ///
    /// # Errors
    /// If the server does not know the sandbox.
    pub async fn info(&self, id: &SandboxId) -> Result<serde_json::Value> {
        self.json(Method::GET, &format!("/sandboxes/{id}"), None::<&()>).await
    }

    /// The details of a sandbox.
    ///
    /// # Errors
    /// If the server does not know the sandbox.
    pub async fn detail(&self, id: &SandboxId) -> Result<SandboxDetail> {
        self.json(Method::GET, &format!("/sandboxes/{id}"), None::<&()>).await
    }

    /// The URL at which a port of a sandbox is reached over HTTP, by name.
    ///
    /// # Errors
    /// If the server does not know the sandbox, or has no domain.
    pub async fn port_url(&self, id: &SandboxId, port: u16) -> Result<String> {
        let path = format!("/sandboxes/{id}");
        let info: serde_json::Value = self.json(Method::GET, &path, None::<&()>).await?;
        let Some(domain) = info["domain"].as_str() else {
            let reason = "the server has no domain for sandboxes".to_owned();
            return Err(Error::Malformed { url: self.transport.url(&path), reason });
        };
        let scheme = if self.url().starts_with("https://") { "https" } else { "http" };
        Ok(format!("{scheme}://{port}-{id}.{domain}"))
    }

    /// Kills a sandbox; false if there is none.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn kill(&self, id: &SandboxId) -> Result<bool> {
        self.delete(&format!("/sandboxes/{id}")).await
    }

    /// Deletes what is at a path; false if there is nothing.
    pub(crate) async fn delete(&self, path: &str) -> Result<bool> {
        match self.call(Method::DELETE, path, None::<&()>).await {
            Ok(_) => Ok(true),
            Err(error) if error.status() == Some(404) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T> {
        let response = self.call(method, path, body).await?;
        self.read(path, response).await
    }

    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<http::Response<hyper::body::Incoming>> {
        self.call_with(method, path, body, None).await
    }

    async fn call_with(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
        header: Option<(HeaderName, HeaderValue)>,
    ) -> Result<http::Response<hyper::body::Incoming>> {
        let mut headers = self.credentials.clone();
        headers.extend(header);
        let bytes = match body {
            Some(body) => {
                headers.push((http::header::CONTENT_TYPE, HeaderValue::from_static("application/json")));
                serde_json::to_vec(body).map_err(|error| self.malformed(path, &error))?.into()
            }
            None => Bytes::new(),
        };
        self.transport.send(method, path, &headers, bytes).await
    }

    pub(crate) async fn read<T: DeserializeOwned>(
        &self,
        path: &str,
        response: http::Response<hyper::body::Incoming>,
    ) -> Result<T> {
        let body = response
            .into_body()
            .collect()
            .await
            .map_err(|error| Error::Unreachable { url: self.transport.url(path), cause: error.into() })?
            .to_bytes();
        serde_json::from_slice(&body).map_err(|error| self.malformed(path, &error))
    }

    fn malformed(&self, path: &str, error: &serde_json::Error) -> Error {
        Error::Malformed { url: self.transport.url(path), reason: error.to_string() }
    }
}

/// Makes a header value that `Debug` does not show.
pub(crate) fn sensitive(url: &str, secret: &str) -> Result<HeaderValue> {
    let mut value = HeaderValue::from_str(secret).map_err(|_| Error::Address(url.to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Percent-encodes a segment of a path, slashes too.
pub(crate) fn segment(text: &str) -> String {
    percent_encoded(text).replace('/', "%2F")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_a_query_whose_labels_survive_it() {
        assert_eq!(ListFilter::default().query(), "");
        let metadata = [("user id", "a&b=c"), ("k", "v")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let filter =
            ListFilter { state: Some(State::Paused), metadata: metadata.into(), ..Default::default() };
        assert_eq!(filter.query(), "&state=paused&metadata=k%3Dv%26user%252520id%3Da%252526b%25253Dc");
        let (template, started_after) = (Some("team/name".into()), Some(Timestamp::UNIX_EPOCH));
        let filter = ListFilter { template, started_after, ..Default::default() };
        assert_eq!(filter.query(), "&template=team%2Fname&startedAfter=1970-01-01T00:00:00Z");
    }
}
