//! What the audit log records: the actions, and the layer that writes them down. And `GET /admin/audit`.

use std::sync::{Arc, OnceLock};

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode};
use percent_encoding::percent_decode_str;
use sandcove_wire::api::audit::{AuditCredential, AuditOutcome, AuditRecord};
use uuid::Uuid;

use super::auth::Operator;
use super::body;
use super::params::{Query, invalid};
use super::{Origin, RequestId};
use crate::audit::Wanted;
use crate::state::App;
use crate::{Error, Result, clock};

/// Maximum and default number of records in an answer.
const MAX_PAGE: i64 = 1000;
/// Maximum length of what a client says about itself, characters.
const MAX_FORWARDED: usize = 200;
/// Maximum length of the name of an object, characters: no object has a longer one, and a request may name any.
const MAX_OBJECT: usize = 300;

/// Calls that are recorded, with their names.
const ACTIONS: [(&str, &str, &str); 33] = [
    // It answers with a new key.
    ("GET", "/teams", "api-key.issue"),
    ("POST", "/api-keys", "api-key.create"),
    ("PATCH", "/api-keys/{id}", "api-key.rename"),
    ("DELETE", "/api-keys/{id}", "api-key.delete"),
    ("POST", "/access-tokens", "access-token.create"),
    ("DELETE", "/access-tokens/{id}", "access-token.delete"),
    ("DELETE", "/sandboxes/{id}", "sandbox.kill"),
    ("POST", "/sandboxes/{id}/pause", "sandbox.pause"),
    ("PUT", "/sandboxes/{id}/network", "sandbox.set-network"),
    ("PATCH", "/templates/{id}", "template.update"),
    ("PATCH", "/v2/templates/{id}", "template.update"),
    ("DELETE", "/templates/{id}", "template.delete"),
    ("DELETE", "/templates/{id}/{name}", "template.delete"),
    ("POST", "/templates/tags", "template.tag"),
    ("DELETE", "/templates/tags", "template.untag"),
    ("POST", "/templates/gc", "template.collect"),
    ("POST", "/volumes", "volume.create"),
    ("DELETE", "/volumes/{id}", "volume.delete"),
    ("POST", "/secrets", "secret.create"),
    ("POST", "/secrets/{id}", "secret.update"),
    ("DELETE", "/secrets/{id}", "secret.delete"),
    ("POST", "/events/webhooks", "webhook.create"),
    ("PATCH", "/events/webhooks/{id}", "webhook.update"),
    ("DELETE", "/events/webhooks/{id}", "webhook.delete"),
    ("POST", "/events/webhooks/{id}/deliveries/{delivery}/redeliver", "webhook.redeliver"),
    ("POST", "/nodes/{id}", "node.set-status"),
    ("POST", "/admin/teams", "team.create"),
    ("PATCH", "/admin/teams/{id}", "team.update"),
    ("POST", "/admin/teams/{id}/sandboxes/kill", "team.kill-sandboxes"),
    ("POST", "/admin/teams/{id}/builds/cancel", "team.cancel-builds"),
    ("POST", "/admin/teams/{id}/api-keys", "team.create-api-key"),
    ("DELETE", "/admin/teams/{id}/api-keys/{key}", "team.delete-api-key"),
    ("GET", "/templates/{id}/export", "template.export"),
];

/// Slot in a request for who sends it: filled in when the credential is known, read for the record.
#[derive(Debug, Clone, Default)]
pub(super) struct ActorSlot(Arc<OnceLock<Actor>>);

/// The sender of a request.
#[derive(Debug, Clone)]
pub(super) struct Actor {
    pub(super) credential: AuditCredential,
    pub(super) key: Option<Uuid>,
    pub(super) team: Option<Uuid>,
}

/// Notes who sends a request. A second call for the same request changes nothing.
pub(super) fn note(parts: &Parts, actor: Actor) {
    if let Some(slot) = parts.extensions.get::<ActorSlot>() {
        let _ = slot.0.set(actor);
    }
}

