use std::time::Duration;

use sandcove_isolate::PoolState;
use sandcove_isolate::fake::{Fake, Operation};
use serde_json::{Value, json};

use crate::support::{Reply, Server, sandbox_id};

async fn admin(server: &Server, method: &str, path: &str, body: Value) -> Reply {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    server.send(method, path, &[("x-admin-token", "admin")], text).await
}

/// A new team and a key of it.
async fn team(server: &Server, body: Value) -> (String, String) {
    let made = admin(server, "POST", "/admin/teams", body).await;
    assert_eq!(made.code(), 201, "{}", made.text);
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let path = format!("/admin/teams/{id}/api-keys");
    let key = admin(server, "POST", &path, json!({ "name": "k" })).await;
    assert_eq!(key.code(), 201);
    (id, key.json()["key"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn an_operator_makes_limits_blocks_and_bans_teams() {
    let server = Server::start().await;
    let limits =
        json!({ "concurrentSandboxes": 1, "maxVcpu": 1, "maxRamMb": 100, "diskMb": 50, "maxLengthHours": 2 });
    let (id, key) = team(&server, json!({ "name": "My Team", "limits": limits })).await;
    let path = format!("/admin/teams/{id}");
    let shown = admin(&server, "GET", &path, Value::Null).await.json();
    assert_eq!((&shown["slug"], &shown["isBlocked"]), (&json!("my-team"), &json!(false)));
    assert_eq!(shown["limits"]["concurrentSandboxes"], 1);
    assert_eq!(admin(&server, "GET", "/admin/teams", Value::Null).await.json().as_array().unwrap().len(), 2);
    assert_eq!(admin(&server, "POST", "/admin/teams", json!({ "name": "my team" })).await.code(), 400);

    // A sandbox gets no more than its team may give it.
    let create = json!({ "templateID": "base", "timeout": 600 });
    let made = server.call_as(&key, "POST", "/sandboxes", create.clone()).await;
    let sandbox = made.json()["sandboxID"].as_str().unwrap().to_owned();
    let spec = server.fake.spec(&sandbox_id(&sandbox)).unwrap();
    assert_eq!(
        (spec.blueprint.limits.cpus, spec.blueprint.limits.memory_mib, spec.blueprint.limits.disk_mib),
        (1, 100, 50)
    );
    assert_eq!(server.call_as(&key, "POST", "/sandboxes", create.clone()).await.code(), 429);
    let long = json!({ "templateID": "base", "timeout": 7201 });
    assert_eq!(server.call_as(&key, "POST", "/sandboxes", long).await.code(), 400);
    let more = json!({ "limits": { "concurrentSandboxes": 2 } });
    assert_eq!(admin(&server, "PATCH", &path, more).await.json()["limits"]["maxRamMb"], 100);
    assert_eq!(server.call_as(&key, "POST", "/sandboxes", create.clone()).await.code(), 201);

    let blocked = json!({ "isBlocked": true, "blockedReason": "unpaid" });
    assert_eq!(admin(&server, "PATCH", &path, blocked).await.code(), 200);
    let reply = server.call_as(&key, "POST", "/sandboxes", create.clone()).await;
    assert_eq!((reply.code(), reply.message().as_str()), (403, "team is blocked: unpaid"));
    let keys = format!("{path}/api-keys");
    assert_eq!(admin(&server, "POST", &keys, json!({ "name": "k" })).await.code(), 403);
    assert_eq!(server.call_as(&key, "GET", "/sandboxes", Value::Null).await.code(), 200);
    assert_eq!(admin(&server, "PATCH", &path, json!({ "isBanned": true })).await.code(), 200);
    assert_eq!(server.call_as(&key, "GET", "/sandboxes", Value::Null).await.code(), 403);
    assert_eq!(admin(&server, "PATCH", &path, json!({ "isBanned": false })).await.code(), 200);
    assert_eq!(server.call_as(&key, "POST", "/sandboxes", create).await.code(), 429);

    for bad in
        [json!({}), json!({ "name": " " }), json!({ "name": "é" }), json!({ "name": "a", "slug": "A" })]
    {
        assert_eq!(admin(&server, "POST", "/admin/teams", bad.clone()).await.code(), 400, "{bad}");
    }
    for bad in [
        json!({ "name": "b", "limits": { "concurrentSandboxs": 1 } }),
        json!({ "name": "b", "limit": { "concurrentSandboxes": 1 } }),
    ] {
        let reply = admin(&server, "POST", "/admin/teams", bad.clone()).await;
        assert!(reply.code() == 400 && reply.message().contains("unknown field `"), "{bad}: {}", reply.text);
        assert_eq!(admin(&server, "PATCH", &path, bad).await.code(), 400);
    }
    let bad = json!({ "limits": { "eventsTtlDays": 0 } });
    assert_eq!(admin(&server, "PATCH", &path, bad).await.code(), 400);
    assert_eq!(admin(&server, "GET", "/admin/teams/x", Value::Null).await.code(), 400);
    let unknown = "/admin/teams/00000000-0000-0000-0000-000000000000";
    assert_eq!(admin(&server, "GET", unknown, Value::Null).await.code(), 404);
}

#[tokio::test]
async fn an_operator_counts_and_kills_a_teams_sandboxes() {
    let server = Server::start().await;
    let (id, key) = team(&server, json!({ "name": "a" })).await;
    let kept = server.id(json!({})).await;
    for _ in 0..3 {
        let create = json!({ "templateID": "base", "timeout": 600 });
        assert_eq!(server.call_as(&key, "POST", "/sandboxes", create).await.code(), 201);
    }
    let default = server.app.store().default_team().await.unwrap().id.to_string();
    let counts = admin(&server, "GET", "/admin/sandboxes/running-counts", Value::Null).await.json();
    assert_eq!(counts, json!({ &id: 3, &default: 1 }));
    let kill = admin(&server, "POST", &format!("/admin/teams/{id}/sandboxes/kill"), Value::Null).await;
    assert_eq!(kill.json(), json!({ "killedCount": 3, "failedCount": 0 }));
    assert_eq!(server.fake.ids(), [sandbox_id(&kept)]);
    let cancel = admin(&server, "POST", &format!("/admin/teams/{id}/builds/cancel"), Value::Null).await;
    assert_eq!(cancel.json(), json!({ "cancelledCount": 0, "failedCount": 0 }));
}

#[tokio::test]
async fn a_person_looks_after_the_teams_keys() {
    let server = Server::start().await;
    let call = async |token: &str, method: &str, path: &str, body: Value| {
        let bearer = format!("Bearer {token}");
        let text = if body.is_null() { String::new() } else { body.to_string() };
        server.send(method, path, &[("authorization", &bearer)], text).await
    };
    let made = call("sk_e2b_person", "POST", "/access-tokens", json!({ "name": "laptop" })).await;
    assert_eq!(made.code(), 201);
    let (token, token_id) = (made.json()["token"].clone(), made.json()["id"].clone());
    let token = token.as_str().unwrap();
    assert!(token.starts_with("sk_e2b_") && token.len() == 47);
    assert_eq!(made.json()["mask"]["valueLength"], 40);

    let made = call(token, "POST", "/api-keys", json!({ "name": "ci" })).await;
    assert_eq!(made.code(), 201);
    let (key, id) = (made.json()["key"].clone(), made.json()["id"].clone());
    let (key, id) = (key.as_str().unwrap(), id.as_str().unwrap());
    assert_eq!(server.call_as(key, "GET", "/sandboxes", Value::Null).await.code(), 200);
    let listed = call(token, "GET", "/api-keys", Value::Null).await;
    let entry = listed.json().as_array().unwrap().iter().find(|k| k["id"] == id).unwrap().clone();
    assert_eq!(entry["name"], "ci");
    assert!(entry["lastUsed"].is_string() && !listed.text.contains(key));
    let renamed = call(token, "PATCH", &format!("/api-keys/{id}"), json!({ "name": "new" })).await;
    assert_eq!((renamed.code(), renamed.headers["content-length"].to_str().unwrap()), (202, "0"));
    let listed = call(token, "GET", "/api-keys", Value::Null).await.text;
    assert!(listed.contains(r#""name":"new""#), "{listed}");
    assert_eq!(call(token, "DELETE", &format!("/api-keys/{id}"), Value::Null).await.code(), 204);
    let gone = call(token, "DELETE", &format!("/api-keys/{id}"), Value::Null).await;
    assert_eq!((gone.status.as_u16(), gone.text.as_str()), (404, "id not found"));
    assert_eq!(server.call_as(key, "GET", "/sandboxes", Value::Null).await.code(), 401);
    assert_eq!(call(token, "DELETE", "/api-keys/x", Value::Null).await.code(), 400);
    assert_eq!(call(token, "POST", "/api-keys", json!({ "name": "" })).await.code(), 400);

    // Keys make no keys.
    let by_key = server.call("POST", "/api-keys", json!({ "name": "x" })).await;
    assert_eq!(by_key.code(), 401);
    let path = format!("/access-tokens/{}", token_id.as_str().unwrap());
    assert_eq!(call(token, "DELETE", &path, Value::Null).await.code(), 204);
    assert_eq!(call(token, "GET", "/api-keys", Value::Null).await.code(), 401);
}

#[tokio::test]
async fn a_person_acts_for_no_other_team() {
    let server = Server::start().await;
    let (other, _) = team(&server, json!({ "name": "other" })).await;
    let own = server.app.store().default_team().await.unwrap().id.to_string();
    let list = async |team: &str| {
        let headers = [("authorization", "Bearer sk_e2b_person"), ("x-team-id", team)];
        server.send("GET", "/api-keys", &headers, "").await.code()
    };
    assert_eq!(list(&own).await, 200);
    assert_eq!(list(&other).await, 404);
    assert_eq!(list("00000000-0000-0000-0000-000000000000").await, 404);
    assert_eq!(list("x").await, 400);
}

#[tokio::test]
async fn a_draining_node_keeps_its_sandboxes_and_takes_no_new_ones() {
    let server = Server::start().await;
    let id = server.id(json!({})).await;
    let nodes = admin(&server, "GET", "/nodes", Value::Null).await.json();
    let node = &nodes[0];
    assert_eq!((&node["status"], &node["sandboxCount"]), (&json!("ready"), &json!(1)));
    assert_eq!((&node["createSuccesses"], &node["sandboxStartingCount"]), (&json!(1), &json!(0)));
    assert_eq!(node["metrics"]["allocatedCPU"], 2);
    assert!(node["metrics"]["memoryTotalBytes"].as_u64().unwrap() > 0);
    let path = format!("/nodes/{}", node["id"].as_str().unwrap());
    assert_eq!(admin(&server, "POST", &path, json!({ "status": "draining" })).await.code(), 204);
    let detail = admin(&server, "GET", &path, Value::Null).await.json();
    assert_eq!(detail["status"], "draining");
    assert!(detail.get("sandboxStartingCount").is_none());
    let refused = server.call("POST", "/sandboxes", json!({ "templateID": "base" })).await;
    assert_eq!(
        (refused.code(), refused.json()["error_code"].as_str()),
        (503, Some("sandbox_capacity_unavailable"))
    );
    assert_eq!(server.state(&id).await.as_deref(), Some("running"));
    assert_eq!(server.send("GET", "/health", &[], "").await.status, 503);
    assert_eq!(admin(&server, "POST", &path, json!({ "status": "standby" })).await.code(), 409);
    assert_eq!(admin(&server, "POST", &path, json!({ "status": "odd" })).await.code(), 400);
    assert_eq!(admin(&server, "POST", &path, json!({ "status": "ready" })).await.code(), 204);
    server.id(json!({})).await;
    let unknown = admin(&server, "GET", "/nodes/elsewhere", Value::Null).await;
    assert_eq!((unknown.status.as_u16(), unknown.text.as_str()), (404, ""));
}

#[tokio::test]
async fn a_node_has_its_capacity_and_its_pooled_sandboxes_by_template() {
    let fake = Fake::default();
    let server = Server::on_fake(fake.clone(), |config| config.capacity = 7).await;
    let base = server.create(json!({})).await["templateID"].as_str().unwrap().to_owned();
    let node = admin(&server, "GET", "/nodes", Value::Null).await.json()[0].clone();
    assert_eq!((&node["capacity"], &node["pool"]), (&json!(7), &json!([])));
    let state = |template: &str, ready| PoolState {
        template: template.to_owned(),
        ready,
        wanted: 4,
        memory_bytes: 1000,
        oldest: None,
        hits: 20,
        misses: 1,
    };
    // Two builds of one template, and a template that was deleted meanwhile.
    let gone = "a".repeat(20);
    fake.set_pool_states(vec![state(&base, 2), state(&base, 1), state(&gone, 0)]);
    let mut pool = admin(&server, "GET", "/nodes", Value::Null).await.json()[0]["pool"].clone();
    pool.as_array_mut().unwrap().sort_by_key(|kept| kept["templateID"] == json!(gone));
    let kept = |id: &str, name: &str, builds: u64, ready: u64| {
        json!({ "templateID": id, "name": name, "ready": ready, "wanted": 4 * builds, "memoryBytes": 1000 * builds,
            "hits": 20 * builds, "misses": builds })
    };
    assert_eq!(pool, json!([kept(&base, "base", 2, 3), kept(&gone, "", 1, 0)]));
}

#[tokio::test]
async fn prometheus_reads_numbers_with_the_operators_token() {
    let server = Server::start().await;
    server.id(json!({})).await;
    server.get("/sandboxes/inothere").await;
    let headers = [("authorization", "Bearer admin")];
    let reply = server.send("GET", "/metrics", &headers, "").await;
    assert_eq!(reply.status, 200);
    for line in [
        r#"sandcove_sandbox_starts_total{result="started"} 1"#,
        r#"sandcove_sandboxes{state="running"} 1"#,
        r#"sandcove_api_requests_total{method="GET",route="/sandboxes/{id}",status="404"} 1"#,
        "sandcove_sandbox_start_seconds_count 1",
    ] {
        assert!(reply.text.contains(line), "{line} is not in\n{}", reply.text);
    }
}

#[tokio::test]
async fn starts_beyond_what_the_host_takes_wait_for_their_turn() {
    let server = Server::with(|config| {
        config.capacity = 1;
        config.start_timeout = crate::support::WAIT;
    })
    .await;
    let first = server.id(json!({})).await;
    let create = server.call("POST", "/sandboxes", json!({ "templateID": "base" }));
    let kill = async {
        let waiting = || async {
            admin(&server, "GET", "/nodes", Value::Null).await.json()[0]["sandboxStartingCount"] == 1
        };
        let deadline = tokio::time::Instant::now() + crate::support::WAIT;
        while !waiting().await {
            assert!(tokio::time::Instant::now() < deadline, "no start waits");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        server.call("DELETE", &format!("/sandboxes/{first}"), Value::Null).await
    };
    let (created, killed) = tokio::join!(create, kill);
    assert_eq!((created.code(), killed.code()), (201, 204));
}

#[tokio::test]
async fn waiting_ends_with_the_documented_errors() {
    let server = Server::with(|config| {
        config.capacity = 1;
        config.start_timeout = Duration::from_millis(100);
    })
    .await;
    let first = server.id(json!({})).await;
    let create = json!({ "templateID": "base" });
    let reply = server.call("POST", "/sandboxes", create.clone()).await;
    assert_eq!(
        (reply.code(), reply.json()["error_code"].as_str()),
        (503, Some("sandbox_capacity_unavailable"))
    );
    assert_eq!(server.call("DELETE", &format!("/sandboxes/{first}"), Value::Null).await.code(), 204);

    let server = Server::with(|config| {
        config.max_starts = 1;
        config.start_timeout = Duration::from_millis(100);
    })
    .await;
    // Whichever is first is held; the other is refused.
    let hold = server.fake.hold(Operation::Create);
    let mut one = std::pin::pin!(server.call("POST", "/sandboxes", create.clone()));
    let mut other = std::pin::pin!(server.call("POST", "/sandboxes", create.clone()));
    let (late, first) = tokio::select! {
        late = &mut one => (late, other),
        late = &mut other => (late, one),
    };
    drop(hold);
    let made = first.await;
    assert_eq!(made.code(), 201);
    assert_eq!((late.code(), late.json()["error_code"].as_str()), (504, Some("sandbox_placement_timeout")));
}

#[tokio::test]
async fn a_team_that_asks_too_often_is_told_when_to_come_back() {
    let server = Server::with(|config| config.rate_limit = Some(2)).await;
    for remaining in ["1", "0"] {
        let reply = server.get("/sandboxes").await;
        assert_eq!(reply.code(), 200);
        assert_eq!(reply.headers["ratelimit-limit"], "2");
        assert_eq!(reply.headers["ratelimit-remaining"], remaining);
    }
    let reply = server.get("/sandboxes").await;
    assert_eq!(reply.code(), 429);
    let seconds = |name: &str| reply.headers[name].to_str().unwrap().parse::<u64>().unwrap();
    assert!((1..=60).contains(&seconds("retry-after")));
    assert_eq!(seconds("retry-after"), seconds("ratelimit-reset"));
    // Other calls and other teams have their own.
    assert_eq!(server.get("/v2/sandboxes").await.code(), 200);
    let (_, other) = team(&server, json!({ "name": "other" })).await;
    assert_eq!(server.call_as(&other, "GET", "/sandboxes", Value::Null).await.code(), 200);
    assert!(server.send("GET", "/health", &[], "").await.headers.get("ratelimit-limit").is_none());
}

#[tokio::test]
async fn a_call_without_credentials_says_which_it_takes() {
    let server = Server::start().await;
    for (path, wanted) in [
        ("/sandboxes", "send an API key in X-API-Key"),
        ("/metrics", "send the admin token in X-Admin-Token or as a bearer token"),
        ("/admin/teams", "send the admin token in X-Admin-Token"),
        ("/api-keys", "send an access token as a bearer token, or the admin token in X-Admin-Token"),
    ] {
        // A key is no credential for the calls that take none.
        let headers = [("x-api-key", crate::support::KEY)];
        let headers = if path == "/sandboxes" { &headers[..0] } else { &headers };
        let reply = server.send("GET", path, headers, "").await;
        let text = format!("authorization header is missing: {wanted}");
        assert_eq!((reply.code(), reply.message()), (401, text), "{path}");
    }
}
