//! Any HTTP service: the request is described, the answer is taken out by an expression.

mod body;

use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::settings;
use crate::calling::transport::{self, Request};
use crate::calling::{Call, CallError, Provider};
use crate::grading::aggregate::counted_usage;
use crate::javascript::{self, JavaScriptError};
use crate::model::{Object, ProviderResponse, TokenUsage};
use crate::script::inline::inline_body;
use crate::script::{ScriptError, Workers};
use crate::template::value::to_text;
use crate::template::{TemplateError, Templates};
use body::{fill, has_json_body, object_of};

/// Reason why a service gave no answer, or one that could not be read.
#[derive(Debug, thiserror::Error)]
enum HttpError {
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error(transparent)]
    Script(#[from] ScriptError),
    #[error(transparent)]
    JavaScript(#[from] JavaScriptError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("`{url}`: {reason}")]
    Url { url: String, reason: String },
    #[error("failed to read `{path}`: {error}")]
    ReadRequest { path: String, error: std::io::Error },
    #[error("`request` must begin with a line like `POST /path HTTP/1.1`")]
    RequestLine,
    #[error("HTTP call failed with status {status}: {start}")]
    Status { status: u16, start: String },
    #[error("`transformRequest` failed: {0}")]
    RequestTransform(JavaScriptError),
    #[error("`sessionParser` failed: {0}")]
    Session(JavaScriptError),
    #[error("`transformResponse` failed: {0}")]
    Transform(JavaScriptError),
    #[error("`transformResponse` gave nothing for: {0}")]
    Nothing(String),
    /// The answer that `transformResponse` gave has a key of the wrong type.
    #[error(transparent)]
    Shape(serde_json::Error),
}

/// `https://…`, or `http` with `config.url`.
pub struct Http {
    id: String,
    url: Option<String>,
    workers: Arc<Workers>,
}

impl Http {
    /// A provider with this id, which may be an address, or with this configured address. Its functions in files are run by
    /// `workers`.
    pub fn new(id: &str, url: Option<&str>, workers: Arc<Workers>) -> Self {
        Self { id: id.to_owned(), url: url.map(str::to_owned), workers }
    }

    async fn ask(&self, call: &Call<'_>) -> Result<ProviderResponse, HttpError> {
        let config = call.config;
        let mut vars = call.vars.clone();
        vars.insert("prompt".to_owned(), json!(call.prompt));
        // A session that the client names begins with each row.
        if config.get("sessionSource").and_then(Value::as_str) == Some("client") {
            vars.entry("sessionId").or_insert_with(|| json!(uuid::Uuid::new_v4().to_string()));
        }
        let templates = Templates::new(self.workers.env().own().clone()).with_base(self.workers.base());
        let given = vars.clone();
        let render = |text: &str| templates.render(text, &given);
        // An object is laid over a body of JSON, which is then sent as it is written. Everything else stands for the prompt.
        let mut over = None;
        if let Some(code) = config.get("transformRequest").and_then(Value::as_str) {
            match self.sent(code, call).await? {
                Value::Object(map) if has_json_body(config) => over = Some(map),
                other => drop(vars.insert("prompt".to_owned(), other)),
            }
        }
        let request = match config.get("request").and_then(Value::as_str) {
            Some(raw) => {
                let address = config.get("url").and_then(Value::as_str).unwrap_or(&self.id);
                from_text(raw, address.starts_with("https"), &vars, config, self.workers.base(), &templates)?
            }
            None => {
                let url = config.get("url").and_then(Value::as_str).unwrap_or(&self.id);
                let body = match over {
                    Some(over) => {
                        let mut whole = object_of(config.get("body"));
                        whole.extend(over);
                        Some(Value::Object(whole))
                    }
                    None => config.get("body").map(|body| fill(body, &vars, &templates)).transpose()?,
                };
                let method = config.get("method").and_then(Value::as_str).unwrap_or("GET").to_uppercase();
                // A request to read has no body.
                let body = body.filter(|_| method != "GET");
                let structured = body.as_ref().is_some_and(|body| !body.is_string());
                let text = body.map(|body| body.as_str().map_or_else(|| body.to_string(), str::to_owned));
                let mut request = Request { method, url: render(url)?, body: text, ..Request::default() };
                if structured {
                    request = request.header("content-type", "application/json");
                }
                for (name, value) in config.get("headers").and_then(Value::as_object).into_iter().flatten() {
                    request = request.header(&name.to_lowercase(), render(&to_text(value))?);
                }
                if let Some(query) = config.get("queryParams").and_then(Value::as_object) {
                    let parameters = query
                        .iter()
                        .map(|(name, value)| Ok((name.clone(), render(&to_text(value))?)))
                        .collect::<Result<Vec<_>, TemplateError>>()?;
                    request.url = with_query(&request.url, parameters)?;
                }
                request
            }
        };
        let mut request = authorized(request, config)?;
        if let Some(parent) = call.context.get("traceparent").and_then(Value::as_str) {
            request = request.header("traceparent", parent);
        }
        let started = std::time::Instant::now();
        let reply = transport::send(&request).await?;
        let took = started.elapsed().as_millis() as f64;
        let parsed = serde_json::from_str::<Value>(&reply.text).ok();
        let good = match config.get("validateStatus").and_then(Value::as_str) {
            Some(code) if code.starts_with("file://") => {
                let arguments = vec![json!(reply.status)];
                self.workers.invoke(code, &["validate_status"], arguments).await? == json!(true)
            }
            Some(code) => {
                let function = if code.contains("=>") {
                    format!("({code})")
                } else {
                    format!("(status) => {{ {} }}", inline_body(code))
                };
                javascript::call(&function, &[json!(reply.status)])? == json!(true)
            }
            // The answer to a refused request is an answer: tests may be about it.
            None => true,
        };
        if !good {
            let start: String = reply.text.chars().take(2000).collect();
            return Err(HttpError::Status { status: reply.status, start });
        }
        let headers: Object =
            reply.headers.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let mut response = match config
            .get("transformResponse")
            .or_else(|| config.get("responseParser"))
            .and_then(Value::as_str)
        {
            Some(code) => {
                transformed(code, parsed, &reply, headers.clone(), call.vars, &self.workers).await?
            }
            None => ProviderResponse {
                output: Some(parsed.unwrap_or_else(|| json!(reply.text))),
                ..ProviderResponse::default()
            },
        };
        if let Some(code) = config.get("sessionParser").and_then(Value::as_str) {
            let body = serde_json::from_str(&reply.text).unwrap_or_else(|_| json!(reply.text));
            response.session_id = self.session(code, &headers, body).await?;
        }
        let about = json!({"status": reply.status, "headers": headers});
        response.metadata.get_or_insert_default().entry("http").or_insert(about);
        response.raw.get_or_insert_with(|| json!(reply.text));
        response.cached.get_or_insert(false);
        response.token_usage.get_or_insert_with(|| TokenUsage { num_requests: Some(1.0), ..counted_usage() });
        response.latency_ms = Some(took);
        Ok(response)
    }
}

impl Http {
    /// Returns the text or object that `transformRequest` makes of a prompt: a function, a body with `return`, an expression, or a file.
    async fn sent(&self, code: &str, call: &Call<'_>) -> Result<Value, HttpError> {
        let arguments = vec![json!(call.prompt), json!(call.vars), call.context.clone()];
        if code.starts_with("file://") {
            return Ok(self.workers.invoke(code, &["get_transform"], arguments).await?);
        }
        let code = code.trim();
        let function = if is_function(code) {
            code.to_owned()
        } else if code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "return") {
            format!("(prompt, vars, context) => {{ {code}\n}}")
        } else {
            format!("(prompt, vars, context) => (\n{code}\n)")
        };
        javascript::call(&function, &arguments).map_err(HttpError::RequestTransform)
    }
}