/// Id of what a request has created, in the extensions of its answer.
#[derive(Debug, Clone)]
struct Created(String);

/// Notes the id of what was created.
pub(super) fn created(mut answer: Response, id: impl ToString) -> Response {
    answer.extensions_mut().insert(Created(id.to_string()));
    answer
}

/// A request that will be recorded. It is when this is dropped, which happens too when the client does not wait for the answer.
struct Pending {
    app: App,
    actor: ActorSlot,
    record: Option<AuditRecord>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        // Requests without a valid credential are not recorded: anybody could fill the log with them.
        let (Some(mut record), Some(actor)) = (self.record.take(), self.actor.0.get()) else { return };
        record.time = clock::now();
        record.credential = actor.credential;
        record.key_id = actor.key.map(|key| key.to_string());
        record.team_id = actor.team.map(|team| team.to_string());
        // A line in the page cache. It waits for no disk, so that no task of its own is needed.
        if let Err(error) = self.app.audit().append(record) {
            self.app.telemetry().audit_lost();
            tracing::error!(%error, "an action could not be written to the audit log");
        }
    }
}

/// The layer around every route.
pub(super) async fn record(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str).unwrap_or_default();
    let Some(action) = action(request.method(), matched) else { return next.run(request).await };
    let actor = ActorSlot::default();
    let record = AuditRecord {
        id: 0,
        time: clock::now(),
        action: action.to_owned(),
        object: object(matched, request.uri().path()),
        credential: AuditCredential::ApiKey,
        key_id: None,
        team_id: None,
        outcome: AuditOutcome::Unknown,
        status: None,
        request_id: request.extensions().get::<RequestId>().map(ToString::to_string).unwrap_or_default(),
        remote: request
            .extensions()
            .get::<Origin>()
            .map(|origin| origin.peer.to_string())
            .unwrap_or_default(),
        forwarded_for: forwarded_for(&request),
        via: request.extensions().get::<Origin>().and_then(|origin| origin.via).map(str::to_owned),
    };
    request.extensions_mut().insert(actor.clone());
    let mut pending = Pending { app, actor, record: Some(record) };
    let answer = next.run(request).await;
    if let Some(record) = &mut pending.record {
        let status = answer.status();
        record.status = Some(status.as_u16());
        record.outcome = match status {
            status if status.is_server_error() => AuditOutcome::Failed,
            status if status.is_client_error() => AuditOutcome::Refused,
            _ => AuditOutcome::Done,
        };
        if let Some(Created(id)) = answer.extensions().get() {
            // What is created below something else is named by both.
            record.object = Some(match &record.object {
                Some(above) => format!("{above}/{id}"),
                None => id.clone(),
            });
        }
    }
    answer
}

fn action(method: &Method, path: &str) -> Option<&'static str> {
    let found = ACTIONS.iter().find(|action| action.0 == method.as_str() && action.1 == path);
    found.map(|action| action.2)
}

/// The values of the parameters of a path.
fn object(pattern: &str, path: &str) -> Option<String> {
    let pairs = pattern.split('/').zip(path.split('/'));
    let values: Vec<_> = pairs
        .filter(|(name, _)| name.starts_with('{'))
        .map(|(_, value)| percent_decode_str(value).decode_utf8_lossy().into_owned())
        .collect();
    (!values.is_empty()).then(|| values.join("/").chars().take(MAX_OBJECT).collect())
}

fn forwarded_for(request: &Request) -> Option<String> {
    let value = request.headers().get("x-forwarded-for")?.to_str().ok()?;
    Some(value.chars().take(MAX_FORWARDED).collect())
}

