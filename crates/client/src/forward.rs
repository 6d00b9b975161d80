//! Forwards a local port to a port of a sandbox: every request gets headers that name the sandbox and goes to the server's proxy
//! (contract: control-plane, section 15.4), so that any program can reach it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode, Uri, Version};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::connector::Connector;

/// Pause after a connection could not be accepted, for example because descriptors ran out.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

type Answer = Response<Either<Incoming, Full<Bytes>>>;

/// The changes of headers that direct a request to a port of a sandbox.
#[derive(Debug)]
pub(crate) struct Forward {
    http: Client<Connector, Incoming>,
    base: String,
    /// Headers that replace those of the caller.
    address: HeaderMap,
    /// Headers that are added if the caller sent none.
    tokens: HeaderMap,
    /// Header that is removed: the API key would make it a request to the API.
    drops_key: bool,
}

impl Forward {
    pub(crate) fn new(
        connector: Connector,
        base: &str,
        address: HeaderMap,
        tokens: HeaderMap,
        drops_key: bool,
    ) -> Self {
        let http = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .build(connector);
        Self { http, base: base.to_owned(), address, tokens, drops_key }
    }

    /// Serves connections until the future is dropped, which ends them.
    pub(crate) async fn serve(self, listener: TcpListener) -> Infallible {
        let forward = Arc::new(self);
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(Arc::clone(&forward).connection(stream));
                    }
                    Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }

    async fn connection(self: Arc<Self>, stream: TcpStream) {
        // On failure only small answers are late.
        let _ = stream.set_nodelay(true);
        let service = service_fn(|request| {
            let forward = Arc::clone(&self);
            async move { Ok::<_, Infallible>(forward.pass(request).await) }
        });
        // Errors of the connection concern only the caller and the sandbox.
        let _ = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades()
            .await;
    }

    async fn pass(&self, mut request: Request<Incoming>) -> Answer {
        let path = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
        let Ok(uri) = format!("{}{path}", self.base).parse::<Uri>() else {
            return refusal(StatusCode::BAD_REQUEST, format!("`{path}` is not a path"));
        };
        let upgrades = request.headers().contains_key(header::UPGRADE);
        let caller = upgrades.then(|| hyper::upgrade::on(&mut request));
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_11;
        self.mark(request.headers_mut(), upgrades);
        let mut answer = match self.http.request(request).await {
            Ok(answer) => answer,
            Err(error) => {
                return refusal(StatusCode::BAD_GATEWAY, format!("no answer from {}: {error}", self.base));
            }
        };
        match caller {
            Some(caller) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => {
                let sandbox = hyper::upgrade::on(&mut answer);
                tokio::spawn(async move {
                    if let Ok((caller, sandbox)) = tokio::try_join!(caller, sandbox) {
                        let (mut caller, mut sandbox) = (TokioIo::new(caller), TokioIo::new(sandbox));
                        // Either side may close the connection at any time.
                        let _ = tokio::io::copy_bidirectional(&mut caller, &mut sandbox).await;
                    }
                });
            }
            _ => {
                answer.headers_mut().remove(header::CONNECTION);
            }
        }
        answer.map(Either::Left)
    }

    fn mark(&self, headers: &mut HeaderMap, upgrades: bool) {
        if !upgrades {
            // The header is about the caller's connection; the one to the server is shared.
            headers.remove(header::CONNECTION);
        }
        if self.drops_key {
            headers.remove("x-api-key");
        }
        for (name, value) in &self.address {
            headers.insert(name, value.clone());
        }
        for (name, value) in &self.tokens {
            headers.entry(name).or_insert_with(|| value.clone());
        }
    }
}

/// Makes headers of names and values; absent ones are left out.
pub(crate) fn headers<const N: usize>(pairs: [(&'static str, Option<HeaderValue>); N]) -> HeaderMap {
    let present = pairs.into_iter().filter_map(|(name, value)| Some((HeaderName::from_static(name), value?)));
    present.collect()
}

fn refusal(status: StatusCode, text: String) -> Answer {
    let mut answer = Response::new(Either::Right(Full::from(format!("{text}\n"))));
    *answer.status_mut() = status;
    answer
}