impl Http {
    /// Returns the session that `sessionParser` finds in a reply: an expression over `data`, or a file.
    async fn session(&self, code: &str, headers: &Object, body: Value) -> Result<Option<String>, HttpError> {
        let arguments = vec![json!({"headers": headers, "body": body})];
        let value = if code.starts_with("file://") {
            self.workers.invoke(code, &["get_session_id"], arguments).await?
        } else if is_function(code.trim()) {
            javascript::call(code.trim(), &arguments).map_err(HttpError::Session)?
        } else {
            javascript::call(&format!("(data) => (\n{code}\n)"), &arguments).map_err(HttpError::Session)?
        };
        Ok((!value.is_null() && value != "").then(|| to_text(&value)))
    }
}

/// Whether code is a function, and not what is to be in one.
fn is_function(code: &str) -> bool {
    code.starts_with('(') && code.contains("=>") || code.starts_with("function")
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
        true
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

/// A request written out as text.
fn from_text(
    raw: &str,
    is_https: bool,
    vars: &Object,
    config: &Object,
    base: &Path,
    templates: &Templates,
) -> Result<Request, HttpError> {
    let raw = match raw.strip_prefix("file://") {
        Some(path) => std::fs::read_to_string(base.join(path))
            .map_err(|error| HttpError::ReadRequest { path: path.to_owned(), error })?,
        None => raw.to_owned(),
    };
    let raw = raw.replace("\r\n", "\n");
    let (head, body) = raw.trim_start().split_once("\n\n").unwrap_or((raw.trim(), ""));
    let head = templates.render(head, vars)?;
    let mut lines = head.lines();
    let mut first = lines.next().unwrap_or_default().split_whitespace();
    let (Some(method), Some(path)) = (first.next(), first.next()) else {
        return Err(HttpError::RequestLine);
    };
    let mut request = Request { method: method.to_owned(), ..Request::default() };
    let mut host = String::new();
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        match name.trim().to_lowercase().as_str() {
            "host" => host = value.trim().to_owned(),
            "content-length" => {}
            name => request = request.header(name, value.trim()),
        }
    }
    let scheme = if is_https || config.get("useHttps") == Some(&json!(true)) { "https" } else { "http" };
    request.url = if path.contains("://") { path.to_owned() } else { format!("{scheme}://{host}{path}") };
    if !body.trim().is_empty() {
        let filled = fill(&json!(body.trim()), vars, templates)?;
        request.body = Some(filled.as_str().map_or_else(|| filled.to_string(), str::to_owned));
    }
    Ok(request)
}

