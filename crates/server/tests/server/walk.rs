//! Every call of the API, made by another team with this team's ids: it must be answered as if they were not there. The
//! calls are those of the router's own table; one that this file cannot make succeed for the owner is a failure, so a new
//! one has to be added here.

use std::time::Duration;

use sandcove_isolate::fake::Fake;
use sandcove_server::{Route, routes};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::build_calls::{begin_of, finish};
use crate::proxy::echo;
use crate::support::{Reply, Server, WAIT, own_ids};

/// Paths that anybody may call. Links for uploads are tested with them.
const OPEN: [&str; 5] = [
    "/health",
    "/openapi.json",
    "/upload/{team}/{hash}",
    "/.well-known/jwks.json",
    "/.well-known/openid-configuration",
];
const UNKNOWN_SANDBOX: &str = "iaaaaaaaaaaaaaaaaaaaa";
const UNKNOWN_TEMPLATE: &str = "aaaaaaaaaaaaaaaaaaaa";
const UNKNOWN_UUID: &str = "00000000-0000-4000-8000-000000000000";

/// A team with one of everything.
struct Owned {
    key: String,
    token: String,
    team: String,
    sandbox: String,
    template: String,
    /// A template with a build that is ready, and one that waits.
    built: String,
    waiting: String,
    api_key: String,
    access_token: String,
    volume: String,
    volume_token: String,
    webhook: String,
    delivery: String,
    value: String,
    /// Text that only this team may read.
    secret: String,
}

/// One call, ready but for the ids.
struct Call {
    path: String,
    body: Value,
}

/// Caller of a route.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scheme {
    /// Everybody, with the key.
    Key,
    /// A person of the team.
    Person,
    /// Everybody, with the token of a volume of the team.
    Volume,
    /// Nobody's team matters: operators, and calls without credentials.
    Other,
}

