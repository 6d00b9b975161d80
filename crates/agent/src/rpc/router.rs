//! The table of RPCs.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;

use axum::body::Body;
use futures_util::Stream;
use http::{Request, Response};

use super::codec::Message;
use super::exchange::{self, Requests};
use crate::error::Result;
use crate::state::RequestContext;

type Answer = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;
type Handler = Box<dyn Fn(RequestContext, Request<Body>) -> Answer + Send + Sync>;

/// RPCs by path. Handlers are shared by all requests.
#[derive(Default)]
pub struct Router {
    handlers: HashMap<&'static str, Handler>,
}

impl Router {
    /// Makes an empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an RPC with one message each way.
    pub fn unary<Req, Res, F, Fut>(mut self, path: &'static str, handler: F) -> Self
    where
        Req: Message,
        Res: Message,
        F: Fn(RequestContext, Req) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<Res>> + Send + 'static,
    {
        let entry: Handler = Box::new(move |context, request| {
            let handler = handler.clone();
            Box::pin(exchange::unary(context, request, handler))
        });
        self.handlers.insert(path, entry);
        self
    }

    /// Adds an RPC with one request and a stream of answers.
    pub fn server_stream<Req, Res, S, F, Fut>(mut self, path: &'static str, handler: F) -> Self
    where
        Req: Message,
        Res: Message,
        S: Stream<Item = Result<Res>> + Send + 'static,
        F: Fn(RequestContext, Req) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<S>> + Send + 'static,
    {
        let entry: Handler = Box::new(move |context, request| {
            let handler = handler.clone();
            Box::pin(exchange::server_stream(context, request, handler))
        });
        self.handlers.insert(path, entry);
        self
    }

    /// Adds an RPC with a stream of requests and one answer.
    pub fn client_stream<Req, Res, F, Fut>(mut self, path: &'static str, handler: F) -> Self
    where
        Req: Message,
        Res: Message,
        F: Fn(RequestContext, Requests<Req>) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<Res>> + Send + 'static,
    {
        let entry: Handler = Box::new(move |context, request| {
            let handler = handler.clone();
            Box::pin(exchange::client_stream(context, request, handler))
        });
        self.handlers.insert(path, entry);
        self
    }

    /// Whether there is an RPC at `path`.
    pub fn contains(&self, path: &str) -> bool {
        self.handlers.contains_key(path)
    }

    /// The RPC at `path`.
    pub fn find(&self, path: &str) -> Option<Rpc<'_>> {
        self.handlers.get(path).map(Rpc)
    }
}

/// An RPC in the table.
pub struct Rpc<'a>(&'a Handler);

impl Rpc<'_> {
    /// Answers a request to this RPC.
    pub async fn call(self, context: RequestContext, request: Request<Body>) -> Response<Body> {
        (self.0)(context, request).await
    }
}