fn authorized(mut request: Request, config: &Object) -> Result<Request, HttpError> {
    use base64::Engine;
    let Some(auth) = config.get("auth").and_then(Value::as_object) else { return Ok(request) };
    let text = |key: &str| auth.get(key).map(to_text).unwrap_or_default();
    Ok(match text("type").as_str() {
        "bearer" => request.header("authorization", format!("Bearer {}", text("token"))),
        "basic" => {
            let pair = format!("{}:{}", text("username"), text("password"));
            let pair = base64::engine::general_purpose::STANDARD.encode(pair);
            request.header("authorization", format!("Basic {pair}"))
        }
        "api_key" if text("placement") == "query" => {
            request.url = with_query(&request.url, [(text("keyName"), text("value"))])?;
            request
        }
        "api_key" => request.header(&text("keyName").to_lowercase(), text("value")),
        _ => request,
    })
}

/// Returns an address with more parameters.
fn with_query(
    address: &str,
    parameters: impl IntoIterator<Item = (String, String)>,
) -> Result<String, HttpError> {
    let wrong = |reason: String| HttpError::Url { url: address.to_owned(), reason };
    let mut url = reqwest::Url::parse(address).map_err(|error| wrong(error.to_string()))?;
    for (name, value) in parameters {
        url.query_pairs_mut().append_pair(&name, &value);
    }
    Ok(url.into())
}

async fn transformed(
    code: &str,
    parsed: Option<Value>,
    reply: &transport::Reply,
    headers: Object,
    vars: &Object,
    workers: &Workers,
) -> Result<ProviderResponse, HttpError> {
    let context = json!({"response": {"status": reply.status, "headers": headers}, "vars": vars});
    let arguments = vec![parsed.unwrap_or(Value::Null), json!(reply.text), context];
    let value = if code.starts_with("file://") {
        workers.invoke(code, &["get_transform"], arguments).await?
    } else {
        let trimmed = code.trim();
        let function = if is_function(trimmed) {
            trimmed.to_owned()
        } else {
            format!("(json, text, context) => {{ {}\n}}", inline_body(trimmed))
        };
        javascript::call(&function, &arguments).map_err(HttpError::Transform)?
    };
    match value {
        Value::Null => Err(HttpError::Nothing(reply.text.chars().take(500).collect())),
        Value::Object(map) if map.contains_key("output") || map.contains_key("error") => {
            serde_json::from_value(Value::Object(map)).map_err(HttpError::Shape)
        }
        value => Ok(ProviderResponse { output: Some(value), ..ProviderResponse::default() }),
    }
}
