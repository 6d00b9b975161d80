//! Any HTTP service: the request is described, the answer is taken out by an expression.

use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use crate::calling::transport::{self, Request};
use crate::calling::{Call, Provider};
use crate::javascript;
use crate::model::{Object, ProviderResponse};
use crate::script::Workers;
use crate::script::inline::inline_body;
use crate::template::Templates;
use crate::template::value::to_text;

/// `https://…`, or `http` with `config.url`.
pub struct Http {
    id: String,
    workers: Arc<Workers>,
}

impl Http {
    /// A provider with this id, which may be an address. Its functions in files are run by `workers`.
    pub fn new(id: &str, workers: Arc<Workers>) -> Self {
        Self { id: id.to_owned(), workers }
    }

    async fn ask(&self, call: &Call<'_>) -> Result<ProviderResponse, String> {
        let config = call.config;
        let mut vars = call.vars.clone();
        vars.insert("prompt".to_owned(), json!(call.prompt));
        let templates = Templates::new(self.workers.env().own().clone());
        let render = |text: &str| templates.render(text, &vars).map_err(|error| error.to_string());
        let request = match config.get("request").and_then(Value::as_str) {
            Some(raw) => from_text(raw, &vars, config, self.workers.base(), &templates)?,
            None => {
                let url = config.get("url").and_then(Value::as_str).unwrap_or(&self.id);
                let body = config.get("body").map(|body| fill(body, &vars, &templates)).transpose()?;
                let method = config.get("method").and_then(Value::as_str);
                let method = method.unwrap_or(if body.is_some() { "POST" } else { "GET" }).to_uppercase();
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
                    let mut url = reqwest::Url::parse(&request.url)
                        .map_err(|error| format!("`{}`: {error}", request.url))?;
                    for (name, value) in query {
                        url.query_pairs_mut().append_pair(name, &render(&to_text(value))?);
                    }
                    request.url = url.into();
                }
                request
            }
        };
        let request = authorized(request, config);
        let started = std::time::Instant::now();
        let reply = transport::send(&request).await.map_err(|error| error.to_string())?;
        let took = started.elapsed().as_millis() as f64;
        let parsed = serde_json::from_str::<Value>(&reply.text).ok();
        let good = match config.get("validateStatus").and_then(Value::as_str) {
            Some(code) => {
                let function = if code.contains("=>") {
                    format!("({code})")
                } else {
                    format!("(status) => {{ {} }}", inline_body(code))
                };
                javascript::call(&function, &[json!(reply.status)]).map_err(|error| error.to_string())?
                    == json!(true)
            }
            None => (200..300).contains(&reply.status),
        };
        if !good {
            let start: String = reply.text.chars().take(2000).collect();
            return Err(format!("HTTP call failed with status {}: {start}", reply.status));
        }
        let headers: Object =
            reply.headers.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let mut response = match config
            .get("transformResponse")
            .or_else(|| config.get("responseParser"))
            .and_then(Value::as_str)
        {
            Some(code) => transformed(code, parsed, &reply, headers, call.vars, &self.workers).await?,
            None => ProviderResponse {
                output: Some(parsed.unwrap_or_else(|| json!(reply.text))),
                ..ProviderResponse::default()
            },
        };
        response.raw.get_or_insert_with(|| json!(reply.text));
        response.latency_ms = Some(took);
        Ok(response)
    }
}

impl Provider for Http {
    fn id(&self) -> &str {
        &self.id
    }

    fn is_service(&self) -> bool {
        true
    }

    fn renders_config(&self) -> bool {
        true
    }

    fn call<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, ProviderResponse> {
        async move { self.ask(call).await.unwrap_or_else(ProviderResponse::failed) }.boxed()
    }
}

/// Renders a body leaf by leaf; a body that is JSON text is taken apart first, so that no value can break it.
fn fill(body: &Value, vars: &Object, templates: &Templates) -> Result<Value, String> {
    let render = |value: &Value| templates.render_value(value, vars).map_err(|error| error.to_string());
    match body {
        Value::String(text) => match serde_json::from_str::<Value>(text) {
            Ok(value) if value.is_object() || value.is_array() => render(&value),
            _ => {
                let escaped: Object =
                    vars.iter().map(|(name, value)| (name.clone(), in_quotes(value))).collect();
                let filled = templates.render(text, &escaped).map_err(|error| error.to_string())?;
                let structured = text.trim_start().starts_with(['{', '[']);
                match serde_json::from_str::<Value>(&filled) {
                    Ok(value) if structured => Ok(value),
                    _ => render(body),
                }
            }
        },
        other => render(other),
    }
}

