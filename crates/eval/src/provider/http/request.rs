//! Requests as configurations describe them: by their parts, or written out as text.

use serde_json::{Value, json};

use super::body::{fill, object_of};
use super::error::HttpError;
use super::multipart;
use super::scope::Scope;
use crate::calling::transport::Request;
use crate::model::Object;
use crate::reading::files;
use crate::template::TemplateError;
use crate::template::value::to_text;

/// The value that `transformRequest` made of a prompt.
#[derive(Debug)]
pub enum Sent {
    /// An object that is laid over a body of JSON, which is then sent as it is written.
    Over(Object),
    /// A value that stands for the prompt in the body.
    Prompt(Value),
    /// Nothing: the prompt is sent.
    AsItIs,
}

/// Returns the request that the parts of a configuration describe.
pub async fn described(
    config: &Object,
    id: &str,
    sent: Sent,
    scope: &Scope<'_>,
) -> Result<Request, HttpError> {
    let url = config.get("url").and_then(Value::as_str).unwrap_or(id);
    let form = config.get("multipart").and_then(Value::as_object);
    let method = config.get("method").and_then(Value::as_str);
    let method = scope.render(method.unwrap_or(if form.is_some() { "POST" } else { "GET" }))?.to_uppercase();
    let mut request = Request { method, url: scope.render(url)?, ..Request::default() };
    let vars = in_body(scope, &sent);
    let body = match sent {
        _ if form.is_some() => None,
        Sent::Over(over) => {
            let mut whole = object_of(config.get("body"));
            whole.extend(over);
            Some(Value::Object(whole))
        }
        _ => config.get("body").map(|body| fill(body, &vars, &scope.templates)).transpose()?,
    };
    // A request to read has no body.
    match body.filter(|_| request.method != "GET") {
        Some(Value::String(text)) => {
            request = request.header("content-type", "application/x-www-form-urlencoded");
            request.body = Some(text);
        }
        Some(body) => {
            request = request.header("content-type", "application/json");
            request.body = Some(body.to_string());
        }
        None => {}
    }
    for (name, value) in config.get("headers").and_then(Value::as_object).into_iter().flatten() {
        request = request.header(&name.to_lowercase(), scope.render(&to_text(value))?);
    }
    if let Some(form) = form {
        let (kind, bytes) = multipart::encode(form, &vars, scope).await?;
        request = request.header("content-type", kind);
        request.form = Some(bytes);
    }
    if let Some(query) = config.get("queryParams").and_then(Value::as_object) {
        let parameters = query
            .iter()
            .map(|(name, value)| Ok((name.clone(), scope.render(&to_text(value))?)))
            .collect::<Result<Vec<_>, TemplateError>>()?;
        request.url = with_query(&request.url, parameters)?;
    }
    Ok(request)
}

/// The variables of a body, in which the transformed prompt takes the place of the prompt.
fn in_body(scope: &Scope<'_>, sent: &Sent) -> Object {
    let mut vars = scope.vars.clone();
    if let Sent::Prompt(prompt) = sent {
        vars.insert("prompt".to_owned(), prompt.clone());
    }
    vars
}

/// Returns a request that is written out as text.
pub fn written(
    raw: &str,
    config: &Object,
    id: &str,
    sent: &Sent,
    scope: &Scope<'_>,
) -> Result<Request, HttpError> {
    let vars = in_body(scope, sent);
    let raw = match raw.strip_prefix("file://") {
        Some(path) => std::fs::read_to_string(files::resolve(scope.base, path))
            .map_err(|error| HttpError::Read { path: path.to_owned(), error })?,
        None => raw.to_owned(),
    };
    let raw = raw.replace("\r\n", "\n");
    let (head, body) = raw.trim_start().split_once("\n\n").unwrap_or((raw.trim(), ""));
    let head = scope.templates.render(head, &vars)?;
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
    let address = config.get("url").and_then(Value::as_str).unwrap_or(id);
    let is_https = address.starts_with("https") || config.get("useHttps") == Some(&json!(true));
    let scheme = if is_https { "https" } else { "http" };
    request.url = if path.contains("://") { path.to_owned() } else { format!("{scheme}://{host}{path}") };
    if !body.trim().is_empty() {
        let filled = fill(&json!(body.trim()), &vars, &scope.templates)?;
        request.body = Some(filled.as_str().map_or_else(|| filled.to_string(), str::to_owned));
    }
    Ok(request)
}

/// Returns an address with more parameters.
pub fn with_query(
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
