//! Sends single requests over connections that are kept open.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::header::USER_AGENT;
use http::{HeaderName, HeaderValue, Method, Request, Response, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::connector::Connector;
use crate::error::{Error, Result};
use crate::retry;
use crate::upload::{RequestBody, whole};

/// Limit on the part of an error body that is shown when it is not JSON, in characters.
const MAX_SHOWN: usize = 300;

/// Name and version of this client, as servers see them.
const AGENT: &str = concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION"));

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
    /// Number of times that a request is sent again.
    retries: u32,
    /// Limit on the time until the answer to a request begins, retries included.
    request_timeout: Option<Duration>,
}

impl Transport {
    /// A server at `url`. Requests to other addresses may use TLS if the server does, or if `needs_tls` says so.
    ///
    /// # Errors
    /// [`Error::Address`] if the URL is invalid, [`Error::Unreachable`] if the certificates of this machine cannot be read.
    pub(crate) fn new(url: &str, needs_tls: bool) -> Result<Self> {
        let base = url.trim_end_matches('/').to_owned();
        let is_secure = Self::check(&base)?;
        let connector = if is_secure || needs_tls {
            Connector::secure()
                .map_err(|error| Error::Unreachable { url: base.clone(), cause: error.into() })?
        } else {
            Connector::network()
        };
        Ok(Self::over(connector, base))
    }

    /// Checks the URL of a server, and says whether it is reached with TLS.
    ///
    /// # Errors
    /// [`Error::Address`] if the URL is invalid.
    pub(crate) fn check(url: &str) -> Result<bool> {
        let uri = url.parse::<Uri>().ok().filter(|uri| uri.authority().is_some());
        match uri.as_ref().and_then(Uri::scheme_str) {
            Some("http") => Ok(false),
            Some("https") => Ok(true),
            _ => Err(Error::Address(url.to_owned())),
        }
    }

    /// The server, with requests that are sent again up to `retries` times and limited in time.
    pub(crate) fn patient(self, retries: u32, request_timeout: Option<Duration>) -> Self {
        Self { retries, request_timeout, ..self }
    }

    /// A server at `base` that `connector` reaches.
    pub(crate) fn over(connector: Connector, base: String) -> Self {
        let http = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(60))
            .build(connector.clone());
        Self { http, connector, base, retries: 0, request_timeout: None }
    }

    pub(crate) fn connector(&self) -> Connector {
        self.connector.clone()
    }

    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Sends a request to the server, again if that may help, and returns the answer if its status is a success.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Result<Response<Incoming>> {
        let url = self.url(path);
        let sent = async {
            let mut attempt = 0;
            loop {
                let request = request(&url, method.clone(), headers, whole(body.clone()))?;
                let pause = match self.exchange(request).await {
                    Ok(answer) => match retry::after_answer(answer.status(), answer.headers(), attempt) {
                        Some(pause) if attempt < self.retries => pause,
                        _ => return succeeded(url.clone(), answer).await,
                    },
                    // The server has seen nothing of the request.
                    Err(error) if error.is_connect() && attempt < self.retries => retry::pause(attempt),
                    Err(error) => return Err(Error::Unreachable { url: url.clone(), cause: error.into() }),
                };
                tokio::time::sleep(pause).await;
                attempt += 1;
            }
        };
        match self.request_timeout {
            Some(limit) => {
                let timed_out = |_| Error::Timeout { url: url.clone(), limit };
                tokio::time::timeout(limit, sent).await.map_err(timed_out)?
            }
            None => sent.await,
        }
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
        match self.exchange(request(&url, method, headers, body)?).await {
            Ok(answer) => succeeded(url, answer).await,
            Err(error) => Err(Error::Unreachable { url, cause: error.into() }),
        }
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

fn request(
    url: &str,
    method: Method,
    headers: &[(HeaderName, HeaderValue)],
    body: RequestBody,
) -> Result<Request<RequestBody>> {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = url.parse().map_err(|_| Error::Address(url.to_owned()))?;
    request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(AGENT));
    request.headers_mut().extend(headers.iter().cloned());
    Ok(request)
}

/// The answer if its status is a success, and else the error that it is.
async fn succeeded(url: String, answer: Response<Incoming>) -> Result<Response<Incoming>> {
    if answer.status().is_success() {
        return Ok(answer);
    }
    let status = answer.status().as_u16();
    let body =
        answer.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    Err(refusal(url, status, &body))
}

/// The message of an error body: the `message` of a JSON body, or the start of any other.
pub(crate) fn refusal(url: String, status: u16, body: &[u8]) -> Error {
    let json = serde_json::from_slice::<serde_json::Value>(body).ok();
    match json.as_ref().and_then(|value| value["message"].as_str()) {
        Some(message) => Error::Refused { url, status, message: message.to_owned() },
        None => {
            let text = String::from_utf8_lossy(body);
            let message = match text.trim_start() {
                // Of a proxy, or of another program.
                page if is_html(page) => "a page of HTML".to_owned(),
                text => text.trim_end().chars().take(MAX_SHOWN).collect(),
            };
            Error::Status { url, status, message }
        }
    }
}

/// Whether a text begins as pages do.
fn is_html(text: &str) -> bool {
    let begins = |start: &str| text.get(..start.len()).is_some_and(|text| text.eq_ignore_ascii_case(start));
    begins("<!doctype html") || begins("<html")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_http_are_taken() {
        assert!(Transport::new("http://127.0.0.1:3000/", false).is_ok());
        assert!(Transport::new("https://api.example.com", false).is_ok());
        for bad in ["127.0.0.1:3000", "", "ftp://x", "https:///x"] {
            assert!(matches!(Transport::new(bad, false), Err(Error::Address(_))), "{bad}");
        }
    }

    #[test]
    fn the_servers_words_are_kept() {
        let shown = |body: &[u8]| refusal("http://h/x".to_owned(), 404, body).to_string();
        assert_eq!(shown(br#"{"code":404,"message":"template 'x' not found"}"#), "template 'x' not found");
        assert_eq!(shown(b"page not found\n"), "http://h/x answered with HTTP status 404: page not found");
        let page = shown(b"<!DOCTYPE HTML>\n<html><body>No</body></html>");
        assert_eq!(page, "http://h/x answered with HTTP status 404: a page of HTML");
    }
}