impl Owned {
    async fn new(server: &Server, slug: &str) -> Self {
        let admin = |method: &'static str, path: String, body: Value| async move {
            let reply = server.send(method, &path, &[("x-admin-token", "admin")], body.to_string()).await;
            assert!(reply.status.is_success(), "{path}: {}", reply.text);
            reply.json()
        };
        let body = json!({ "name": slug, "limits": { "concurrentSandboxes": 1000 } });
        let team = admin("POST", "/admin/teams".into(), body).await;
        let team = team["id"].as_str().unwrap().to_owned();
        let path = format!("/admin/teams/{team}/api-keys");
        let key = admin("POST", path, json!({ "name": "walk" })).await["key"].as_str().unwrap().to_owned();
        let store = server.app.store();
        let of_team = store.team(team.parse().unwrap()).await.unwrap().unwrap();
        let (_, token) = store.create_token(&of_team, "walk").await.unwrap();
        let mut owned = Self {
            key,
            token: token.expose().to_owned(),
            team,
            template: String::new(),
            built: String::new(),
            waiting: String::new(),
            sandbox: String::new(),
            api_key: String::new(),
            access_token: String::new(),
            volume: String::new(),
            volume_token: String::new(),
            webhook: String::new(),
            delivery: String::new(),
            value: String::new(),
            secret: format!("secret of {slug}"),
        };
        owned.renew(server, false).await;
        owned
    }

    /// Fresh things, for calls that use them up.
    async fn renew(&mut self, server: &Server, paused: bool) {
        let store = server.app.store();
        let team = store.team(self.team.parse().unwrap()).await.unwrap().unwrap();
        self.api_key = store.create_key(&team, &self.secret).await.unwrap().0.id.to_string();
        self.access_token = store.create_token(&team, &self.secret).await.unwrap().0.id.to_string();
        if !self.webhook.is_empty() {
            let path = format!("/events/webhooks/{}", self.webhook);
            server.call_as(&self.key, "DELETE", &path, Value::Null).await;
        }
        let hook = json!({ "name": self.secret, "url": "http://192.0.2.1/", "events": ["sandbox.lifecycle.checkpointed"],
            "signatureSecret": self.secret });
        let made = server.call_as(&self.key, "POST", "/events/webhooks", hook).await;
        assert_eq!(made.status, 201, "{}", made.text);
        self.webhook = made.json()["id"].as_str().unwrap().to_owned();
        let body = json!({ "templateID": "base", "timeout": 60, "metadata": { "is": &self.secret } });
        let made = server.call_as(&self.key, "POST", "/sandboxes", body).await;
        assert_eq!(made.status, 201, "{}", made.text);
        self.sandbox = made.json()["sandboxID"].as_str().unwrap().to_owned();
        // Nobody else may use it, and it can be deleted.
        let path = format!("/sandboxes/{}/snapshots", self.sandbox);
        let made = server.call_as(&self.key, "POST", &path, json!({})).await;
        assert_eq!(made.status, 201, "{}", made.text);
        self.template = made.json()["snapshotID"].as_str().unwrap().split(':').next().unwrap().to_owned();
        // The event of the snapshot is delivered, to a receiver that no server calls.
        let path = format!("/events/webhooks/{}/deliveries", self.webhook);
        let deadline = tokio::time::Instant::now() + WAIT;
        self.delivery = loop {
            let listed = server.call_as(&self.key, "GET", &path, Value::Null).await.json();
            if let Some(id) = listed["data"][0]["attempts"][0]["id"].as_str() {
                break id.to_owned();
            }
            assert!(tokio::time::Instant::now() < deadline, "nothing is delivered");
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        for is_ready in [true, false] {
            let body = json!({ "name": "walked" });
            let made = server.call_as(&self.key, "POST", "/v3/templates", body).await;
            assert_eq!(made.status, 202, "{}", made.text);
            self.built = made.json()["templateID"].as_str().unwrap().to_owned();
            self.waiting = made.json()["buildID"].as_str().unwrap().to_owned();
            if is_ready {
                begin_of(server, &team, &made.json()).await;
                assert!(finish(server, &made.json(), "t-walked").await);
            }
        }
        let name = json!({ "name": format!("v{}", Uuid::new_v4()) });
        let made = server.call_as(&self.key, "POST", "/volumes", name).await;
        assert_eq!(made.status, 201, "{}", made.text);
        self.volume = made.json()["volumeID"].as_str().unwrap().to_owned();
        self.volume_token = made.json()["token"].as_str().unwrap().to_owned();
        // As a sandbox would: the content is this process's own.
        let volumes = server.data_directory("volumes");
        let content = volumes.join(&self.volume).join("content");
        std::fs::create_dir(content.join("directory")).unwrap();
        std::fs::write(content.join("directory/file"), &self.secret).unwrap();
        let body = json!({ "name": format!("s{}", Uuid::new_v4()), "value": &self.secret, "metadata": { "is": &self.secret } });
        let made = server.call_as(&self.key, "POST", "/secrets", body).await;
        assert_eq!(made.status, 201, "{}", made.text);
        self.value = made.json()["secretID"].as_str().unwrap().to_owned();
        if paused {
            let path = format!("/sandboxes/{}/pause", self.sandbox);
            assert_eq!(server.call_as(&self.key, "POST", &path, Value::Null).await.status, 204);
        }
    }

    async fn call(&self, server: &Server, route: &Route, call: &Call) -> Reply {
        let credential = match scheme(route) {
            Scheme::Key => ("x-api-key", self.key.clone()),
            Scheme::Person => ("authorization", format!("Bearer {}", self.token)),
            Scheme::Volume => ("authorization", format!("Bearer {}", self.volume_token)),
            Scheme::Other => panic!("{route:?} is nobody's"),
        };
        let body = if call.body.is_null() { String::new() } else { call.body.to_string() };
        let headers = [(credential.0, credential.1.as_str())];
        server.send(route.method.as_str(), &call.path, &headers, body).await
    }
}

fn scheme(route: &Route) -> Scheme {
    let first = route.path.split('/').nth(1).unwrap();
    match first {
        // A link for an upload is its own credential.
        "health" | "metrics" | "nodes" | "admin" | "openapi.json" | "upload" | ".well-known" => Scheme::Other,
        "teams" if route.path == "/teams" => Scheme::Person,
        "api-keys" | "access-tokens" => Scheme::Person,
        "volumecontent" => Scheme::Volume,
        _ => Scheme::Key,
    }
}

