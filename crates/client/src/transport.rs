//! Sends single requests over connections that are kept open.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Response, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::connector::Connector;
use crate::error::{Error, Result};
use crate::upload::{RequestBody, whole};

/// Limit on the part of an error body that is shown when it is not JSON, in characters.
const MAX_SHOWN: usize = 300;

type Exchange = Pin<
    Box<
        dyn Future<Output = std::result::Result<Response<Incoming>, hyper_util::client::legacy::Error>>
            + Send,
    >,
>;

/// A server and the connections to it, which clones share.
#[derive(Clone, Debug)]
pub(crate) struct Transport {
    http: Client<Connector, RequestBody>,
    connector: Connector,
    base: String,
}

impl Transport {
    pub(crate) fn new(url: &str) -> Result<Self> {
        let base = url.trim_end_matches('/').to_owned();
        let uri = base.parse::<Uri>().ok().filter(|uri| uri.authority().is_some());
        let connector = match uri.as_ref().and_then(Uri::scheme_str) {
            Some("http") => Connector::network(),
            Some("https") => Connector::secure()
                .map_err(|error| Error::Unreachable { url: url.to_owned(), cause: error.into() })?,
            _ => return Err(Error::Address(url.to_owned())),
        };
        Ok(Self::over(connector, base))
    }

    /// A server at `base` that `connector` reaches.
    pub(crate) fn over(connector: Connector, base: String) -> Self {
        let http = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(60))
            .build(connector.clone());
        Self { http, connector, base }
    }

    pub(crate) fn connector(&self) -> Connector {
        self.connector.clone()
    }

    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Sends a request and returns the answer if its status is a success.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Result<Response<Incoming>> {
        self.send_to(&self.base, method, path, headers, whole(body)).await
    }

    /// Sends a request to another base URL, with any body.
    pub(crate) async fn send_to(
        &self,
        base: &str,
        method: Method,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: RequestBody,
    ) -> Result<Response<Incoming>> {
        let url = format!("{base}{path}");
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = url.parse().map_err(|_| Error::Address(url.clone()))?;
        request.headers_mut().extend(headers.iter().cloned());
        let response = self
            .exchange(request)
            .await
            .map_err(|error| Error::Unreachable { url: url.clone(), cause: error.into() })?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let body =
            response.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        Err(refusal(url, status, &body))
    }

    // In a box, so that its code is compiled once, with this crate: that of an async function is compiled with each crate that awaits it.
    #[inline(never)]
    fn exchange(&self, request: Request<RequestBody>) -> Exchange {
        Box::pin(self.http.request(request))
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }
}

/// The message of an error body: the `message` of a JSON body, or the start of any other.
pub(crate) fn refusal(url: String, status: u16, body: &[u8]) -> Error {
    let json = serde_json::from_slice::<serde_json::Value>(body).ok();
    match json.as_ref().and_then(|value| value["message"].as_str()) {
        Some(message) => Error::Refused { url, status, message: message.to_owned() },
        None => {
            let message = String::from_utf8_lossy(body).trim().chars().take(MAX_SHOWN).collect();
            Error::Status { url, status, message }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_http_are_taken() {
        assert!(Transport::new("http://127.0.0.1:3000/").is_ok());
        assert!(Transport::new("https://api.example.com").is_ok());
        for bad in ["127.0.0.1:3000", "", "ftp://x", "https:///x"] {
            assert!(matches!(Transport::new(bad), Err(Error::Address(_))), "{bad}");
        }
    }

    #[test]
    fn the_servers_words_are_kept() {
        let shown = |body: &[u8]| refusal("http://h/x".to_owned(), 404, body).to_string();
        assert_eq!(shown(br#"{"code":404,"message":"template 'x' not found"}"#), "template 'x' not found");
        assert_eq!(shown(b"page not found\n"), "http://h/x answered with HTTP status 404: page not found");
    }
}
