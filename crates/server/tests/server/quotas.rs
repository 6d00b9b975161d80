//! What a team makes the server keep has limits, and what is beyond them is refused or gives way.

use sandcove_isolate::Usage;
use sandcove_isolate::fake::Operation;
use serde_json::{Value, json};

use crate::proxy::echo;
use crate::support::{Reply, Server, sandbox_id};

const MIB: u64 = 1 << 20;

async fn limit(server: &Server, limits: Value) {
    let id = server.app.store().default_team().await.unwrap().id;
    let text = json!({ "limits": limits }).to_string();
    let path = format!("/admin/teams/{id}");
    let reply = server.send("PATCH", &path, &[("x-admin-token", "admin")], text).await;
    assert_eq!(reply.code(), 200, "{}", reply.text);
    for (name, value) in limits.as_object().unwrap() {
        assert_eq!(reply.json()["limits"][name], *value);
    }
}

async fn post(server: &Server, id: &str, verb: &str, body: Value) -> Reply {
    server.call("POST", &format!("/sandboxes/{id}/{verb}"), body).await
}

/// A sandbox whose processes hold `mib` of memory.
async fn with_memory(server: &Server, mib: u64, extra: Value) -> String {
    let id = server.id(extra).await;
    server.fake.set_usage(&sandbox_id(&id), Usage { memory_bytes: mib * MIB, ..Usage::default() });
    id
}

async fn pause(server: &Server, id: &str) {
    let reply = post(server, id, "pause", Value::Null).await;
    assert_eq!(reply.code(), 204, "{}", reply.text);
}

async fn mode(server: &Server, id: &str) -> String {
    server.get(&format!("/sandboxes/{id}")).await.json()["pauseMode"].as_str().unwrap_or("none").to_owned()
}

