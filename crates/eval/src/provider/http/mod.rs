//! Any HTTP service: the request is described, the answer is taken out by an expression.

pub mod auth;
mod body;
pub mod check;
pub mod code;
mod document;
pub mod error;
mod multipart;
mod request;
pub mod scope;
mod session;
mod signature;
mod tls;

use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::settings;
use crate::calling::spec::ProviderSpec;
use crate::calling::transport;
use crate::calling::{Call, CallError, Provider};
use crate::grading::aggregate::counted_usage;
use crate::model::{Object, ProviderResponse, TokenUsage};
use crate::script::Workers;
use crate::template::value::{to_number, to_text};
use auth::Tokens;
use body::has_json_body;
use error::HttpError;
use request::Sent;
use scope::Scope;
use session::Sessions;
use tls::TlsClient;

/// The status of a service that is asked too often.
const TOO_MANY_REQUESTS: u16 = 429;

/// `https://…`, or `http` with `config.url`.
pub struct Http {
    id: String,
    url: Option<String>,
    /// Whether an answer is that of a question that is asked again: not with files, which change, and not in a session.
    cached: bool,
    workers: Arc<Workers>,
    connections: TlsClient,
    tokens: Tokens,
    signature: signature::Last,
    sessions: Sessions,
}

impl Http {
    /// A provider whose id may be an address. Its functions in files are run by `workers`.
    pub fn new(spec: &ProviderSpec, workers: Arc<Workers>) -> Self {
        Self {
            id: spec.id.clone(),
            url: spec.config.get("url").and_then(Value::as_str).map(str::to_owned),
            cached: !["multipart", "session"].iter().any(|key| spec.config.contains_key(*key)),
            workers,
            connections: TlsClient::default(),
            tokens: Tokens::default(),
            signature: signature::Last::default(),
            sessions: Sessions::default(),
        }
    }

    async fn ask(&self, call: &Call<'_>) -> Result<ProviderResponse, HttpError> {
        let config = call.config;
        let mut scope = Scope::new(call, &self.workers);
        let client = self.connections.client(config, &scope)?;
        if let Some(auth) = config.get("auth").and_then(Value::as_object) {
            auth::fetch(auth, &mut scope, &self.tokens, client.as_ref(), call, &self.workers).await?;
        }
        self.signature.sign(config, &mut scope)?;
        self.sessions.enter(config, &mut scope, client.as_ref(), &self.workers).await?;
        let sent = match config.get("transformRequest").and_then(Value::as_str) {
            Some(code) => match code::sent(code, call, &scope.vars, &self.workers).await? {
                Value::Object(map) if has_json_body(config) => Sent::Over(map),
                other => Sent::Prompt(other),
            },
            None => Sent::AsItIs,
        };
        let asked = match &sent {
            Sent::Prompt(Value::String(text)) => text.clone(),
            _ => call.prompt.to_owned(),
        };
        let request = match config.get("request").and_then(Value::as_str) {
            Some(raw) => request::written(raw, config, &self.id, &sent, &scope)?,
            None => request::described(config, &self.id, sent, &scope).await?,
        };
        let mut request = auth::authorize(request, config, &scope)?;
        if let Some(parent) = call.context.get("traceparent").and_then(Value::as_str) {
            request = request.header("traceparent", parent);
        }
        request.client = client;
        request.max_retries = retries(config);
        let started = Instant::now();
        let reply = transport::send(&request).await?;
        let took = started.elapsed().as_millis() as f64;
        let is_good = code::is_good(config, reply.status, &self.workers).await?;
        if !is_good || reply.status == TOO_MANY_REQUESTS {
            let start: String = reply.text.chars().take(2000).collect();
            return Err(HttpError::Status { status: reply.status, start });
        }
        self.answer(config, &scope, &reply, took, call, &asked).await
    }

    async fn answer(
        &self,
        config: &Object,
        scope: &Scope<'_>,
        reply: &transport::Reply,
        took: f64,
        call: &Call<'_>,
        asked: &str,
    ) -> Result<ProviderResponse, HttpError> {
        let parsed = serde_json::from_str::<Value>(&reply.text).ok();
        let mut response = match code::of_response(config) {
            Some(code) => code::received(code, parsed, reply, took, call.vars, &self.workers).await?,
            None => ProviderResponse {
                output: Some(parsed.unwrap_or_else(|| json!(reply.text))),
                ..ProviderResponse::default()
            },
        };
        if config.contains_key("session") {
            response.session_id = scope.vars.get("sessionId").map(to_text);
        }
        if let Some(parser) = config.get("sessionParser").and_then(Value::as_str) {
            response.session_id =
                session::of_reply(parser, reply, &self.workers).await?.or(response.session_id);
        }
        let about = json!({
            "status": reply.status, "statusText": reply.status_text(), "headers": code::headers(reply),
        });
        response.metadata.get_or_insert_default().entry("http").or_insert(about);
        response.raw.get_or_insert_with(|| json!(reply.text));
        response.cached.get_or_insert(false);
        if response.token_usage.is_none() {
            let estimate = config.get("tokenEstimation").and_then(Value::as_object);
            let answer = response.output.as_ref().and_then(Value::as_str).unwrap_or(&reply.text);
            response.token_usage =
                Some(match estimate.filter(|of| of.get("enabled") == Some(&json!(true))) {
                    Some(settings) => estimated(settings, asked, answer),
                    None => TokenUsage { num_requests: Some(1.0), ..counted_usage() },
                });
        }
        response.latency_ms = Some(took);
        Ok(response)
    }
}

/// Attempts after the first that a configuration wants.
fn retries(config: &Object) -> Option<u32> {
    config.get("maxRetries").map(to_number).filter(|number| *number >= 0.0).map(|number| number as u32)
}

/// The tokens of a call by its words, for a service that does not count them.
fn estimated(settings: &Object, asked: &str, answer: &str) -> TokenUsage {
    let of_word = settings.get("multiplier").map(to_number).filter(|number| *number > 0.0).unwrap_or(1.3);
    let count = |text: &str| (text.split_whitespace().count() as f64 * of_word).ceil();
    let (prompt, completion) = (count(asked), count(answer));
    TokenUsage {
        prompt: Some(prompt),
        completion: Some(completion),
        total: Some(prompt + completion),
        num_requests: Some(1.0),
        ..TokenUsage::default()
    }
}

impl Provider for Http {
    fn id(&self) -> &str {
        &self.id
    }

    fn shown_as(&self) -> BoxFuture<'_, Option<String>> {
        std::future::ready(self.url.clone()).boxed()
    }

    fn names_itself(&self) -> bool {
        true
    }

    fn is_service(&self) -> bool {
        self.cached
    }

    fn renders_config(&self) -> bool {
        true
    }

    fn settled<'a>(&'a self, config: &'a Object) -> BoxFuture<'a, Result<Option<Object>, CallError>> {
        std::future::ready(settings::data(config, self.workers.base())).boxed()
    }

    fn call<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, ProviderResponse> {
        async move { self.ask(call).await.unwrap_or_else(ProviderResponse::failed) }.boxed()
    }
}