/// The call, with the ids of `owner` in its path; `None` for what is not there.
fn call(route: &Route, owner: Option<&Owned>) -> Call {
    let id = |of: fn(&Owned) -> &String, unknown: &str| match owner {
        Some(owner) => of(owner).clone(),
        None => unknown.to_owned(),
    };
    let sandbox = id(|o| &o.sandbox, UNKNOWN_SANDBOX);
    let is_of_build = ["/builds/", "/files/", "/tags"].iter().any(|part| route.path.contains(part));
    let template = match (route.method.as_str(), is_of_build) {
        ("PATCH", _) | (_, true) => id(|o| &o.built, UNKNOWN_TEMPLATE),
        _ => id(|o| &o.template, UNKNOWN_TEMPLATE),
    };
    let first = route.path.trim_start_matches("/v2").split('/').nth(1).unwrap();
    let path = match first {
        "sandboxes" => route.path.replace("{id}", &sandbox),
        "teams" => route.path.replace("{id}", &id(|o| &o.team, UNKNOWN_UUID)),
        "templates" => {
            let path = route.path.replace("{alias}", &template).replace("{id}", &template);
            // A name of two parts: namespace and name.
            let path = path.replace(&format!("{template}/{{name}}"), &format!("{template}/private"));
            let path = path.replace("{build}", &id(|o| &o.waiting, UNKNOWN_UUID));
            path.replace("{hash}", &"0".repeat(64)).replace("{tag}", "default")
        }
        "api-keys" => route.path.replace("{id}", &id(|o| &o.api_key, UNKNOWN_UUID)),
        "access-tokens" => route.path.replace("{id}", &id(|o| &o.access_token, UNKNOWN_UUID)),
        "secrets" => route.path.replace("{id}", &id(|o| &o.value, UNKNOWN_UUID)),
        "volumes" | "volumecontent" => route.path.replace("{id}", &id(|o| &o.volume, UNKNOWN_UUID)),
        "events" if route.path.contains("webhooks") => {
            let path = route.path.replace("{id}", &id(|o| &o.webhook, UNKNOWN_UUID));
            path.replace("{delivery}", &id(|o| &o.delivery, UNKNOWN_UUID))
        }
        "events" => route.path.replace("{id}", &sandbox),
        _ => route.path.to_owned(),
    };
    let query = match route.path {
        "/volumecontent/{id}/dir" if route.method == "POST" => format!("?path=/new&{}", own_ids()),
        "/volumecontent/{id}/file" if route.method == "PUT" => format!("?path=/directory/file&{}", own_ids()),
        "/volumecontent/{id}/path" | "/volumecontent/{id}/file" => "?path=/directory/file".to_owned(),
        "/volumecontent/{id}/dir" => "?path=/directory".to_owned(),
        "/teams/{id}/metrics/max" => "?metric=concurrent_sandboxes".to_owned(),
        "/templates/{id}/tags/exists" => "?tag=default".to_owned(),
        "/sandboxes/metrics" => format!("?sandbox_ids={sandbox}"),
        _ => String::new(),
    };
    let body = match (route.method.as_str(), route.path) {
        ("POST", "/sandboxes" | "/v2/sandboxes") => json!({ "templateID": template }),
        ("POST", "/sandboxes/{id}/connect" | "/sandboxes/{id}/timeout") => json!({ "timeout": 60 }),
        ("POST", "/events/webhooks") => json!({ "name": "walk", "url": "http://192.0.2.1/",
            "events": ["sandbox.lifecycle.checkpointed"], "signatureSecret": "s" }),
        ("POST", "/secrets") => json!({ "name": format!("s{}", Uuid::new_v4()), "value": "walk" }),
        ("POST", "/secrets/{id}") => json!({ "value": "walk" }),
        ("POST", "/volumes") => json!({ "name": format!("v{}", Uuid::new_v4()) }),
        ("POST" | "PATCH", path) if path.starts_with("/api-keys") || path.starts_with("/access-tokens") => {
            json!({ "name": "walk" })
        }
        ("POST", "/v3/templates" | "/v2/templates") => json!({ "alias": "walked-too" }),
        ("POST", "/v2/templates/{id}/builds/{build}") => json!({ "fromTemplate": "base" }),
        ("POST", "/templates/tags") => json!({ "target": template, "tags": ["walk"] }),
        ("DELETE", "/templates/tags") => json!({ "name": template, "tags": ["walk"] }),
        ("GET" | "DELETE", _) => Value::Null,
        _ => json!({}),
    };
    Call { path: path + &query, body }
}