async fn event_labels(server: &Server, id: &str) -> Vec<String> {
    let events = server.get(&format!("/events/sandboxes/{id}?orderAsc=true")).await.json();
    events.as_array().unwrap().iter().map(|event| event["eventLabel"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn labels_variables_and_settings_have_a_maximum_size() {
    let server = Server::start().await;
    let text = |bytes: usize| "x".repeat(bytes);
    let many: serde_json::Map<_, _> = (0..1025).map(|n| (n.to_string(), json!(""))).collect();
    for (extra, member) in [
        (json!({ "metadata": { "a": text(64 << 10) } }), "metadata"),
        (json!({ "metadata": many }), "metadata"),
        (json!({ "envVars": { "a": text(256 << 10) } }), "envVars"),
        (json!({ "mcp": { "a": text(64 << 10) } }), "mcp"),
        (json!({ "network": { "denyOut": vec!["1.1.1.1"; 1001] } }), "denyOut"),
        (json!({ "network": { "maskRequestHost": text(300) } }), "mask request host"),
    ] {
        for path in ["/sandboxes", "/v2/sandboxes"] {
            let mut body = json!({ "templateID": "base" });
            body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            let reply = server.call("POST", path, body).await;
            assert_eq!(reply.code(), 400, "{member}");
            assert!(reply.message().contains(member), "{}", reply.message());
        }
    }
    assert_eq!(server.fake.ids(), []);
    // As much as there may be.
    let full = json!({
        "metadata": { "a": text((64 << 10) - 1) },
        "envVars": { "a": text((256 << 10) - 1) },
        "mcp": { "a": text((64 << 10) - 8) },
        "network": { "denyOut": vec!["1.1.1.1"; 1000] },
    });
    let id = server.id(full).await;
    let update = json!({ "denyOut": vec!["1.1.1.1"; 1001] });
    assert_eq!(server.call("PUT", &format!("/sandboxes/{id}/network"), update).await.code(), 400);
}

#[tokio::test]
async fn a_team_with_all_its_paused_sandboxes_pauses_no_more() {
    let server = Server::start().await;
    limit(&server, json!({ "pausedSandboxes": 2 })).await;
    let kept = [server.id(json!({})).await, server.id(json!({})).await];
    pause(&server, &kept[0]).await;
    assert_eq!(post(&server, &kept[1], "pause", json!({ "memory": false })).await.code(), 204);
    let third = server.id(json!({})).await;
    let refused = post(&server, &third, "pause", Value::Null).await;
    assert_eq!(refused.code(), 429);
    assert!(refused.message().contains("maximum number of paused sandboxes (2)"), "{}", refused.message());
    assert_eq!(server.state(&third).await.as_deref(), Some("running"));
    let create = json!({ "templateID": "base", "autoPause": true });
    assert_eq!(server.call("POST", "/sandboxes", create.clone()).await.code(), 429);
    // Nobody loses anything, and there is room again when one of them is gone or runs.
    for id in &kept {
        assert_eq!(server.state(id).await.as_deref(), Some("paused"));
    }
    assert_eq!(post(&server, &kept[0], "resume", Value::Null).await.code(), 201);
    pause(&server, &third).await;
    assert_eq!(server.call("DELETE", &format!("/sandboxes/{}", kept[1]), Value::Null).await.code(), 204);
    assert_eq!(server.call("POST", "/sandboxes", create.clone()).await.code(), 201);
    pause(&server, &kept[0]).await;
    assert_eq!(post(&server, &third, "pause", Value::Null).await.code(), 409);
    // The count survives a restart.
    let server = server.restart().await;
    assert_eq!(server.call("POST", "/sandboxes", create).await.code(), 429);
}

#[tokio::test]
async fn the_oldest_paused_sandbox_gives_way_to_the_newest() {
    let server = Server::start().await;
    limit(&server, json!({ "pausedRamMb": 100 })).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(with_memory(&server, 40, json!({})).await);
        server.fake.write(&sandbox_id(ids.last().unwrap()), "kept");
    }
    pause(&server, &ids[0]).await;
    pause(&server, &ids[1]).await;
    assert_eq!([mode(&server, &ids[0]).await, mode(&server, &ids[1]).await], ["full", "full"]);
    pause(&server, &ids[2]).await;
    let modes = [mode(&server, &ids[0]).await, mode(&server, &ids[1]).await, mode(&server, &ids[2]).await];
    assert_eq!(modes, ["filesystem", "full", "full"]);
    assert_eq!(server.fake.ids().len(), 2, "its processes are gone");
    assert_eq!(event_labels(&server, &ids[0]).await, ["create", "pause", "update"]);
    let logs = server.get(&format!("/sandboxes/{}/logs", ids[0])).await.text;
    assert!(logs.contains("memory of the paused sandbox released, its files are kept"), "{logs}");
    // It comes back from its files, and by what it was paused with.
    assert_eq!(post(&server, &ids[0], "connect", json!({ "timeout": 60 })).await.code(), 201);
    assert_eq!(server.fake.files(&sandbox_id(&ids[0])).unwrap(), ["kept"]);
    assert_eq!(event_labels(&server, &ids[0]).await, ["create", "pause", "update", "resume"]);
    let metrics = server.send("GET", "/metrics", &[("x-admin-token", "admin")], "").await.text;
    assert!(metrics.contains("sandcove_sandboxes_demoted_total 1"), "{metrics}");
}

#[tokio::test]
async fn a_sandbox_that_fits_nowhere_keeps_its_files() {
    let server = Server::start().await;
    limit(&server, json!({ "pausedRamMb": 100, "concurrentSandboxes": 2 })).await;
    let small = with_memory(&server, 10, json!({})).await;
    pause(&server, &small).await;
    let large = with_memory(&server, 101, json!({})).await;
    pause(&server, &large).await;
    server.wait_for_pause_mode(&large, "filesystem").await;
    assert_eq!(mode(&server, &small).await, "full", "it drives nobody out");
    assert_eq!(event_labels(&server, &large).await, ["create", "pause", "update"]);
    assert_eq!(server.fake.ids(), [sandbox_id(&small)]);
    // Neither counts as running any more.
    for _ in 0..2 {
        server.id(json!({})).await;
    }
}

#[tokio::test]
async fn the_number_of_sandboxes_in_memory_is_limited_for_each_team() {
    let server = Server::start().await;
    limit(&server, json!({ "pausedInMemory": 1 })).await;
    let key = server.other_team().await;
    let others = server
        .call_as(key, "POST", "/sandboxes", json!({ "templateID": "base", "timeout": 600 }))
        .await
        .json();
    let other = others["sandboxID"].as_str().unwrap();
    assert_eq!(
        server.call_as(key, "POST", &format!("/sandboxes/{other}/pause"), Value::Null).await.code(),
        204
    );
    let ids = [server.id(json!({})).await, server.id(json!({})).await];
    pause(&server, &ids[0]).await;
    pause(&server, &ids[1]).await;
    assert_eq!([mode(&server, &ids[0]).await, mode(&server, &ids[1]).await], ["filesystem", "full"]);
    assert!(server.fake.is_frozen(&sandbox_id(other)), "another team's stays");
    limit(&server, json!({ "pausedInMemory": 0 })).await;
    // A lower limit holds for sandboxes that are paused from then on, and for all of them after a restart.
    assert_eq!(mode(&server, &ids[1]).await, "full");
    let server = server.restart().await;
    server.wait_for_pause_mode(&ids[1], "filesystem").await;
    assert!(server.fake.is_frozen(&sandbox_id(other)));
}

#[tokio::test]
async fn on_a_full_host_the_team_with_most_memory_gives_way() {
    let server = Server::with(|config| config.paused_memory_percent = 1).await;
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total_kib: u64 = meminfo.split_whitespace().nth(1).unwrap().parse().unwrap();
    let hundredth_mib = total_kib / 1024 / 100;
    let key = server.other_team().await;
    let others = server
        .call_as(key, "POST", "/sandboxes", json!({ "templateID": "base", "timeout": 600 }))
        .await
        .json();
    let other = others["sandboxID"].as_str().unwrap();
    let small = Usage { memory_bytes: hundredth_mib * MIB / 4, ..Usage::default() };
    server.fake.set_usage(&sandbox_id(other), small);
    assert_eq!(
        server.call_as(key, "POST", &format!("/sandboxes/{other}/pause"), Value::Null).await.code(),
        204
    );
    let ids = [
        with_memory(&server, hundredth_mib / 2, json!({})).await,
        with_memory(&server, hundredth_mib / 2, json!({})).await,
    ];
    pause(&server, &ids[0]).await;
    pause(&server, &ids[1]).await;
    assert_eq!([mode(&server, &ids[0]).await, mode(&server, &ids[1]).await], ["filesystem", "full"]);
    assert!(server.fake.is_frozen(&sandbox_id(other)), "the oldest of all, of a team that has little");
}

#[tokio::test]
async fn paused_sandboxes_give_their_slots_to_starts() {
    let server = Server::start().await;
    let ids = [server.id(json!({})).await, server.id(json!({})).await];
    server.fake.limit_slots(2);
    pause(&server, &ids[0]).await;
    pause(&server, &ids[1]).await;
    let new = server.id(json!({})).await;
    assert_eq!([mode(&server, &ids[0]).await, mode(&server, &ids[1]).await], ["filesystem", "full"]);
    // A sandbox that comes back from its files needs a slot too.
    assert_eq!(post(&server, &ids[0], "resume", Value::Null).await.code(), 201);
    assert_eq!(mode(&server, &ids[1]).await, "filesystem");
    assert_eq!(server.fake.ids().len(), 2);
    assert_eq!(server.state(&new).await.as_deref(), Some("running"));
}

#[tokio::test]
async fn traffic_still_wakes_a_sandbox_that_gave_way() {
    let server = Server::start().await;
    server.fake.listen(8080, echo().await);
    limit(&server, json!({ "pausedInMemory": 0 })).await;
    let id = server.id(json!({ "autoResume": { "enabled": true } })).await;
    pause(&server, &id).await;
    server.wait_for_pause_mode(&id, "filesystem").await;
    // What is stored says so too.
    let server = server.restart().await;
    server.fake.listen(8080, echo().await);
    let headers = [("e2b-sandbox-id", id.as_str()), ("e2b-sandbox-port", "8080")];
    assert_eq!(server.send("GET", "/", &headers, "").await.status, 200);
    assert_eq!(server.state(&id).await.as_deref(), Some("running"));
    // A pause that asks for files is one that traffic does not end.
    assert_eq!(post(&server, &id, "pause", json!({ "memory": false })).await.code(), 204);
    assert_eq!(server.send("GET", "/", &headers, "").await.code(), 502);
}

#[tokio::test]
async fn a_release_that_fails_loses_nothing() {
    let server = Server::start().await;
    limit(&server, json!({ "pausedInMemory": 1 })).await;
    let ids = [server.id(json!({})).await, server.id(json!({})).await];
    pause(&server, &ids[0]).await;
    // The processes may have ended: there is no way back to memory.
    server.fake.fail_next(Operation::ShutDown, 1);
    pause(&server, &ids[1]).await;
    assert_eq!(mode(&server, &ids[0]).await, "filesystem");
    for id in &ids {
        assert_eq!(post(&server, id, "connect", json!({ "timeout": 60 })).await.code(), 201);
    }
}

#[tokio::test]
async fn at_the_end_of_a_session_no_sandbox_is_lost_to_a_limit() {
    let server = Server::start().await;
    let id = server.id(json!({ "autoPause": true })).await;
    limit(&server, json!({ "pausedSandboxes": 0, "pausedInMemory": 0 })).await;
    assert_eq!(post(&server, &id, "timeout", json!({ "timeout": 0 })).await.code(), 204);
    server.wait_for_pause_mode(&id, "filesystem").await;
    // It takes the place of a running one, so that there are never more than both limits together.
    limit(&server, json!({ "concurrentSandboxes": 2 })).await;
    let running = server.id(json!({})).await;
    let refused = server.call("POST", "/sandboxes", json!({ "templateID": "base" })).await;
    assert_eq!(refused.code(), 429);
    assert!(refused.message().contains("maximum number of paused sandboxes (0)"), "{}", refused.message());
    assert_eq!(server.call("DELETE", &format!("/sandboxes/{running}"), Value::Null).await.code(), 204);
    assert_eq!(post(&server, &id, "connect", json!({ "timeout": 60 })).await.code(), 201);
}

#[tokio::test]
async fn snapshots_have_a_number_and_a_size() {
    let server = Server::start().await;
    limit(&server, json!({ "snapshots": 2, "snapshotsMb": 100 })).await;
    let id = server.id(json!({})).await;
    let take = async |body: Value| post(&server, &id, "snapshots", body).await;
    assert_eq!(take(json!({ "name": "mine" })).await.code(), 201);
    assert_eq!(take(json!({})).await.code(), 201);
    for body in [json!({}), json!({ "name": "other" }), json!({ "name": "mine:v2" })] {
        let refused = take(body.clone()).await;
        assert_eq!(
            (refused.code(), refused.message().as_str()),
            (400, "a team may have at most 2 snapshots"),
            "{body}"
        );
    }
    // One that takes the place of another.
    assert_eq!(take(json!({ "name": "mine" })).await.code(), 201);
    assert_eq!(server.fake.snapshots().len(), 2, "nothing is left of what was refused");
    assert_eq!(server.call("DELETE", "/templates/mine", Value::Null).await.code(), 204);
    assert_eq!(take(json!({})).await.code(), 201);

    limit(&server, json!({ "snapshots": 100 })).await;
    server.fake.charge(100 * MIB);
    for (verb, body) in [("snapshots", json!({})), ("fork", json!({ "count": 1 }))] {
        let refused = post(&server, &id, verb, body).await;
        assert_eq!(refused.code(), 400);
        assert!(refused.message().contains("may take 100 MiB"), "{}", refused.message());
    }
    server.fake.charge(100 * MIB - 1);
    assert_eq!(take(json!({})).await.code(), 201);
}

#[tokio::test]
async fn volumes_have_a_number() {
    let server = Server::start().await;
    limit(&server, json!({ "volumes": 1 })).await;
    let create = async |name: &str| server.call("POST", "/volumes", json!({ "name": name })).await;
    let volume = create("a").await;
    assert_eq!(volume.code(), 201);
    let refused = create("b").await;
    assert_eq!((refused.code(), refused.message().as_str()), (400, "a team may have at most 1 volumes"));
    let path = format!("/volumes/{}", volume.json()["volumeID"].as_str().unwrap());
    assert_eq!(server.call("DELETE", &path, Value::Null).await.code(), 204);
    assert_eq!(create("b").await.code(), 201);
}

#[tokio::test]
async fn keys_and_tokens_have_a_number() {
    let server = Server::start().await;
    let call = async |method: &str, path: &str, body: Value| {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        server.send(method, path, &[("authorization", "Bearer sk_e2b_person")], text).await
    };
    let keys = async || call("GET", "/api-keys", Value::Null).await.json().as_array().unwrap().len();
    let before = keys().await;
    // Every list of teams has a new key.
    let first = call("GET", "/teams", Value::Null).await.json()[0]["apiKey"].as_str().unwrap().to_owned();
    for _ in 0..120 {
        assert_eq!(call("GET", "/teams", Value::Null).await.code(), 200);
        // A key that is used is kept.
        assert_eq!(server.call_as(&first, "GET", "/sandboxes", Value::Null).await.code(), 200);
    }
    assert_eq!(keys().await, before + 100);
    for _ in before + 100..1000 {
        assert_eq!(call("POST", "/api-keys", json!({ "name": "k" })).await.code(), 201);
    }
    let refused = call("POST", "/api-keys", json!({ "name": "k" })).await;
    assert_eq!((refused.code(), refused.message().as_str()), (400, "a team may have at most 1000 API keys"));
    // The list of teams replaces one of its own.
    assert_eq!(call("GET", "/teams", Value::Null).await.code(), 200);
    assert_eq!(keys().await, 1000);
    let mut tokens = 0;
    while call("POST", "/access-tokens", json!({ "name": "t" })).await.status == 201 {
        tokens += 1;
    }
    assert_eq!(tokens, 1000);
}

#[tokio::test]
async fn a_webhook_names_each_type_once() {
    let server = Server::start().await;
    let types = vec!["sandbox.lifecycle.created"; 1000];
    let body = json!({
        "name": "n", "url": "https://example.com", "enabled": true, "events": types, "signatureSecret": "s",
    });
    let made = server.call("POST", "/events/webhooks", body).await;
    assert_eq!(made.code(), 201, "{}", made.text);
    assert_eq!(made.json()["events"], json!(["sandbox.lifecycle.created"]));
}