/// `GET /admin/audit`: records, newest first, or with `after` oldest first.
pub(super) async fn list(State(app): State<App>, _: Operator, query: Query) -> Result<Response> {
    let number = |name: &str| match query.text(name) {
        Some(value) => value.parse().map(Some).map_err(|_| invalid(name, "must be the number of a record")),
        None => Ok(None),
    };
    let text = |name: &str| query.text(name).map(str::to_owned);
    let limit = query.integer_in("limit", 1..=MAX_PAGE, 100)?;
    let wanted = Wanted {
        limit: usize::try_from(limit).unwrap_or(1),
        before: number("nextToken")?,
        after: number("after")?,
        team: text("teamID"),
        key: text("keyID"),
        action: text("action"),
        object: text("object"),
        since: query.time("since")?,
    };
    if wanted.before.is_some() && wanted.after.is_some() {
        return Err(Error::InvalidRequest("use \"nextToken\" or \"after\", not both".to_owned()));
    }
    let reading = tokio::task::spawn_blocking(move || app.audit().page(&wanted)).await;
    let page = match reading {
        Ok(Ok(page)) => page,
        Ok(Err(error)) => {
            tracing::error!(%error, "the audit log cannot be read");
            return Err(Error::Internal("the audit log cannot be read"));
        }
        Err(_) => return Err(Error::Internal("the audit log cannot be read")),
    };
    let mut answer = body::json(StatusCode::OK, &page.records);
    if let Some(next) = page.next {
        answer.headers_mut().insert("x-next-token", HeaderValue::from(next));
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::routes;

    /// Calls that change something and are not recorded: the work of sandboxes and builds, which have logs and events of their own.
    const NOT_RECORDED: [(&str, &str); 18] = [
        ("POST", "/sandboxes"),
        ("POST", "/v2/sandboxes"),
        ("POST", "/sandboxes/{id}/park"),
        ("POST", "/sandboxes/{id}/resume"),
        ("POST", "/sandboxes/{id}/connect"),
        ("POST", "/v2/sandboxes/{id}/connect"),
        ("POST", "/sandboxes/{id}/timeout"),
        ("POST", "/sandboxes/{id}/refreshes"),
        ("POST", "/sandboxes/{id}/snapshots"),
        ("POST", "/sandboxes/{id}/fork"),
        ("POST", "/v2/templates"),
        ("POST", "/v3/templates"),
        ("POST", "/v2/templates/{id}/builds/{build}"),
        ("PUT", "/upload/{team}/{hash}"),
        ("PATCH", "/volumecontent/{id}/path"),
        ("DELETE", "/volumecontent/{id}/path"),
        ("POST", "/volumecontent/{id}/dir"),
        ("PUT", "/volumecontent/{id}/file"),
    ];

    #[test]
    fn every_call_that_changes_something_is_recorded_or_is_not_on_purpose() {
        let routes = routes();
        let is_route = |method: &str, path: &str| {
            routes.iter().any(|route| route.method.as_str() == method && route.path == path)
        };
        for (method, path, _) in ACTIONS {
            assert!(is_route(method, path), "{method} {path} is recorded, and is no call");
        }
        for (method, path) in NOT_RECORDED {
            assert!(is_route(method, path), "{method} {path} is not recorded, and is no call");
        }
        for route in &routes {
            let is_recorded = action(&route.method, route.path).is_some();
            let is_left_out = NOT_RECORDED.contains(&(route.method.as_str(), route.path));
            let changes = !matches!(route.method, Method::GET | Method::HEAD);
            let name = format!("{} {}", route.method, route.path);
            assert!(!(is_recorded && is_left_out), "{name} is in both tables");
            assert!(!changes || is_recorded || is_left_out, "{name} is in neither ACTIONS nor NOT_RECORDED");
        }
    }

    #[test]
    fn an_object_is_named_by_the_path() {
        assert_eq!(object("/sandboxes/{id}/pause", "/sandboxes/iabc/pause").as_deref(), Some("iabc"));
        assert_eq!(object("/templates/{id}", "/templates/team%2Fname").as_deref(), Some("team/name"));
        assert_eq!(
            object("/admin/teams/{id}/api-keys/{key}", "/admin/teams/t/api-keys/k").as_deref(),
            Some("t/k")
        );
        assert_eq!(object("/api-keys", "/api-keys"), None);
        let long = object("/sandboxes/{id}", &format!("/sandboxes/{}", "ü".repeat(20_000))).unwrap();
        assert_eq!(long.chars().count(), MAX_OBJECT);
    }
}