/// Templates of others are distinguished from missing ones, because clients read 403 as "exists".
fn may_be_forbidden(route: &Route) -> bool {
    route.path.contains("/templates") && (route.path.contains('{') || route.path.ends_with("/tags"))
}

#[tokio::test]
async fn another_team_finds_nothing_by_any_call() {
    let fake = Fake::default();
    fake.allow_parking();
    let server = Server::on_fake(fake, |_| ()).await;
    let mut owner = Owned::new(&server, "owner").await;
    let stranger = Owned::new(&server, "stranger").await;
    let mut walked = 0;
    for route in routes().iter().filter(|route| scheme(route) != Scheme::Other) {
        // A name with its namespace is walked through its encoded form.
        if route.path.contains("{name}") {
            continue;
        }
        let takes_paused = ["/resume", "/park"].iter().any(|end| route.path.ends_with(end));
        owner.renew(&server, takes_paused).await;
        let about = format!("{} {}", route.method, route.path);
        let (on_owned, on_unknown) = (call(route, Some(&owner)), call(route, None));
        let foreign = stranger.call(&server, route, &on_owned).await;
        let missing = stranger.call(&server, route, &on_unknown).await;
        if may_be_forbidden(route) {
            assert!([403, 404].contains(&foreign.status.as_u16()), "{about}: {}", foreign.text);
        } else {
            assert_eq!(foreign.status, missing.status, "{about}: {}", foreign.text);
        }
        // What is asked for by id is either not found, or an answer that is empty for the unknown one too. Lists and
        // what a team makes for itself differ in what is the stranger's own.
        if on_owned.path != on_unknown.path && !may_be_forbidden(route) {
            let mut as_unknown = foreign.text.replace(&owner.sandbox, UNKNOWN_SANDBOX);
            for id in [&owner.volume, &owner.webhook, &owner.api_key, &owner.access_token, &owner.team] {
                as_unknown = as_unknown.replace(id.as_str(), UNKNOWN_UUID);
            }
            assert_eq!(as_unknown, missing.text, "{about}");
        }
        for secret in [&owner.secret, &owner.team, &owner.key, &owner.token] {
            assert!(!foreign.text.contains(secret), "{about} tells {secret}: {}", foreign.text);
        }
        // What was asked about may be repeated; nothing else is returned.
        let asked = on_owned.body.to_string();
        if on_owned.path == route.path {
            let ids = [&owner.sandbox, &owner.api_key, &owner.access_token, &owner.volume, &owner.webhook];
            for id in ids.into_iter().chain([&owner.template]).filter(|id| !asked.contains(id.as_str())) {
                assert!(!foreign.text.contains(id.as_str()), "{about} tells {id}: {}", foreign.text);
            }
        }
        // The same call is a good one, and nothing has happened to what it is about.
        let own = owner.call(&server, route, &on_owned).await;
        assert!(own.status.is_success(), "tell this test how to make {about}: {} {}", own.status, own.text);
        walked += 1;
    }
    assert!(walked > 30, "{walked}");
}

#[tokio::test]
async fn operators_calls_are_open_to_no_team() {
    let server = Server::start().await;
    let owner = Owned::new(&server, "owner").await;
    let closed = |path: &str| ["/nodes", "/admin", "/metrics"].iter().any(|prefix| path.starts_with(prefix));
    let bearer = format!("Bearer {}", owner.token);
    let mut walked = 0;
    for route in routes().iter().filter(|route| closed(route.path)) {
        let path = route.path.replace("{id}", &owner.team).replace("{key}", &owner.api_key);
        for headers in [
            vec![],
            vec![("x-api-key", owner.key.as_str())],
            vec![("authorization", bearer.as_str())],
            vec![("x-admin-token", "wrong")],
            vec![("x-admin-token", owner.key.as_str()), ("x-team-id", owner.team.as_str())],
        ] {
            let body = json!({ "name": "x", "status": "draining" }).to_string();
            let reply = server.send(route.method.as_str(), &path, &headers, body).await;
            assert_eq!(reply.code(), 401, "{} {path} {headers:?}", route.method);
        }
        walked += 1;
    }
    assert!(walked >= 12, "{walked}");
}

