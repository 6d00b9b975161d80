//! Sessions that a service of its own begins: `session`.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use super::code;
use super::error::HttpError;
use super::scope::Scope;
use crate::calling::transport::{self, Reply, Request};
use crate::model::Object;
use crate::script::Workers;
use crate::template::value::to_text;

/// The sessions that were begun. A row that has one of them goes on with it.
#[derive(Debug, Default)]
pub struct Sessions(Mutex<HashSet<String>>);

impl Sessions {
    /// Sets `sessionId` to the session of a row: the one that it has, else a new one.
    pub async fn enter(
        &self,
        config: &Object,
        scope: &mut Scope<'_>,
        client: Option<&reqwest::Client>,
        workers: &Workers,
    ) -> Result<(), HttpError> {
        let Some(settings) = config.get("session").and_then(Value::as_object) else { return Ok(()) };
        let known = |id: &str| self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(id);
        if scope.vars.get("sessionId").and_then(Value::as_str).is_some_and(known) {
            return Ok(());
        }
        let mut request = request(settings, scope)?;
        request.client = client.cloned();
        request.max_retries = super::retries(config);
        let reply = transport::send(&request).await?;
        let start = || reply.text.chars().take(500).collect::<String>();
        if !(200..300).contains(&reply.status) {
            return Err(HttpError::SessionStatus { status: reply.status, start: start() });
        }
        let parser = settings.get("responseParser").and_then(Value::as_str).unwrap_or_default();
        let Some(id) = of_reply(parser, &reply, workers).await? else {
            return Err(HttpError::NoSession(start()));
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
        scope.vars.insert("sessionId".to_owned(), json!(id));
        Ok(())
    }
}

fn request(settings: &Object, scope: &Scope<'_>) -> Result<Request, HttpError> {
    let url = scope.text(settings, "url")?.unwrap_or_default();
    let method = scope.text(settings, "method")?.unwrap_or_else(|| "POST".to_owned()).to_uppercase();
    let mut request = Request { url, ..Request::default() };
    if method != "GET" {
        request.body = match settings.get("body") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(scope.render(text)?),
            Some(body) => {
                request = request.header("content-type", "application/json");
                Some(scope.templates.render_value(body, &scope.vars)?.to_string())
            }
        };
    }
    for (name, value) in settings.get("headers").and_then(Value::as_object).into_iter().flatten() {
        request = request.header(&name.to_lowercase(), scope.render(&to_text(value))?);
    }
    Ok(Request { method, ..request })
}

/// Returns the session that a parser finds in a reply.
pub async fn of_reply(parser: &str, reply: &Reply, workers: &Workers) -> Result<Option<String>, HttpError> {
    let body = serde_json::from_str(&reply.text).unwrap_or_else(|_| json!(reply.text));
    let value = code::session(parser, &code::headers(reply), body, workers).await?;
    Ok((!value.is_null() && value != "" && value != false).then(|| to_text(&value)))
}