/// A text as it stands between the quotes of JSON.
fn in_quotes(value: &Value) -> Value {
    match value {
        Value::String(text) => {
            let quoted = Value::String(text.clone()).to_string();
            json!(quoted[1..quoted.len() - 1])
        }
        other => other.clone(),
    }
}

/// A request written out as text.
fn from_text(
    raw: &str,
    vars: &Object,
    config: &Object,
    base: &Path,
    templates: &Templates,
) -> Result<Request, String> {
    let raw = match raw.strip_prefix("file://") {
        Some(path) => std::fs::read_to_string(base.join(path))
            .map_err(|error| format!("failed to read `{path}`: {error}"))?,
        None => raw.to_owned(),
    };
    let raw = raw.replace("\r\n", "\n");
    let (head, body) = raw.trim_start().split_once("\n\n").unwrap_or((raw.trim(), ""));
    let head = templates.render(head, vars).map_err(|error| error.to_string())?;
    let mut lines = head.lines();
    let mut first = lines.next().unwrap_or_default().split_whitespace();
    let (Some(method), Some(path)) = (first.next(), first.next()) else {
        return Err("`request` must begin with a line like `POST /path HTTP/1.1`".to_owned());
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
    let scheme = if config.get("useHttps") == Some(&json!(false)) { "http" } else { "https" };
    request.url = if path.contains("://") { path.to_owned() } else { format!("{scheme}://{host}{path}") };
    if !body.trim().is_empty() {
        let filled = fill(&json!(body.trim()), vars, templates)?;
        request.body = Some(filled.as_str().map_or_else(|| filled.to_string(), str::to_owned));
    }
    Ok(request)
}

fn authorized(request: Request, config: &Object) -> Request {
    use base64::Engine;
    let Some(auth) = config.get("auth").and_then(Value::as_object) else { return request };
    let text = |key: &str| auth.get(key).map(to_text).unwrap_or_default();
    match text("type").as_str() {
        "bearer" => request.header("authorization", format!("Bearer {}", text("token"))),
        "basic" => {
            let pair = base64::engine::general_purpose::STANDARD.encode(format!(
                "{}:{}",
                text("username"),
                text("password")
            ));
            request.header("authorization", format!("Basic {pair}"))
        }
        "api_key" if text("placement") != "query" => {
            request.header(&text("keyName").to_lowercase(), text("value"))
        }
        _ => request,
    }
}

async fn transformed(
    code: &str,
    parsed: Option<Value>,
    reply: &transport::Reply,
    headers: Object,
    vars: &Object,
    workers: &Workers,
) -> Result<ProviderResponse, String> {
    let context = json!({"response": {"status": reply.status, "headers": headers}, "vars": vars});
    let arguments = vec![parsed.unwrap_or(Value::Null), json!(reply.text), context];
    let value = if code.starts_with("file://") {
        let found = workers.invoke(code, &["get_transform"], arguments).await;
        found.map_err(|error| error.to_string())?
    } else {
        let trimmed = code.trim();
        let function =
            if trimmed.starts_with('(') && trimmed.contains("=>") || trimmed.starts_with("function") {
                trimmed.to_owned()
            } else {
                format!("(json, text, context) => {{ {}\n}}", inline_body(trimmed))
            };
        javascript::call(&function, &arguments)
            .map_err(|error| format!("`transformResponse` failed: {error}"))?
    };
    match value {
        Value::Null => Err(format!(
            "`transformResponse` gave nothing for: {}",
            reply.text.chars().take(500).collect::<String>()
        )),
        Value::Object(map) if map.contains_key("output") || map.contains_key("error") => {
            serde_json::from_value(Value::Object(map)).map_err(|error| error.to_string())
        }
        value => Ok(ProviderResponse { output: Some(value), ..ProviderResponse::default() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_cannot_break_a_body() {
        let templates = Templates::new(Object::new());
        let vars = json!({"prompt": "say \"hi\"\n"});
        let vars = vars.as_object().unwrap();
        let expected = json!({"q": "say \"hi\"\n"});
        assert_eq!(fill(&json!({"q": "{{prompt}}"}), vars, &templates).unwrap(), expected);
        assert_eq!(fill(&json!("{\"q\": \"{{prompt}}\"}"), vars, &templates).unwrap(), expected);
    }
}
