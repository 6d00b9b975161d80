//! Credentials of requests: `auth`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::error::HttpError;
use super::request::with_query;
use super::scope::Scope;
use crate::calling::Call;
use crate::calling::transport::{self, Request};
use crate::model::Object;
use crate::script::Workers;

/// Time before its end that a token is no longer used.
const MARGIN: Duration = Duration::from_secs(60);
/// Seconds that a token is valid where its service does not say.
const VALIDITY: f64 = 3600.0;

#[derive(Debug, Clone)]
struct Token {
    text: String,
    until: Instant,
}

type Held = Arc<tokio::sync::Mutex<Option<Token>>>;

/// Tokens of OAuth, by the credentials they were given for. Rows that need the same one at the same time ask for it once.
#[derive(Debug, Default)]
pub struct Tokens(Mutex<HashMap<String, Held>>);

impl Tokens {
    /// Returns the token for credentials of OAuth, which are asked for when there is none, or when it ends within a minute.
    pub async fn get(
        &self,
        auth: &Object,
        scope: &Scope<'_>,
        client: Option<&reqwest::Client>,
    ) -> Result<String, HttpError> {
        let url = scope.text(auth, "tokenUrl")?.unwrap_or_default();
        let form = form(auth, scope)?;
        let held = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(all.entry(format!("{url} {form}")).or_default())
        };
        let mut held = held.lock().await;
        if let Some(token) = held.as_ref().filter(|token| Instant::now() + MARGIN < token.until) {
            return Ok(token.text.clone());
        }
        let token = ask(&url, form, client).await?;
        Ok(held.insert(token).text.clone())
    }
}

/// The request for a token, as a form.
fn form(auth: &Object, scope: &Scope<'_>) -> Result<String, HttpError> {
    let grant = scope.text(auth, "grantType")?.unwrap_or_else(|| "client_credentials".to_owned());
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("grant_type", &grant);
    let mut keys = vec![("client_id", "clientId"), ("client_secret", "clientSecret")];
    if grant == "password" {
        keys.extend([("username", "username"), ("password", "password")]);
    }
    for (name, key) in keys {
        if let Some(value) = scope.text(auth, key)? {
            form.append_pair(name, &value);
        }
    }
    let scopes = match auth.get("scopes") {
        Some(Value::Array(scopes)) => scopes
            .iter()
            .filter_map(Value::as_str)
            .map(|one| scope.render(one))
            .collect::<Result<Vec<_>, _>>()?
            .join(" "),
        Some(Value::String(scopes)) => scope.render(scopes)?.replace(',', " "),
        _ => String::new(),
    };
    if !scopes.is_empty() {
        form.append_pair("scope", &scopes);
    }
    Ok(form.finish())
}

async fn ask(url: &str, form: String, client: Option<&reqwest::Client>) -> Result<Token, HttpError> {
    let failed = |reason: String| HttpError::Token { url: url.to_owned(), reason };
    let request = Request {
        method: "POST".to_owned(),
        url: url.to_owned(),
        body: Some(form),
        client: client.cloned(),
        max_retries: Some(0),
        ..Request::default()
    };
    let request = request.header("content-type", "application/x-www-form-urlencoded");
    let reply = transport::send(&request).await?;
    if !(200..300).contains(&reply.status) {
        let start: String = reply.text.chars().take(500).collect();
        return Err(failed(format!("status {}: {start}", reply.status)));
    }
    let answer: Value = serde_json::from_str(&reply.text).map_err(|error| failed(error.to_string()))?;
    let Some(text) = answer.get("access_token").and_then(Value::as_str).filter(|text| !text.is_empty())
    else {
        return Err(failed("the answer has no `access_token`".to_owned()));
    };
    let seconds =
        answer.get("expires_in").map(crate::template::value::to_number).filter(|seconds| *seconds > 0.0);
    let valid = Duration::try_from_secs_f64(seconds.unwrap_or(VALIDITY)).unwrap_or(Duration::MAX);
    let until =
        Instant::now().checked_add(valid).unwrap_or_else(|| Instant::now() + Duration::from_secs(86_400));
    Ok(Token { text: text.to_owned(), until })
}

/// Adds `token`, and `expiration` if there is one, to the variables of a request whose credentials have to be fetched.
pub async fn fetch(
    auth: &Object,
    scope: &mut Scope<'_>,
    tokens: &Tokens,
    client: Option<&reqwest::Client>,
    call: &Call<'_>,
    workers: &Workers,
) -> Result<(), HttpError> {
    match auth.get("type").and_then(Value::as_str) {
        Some("oauth") => {
            let token = tokens.get(auth, scope, client).await?;
            scope.vars.insert("token".to_owned(), json!(token));
        }
        Some("file") => {
            let path = auth.get("path").and_then(Value::as_str).unwrap_or_default();
            let mut context = call.context.clone();
            if let Some(context) = context.as_object_mut() {
                context.insert("vars".to_owned(), json!(scope.vars));
                context.entry("prompt").or_insert_with(|| json!({"raw": call.prompt, "label": call.prompt}));
            }
            let value = workers.invoke(path, &["get_auth"], vec![context]).await?;
            let token = value.get("token").and_then(Value::as_str).filter(|token| !token.is_empty());
            let Some(token) = token else {
                return Err(HttpError::NoToken { path: path.to_owned(), value: value.to_string() });
            };
            scope.vars.insert("token".to_owned(), json!(token));
            let expiration = value.get("expiration").cloned().unwrap_or(Value::Null);
            scope.vars.insert("expiration".to_owned(), expiration);
        }
        _ => {}
    }
    Ok(())
}

/// Adds the credentials of the configuration to a request.
pub fn authorize(mut request: Request, config: &Object, scope: &Scope<'_>) -> Result<Request, HttpError> {
    let Some(auth) = config.get("auth").and_then(Value::as_object) else { return Ok(request) };
    let text = |key: &str| scope.text(auth, key).map(Option::unwrap_or_default);
    Ok(match text("type")?.as_str() {
        "oauth" => {
            let token = scope.vars.get("token").and_then(Value::as_str).unwrap_or_default();
            request.header("authorization", format!("Bearer {token}"))
        }
        "bearer" => request.header("authorization", format!("Bearer {}", text("token")?)),
        "basic" => {
            let pair = STANDARD.encode(format!("{}:{}", text("username")?, text("password")?));
            request.header("authorization", format!("Basic {pair}"))
        }
        "api_key" if text("placement")? == "query" => {
            request.url = with_query(&request.url, [(text("keyName")?, text("value")?)])?;
            request
        }
        "api_key" => request.header(&text("keyName")?.to_lowercase(), text("value")?),
        _ => request,
    })
}