#[tokio::test]
async fn no_call_is_open_without_credentials() {
    let server = Server::start().await;
    for route in routes() {
        if OPEN.contains(&route.path) {
            continue;
        }
        let path = call(&route, None).path.replace("{id}", UNKNOWN_UUID).replace("{key}", UNKNOWN_UUID);
        let path = path.replace("{name}", "x");
        // Whether the path is well-formed is nobody else's business.
        for path in [path, unreadable(route.path)] {
            let reply = server.send(route.method.as_str(), &path, &[], "{}").await;
            assert_eq!(reply.status, 401, "{} {path}: {}", route.method, reply.text);
        }
    }
}

/// A path whose parameters are not UTF-8.
fn unreadable(path: &str) -> String {
    let part = |part: &str| if part.starts_with('{') { "%FF".to_owned() } else { part.to_owned() };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

#[tokio::test]
async fn paths_that_are_not_text_are_refused_like_any_other_request() {
    let server = Server::start().await;
    let owner = Owned::new(&server, "owner").await;
    let mut walked = 0;
    for route in
        routes().iter().filter(|route| route.path.contains('{') && !route.path.starts_with("/volumecontent"))
    {
        let admin = ["/nodes", "/admin"].iter().any(|prefix| route.path.starts_with(prefix));
        let bearer = format!("Bearer {}", owner.token);
        let mut headers = vec![("x-api-key", owner.key.as_str()), ("authorization", &bearer)];
        if admin {
            headers.push(("x-admin-token", "admin"));
        }
        let path = unreadable(route.path);
        let reply = server.send(route.method.as_str(), &path, &headers, "{}").await;
        assert_eq!(reply.json()["code"], reply.code(), "{} {path}: {}", route.method, reply.text);
        assert_eq!(reply.code(), 400, "{} {path}: {}", route.method, reply.text);
        walked += 1;
    }
    assert!(walked > 30, "{walked}");
}

#[tokio::test]
async fn traffic_of_another_teams_sandbox_needs_its_own_tokens() {
    let server = Server::start().await;
    let address = echo().await;
    server.fake.listen(49983, address);
    server.fake.listen(8080, address);
    let make = async |extra: Value| server.create(extra).await;
    let private = make(json!({ "secure": true, "network": { "allowPublicTraffic": false } })).await;
    let paused = make(json!({ "secure": true, "autoResume": { "enabled": true } })).await;
    let other = make(json!({ "secure": true, "network": { "allowPublicTraffic": false } })).await;
    let id = |made: &Value| made["sandboxID"].as_str().unwrap().to_owned();
    let pause = format!("/sandboxes/{}/pause", id(&paused));
    assert_eq!(server.call("POST", &pause, Value::Null).await.status, 204);

    let to = async |id: &str, port: &str, extra: (&str, &str)| {
        let headers = [("e2b-sandbox-id", id), ("e2b-sandbox-port", port), extra];
        server.send("GET", "/", &headers, "").await.status.as_u16()
    };
    let foreign = other["trafficAccessToken"].as_str().unwrap();
    assert_eq!(to(&id(&private), "8080", ("e2b-traffic-access-token", foreign)).await, 403);
    let agent = other["envdAccessToken"].as_str().unwrap();
    // It stays asleep.
    assert_eq!(to(&id(&paused), "49983", ("x-access-token", agent)).await, 403);
    assert_eq!(server.state(&id(&paused)).await.as_deref(), Some("paused"));
    // A token finds its own sandbox only, whatever key comes with it.
    let reply =
        server.send("GET", "/files?path=/x", &[("x-access-token", "0".repeat(64).as_str())], "").await;
    assert_eq!(reply.status, 502);
    // Without waking there is no telling a paused sandbox from one that never was.
    let asleep = server.id(json!({})).await;
    let pause = format!("/sandboxes/{asleep}/pause");
    assert_eq!(server.call("POST", &pause, Value::Null).await.status, 204);
    let answer = async |id: &str| {
        let headers = [("e2b-sandbox-id", id), ("e2b-sandbox-port", "8080")];
        let reply = server.send("GET", "/", &headers, "").await;
        (reply.status, reply.text.replace(id, ""))
    };
    assert_eq!(answer(&asleep).await, answer(UNKNOWN_SANDBOX).await);
}
