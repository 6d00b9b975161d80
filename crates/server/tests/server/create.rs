use sandcove_isolate::fake::Operation;
use serde_json::{Value, json};

use crate::support::{BASE, Server, sandbox_id};

#[tokio::test]
async fn a_sandbox_is_made_as_asked() {
    let server = Server::start().await;
    let made = server
        .create(json!({ "secure": true, "metadata": { "a": "b" }, "envVars": { "BOTH": "user", "MINE": "2" }, "unknown": [1] }))
        .await;
    let id = made["sandboxID"].as_str().unwrap();
    assert!(id.starts_with('i') && id.len() == 21);
    assert_eq!(made["templateID"], BASE);
    assert_eq!(made["clientID"], "6532622b");
    assert_eq!(made["alias"], "base");
    assert_eq!(made["envdVersion"], "0.6.13");
    assert_eq!(made["domain"], format!("localhost:{}", server.address.port()));
    let token = made["envdAccessToken"].as_str().unwrap();
    assert_eq!(token.len(), 64);
    assert!(made.get("trafficAccessToken").is_none());

    let spec = server.fake.spec(&sandbox_id(id)).unwrap();
    let layers: Vec<_> =
        spec.blueprint.layers.iter().map(|l| l.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(layers, ["top", "bottom"]);
    assert_eq!(
        (spec.blueprint.limits.cpus, spec.blueprint.limits.memory_mib, spec.blueprint.limits.disk_mib),
        (2, 512, 1024)
    );
    assert_eq!(spec.blueprint.boot.services.len(), 1);
    let settings = &spec.settings;
    assert!(settings.access_token.as_ref().unwrap().matches(token));
    assert_eq!(settings.token_required, Some(true));
    assert_eq!(settings.default_user.as_deref(), Some("user"));
    let env = settings.env_vars.as_ref().unwrap();
    let pairs: Vec<_> = env.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(pairs, ["BOTH=user", "FROM_TEMPLATE=1", "MINE=2"]);

    let detail = server.get(&format!("/sandboxes/{id}")).await.json();
    assert_eq!(detail["state"], "running");
    assert_eq!(detail["envdAccessToken"], token);
    assert_eq!(detail["metadata"], json!({ "a": "b" }));
    assert_eq!(detail["lifecycle"], json!({ "autoResume": false, "onTimeout": "kill" }));
    assert_eq!(detail["allowInternetAccess"], Value::Null);
    assert_eq!(detail["volumeMounts"], json!([]));
    assert!(detail.get("pauseMode").is_none());
    let composite = server.get(&format!("/sandboxes/{id}-6532622b")).await;
    assert_eq!(composite.json()["sandboxID"], id);
}

#[tokio::test]
async fn the_token_is_demanded_where_clients_can_send_it() {
    let server = Server::start().await;
    let required = async |path: &str, body: Value| {
        let made = server.call("POST", path, body).await.json();
        let spec = server.fake.spec(&sandbox_id(made["sandboxID"].as_str().unwrap())).unwrap();
        assert!(spec.settings.access_token.is_some());
        spec.settings.token_required.unwrap()
    };
    assert!(!required("/sandboxes", json!({ "templateID": "base" })).await);
    assert!(!required("/sandboxes", json!({ "templateID": "base", "secure": false })).await);
    assert!(required("/sandboxes", json!({ "templateID": "base", "secure": true })).await);
    assert!(required("/v2/sandboxes", json!({ "templateID": "base" })).await);
}

#[tokio::test]
async fn default_timeouts_are_those_of_the_version() {
    let server = Server::start().await;
    for (path, seconds) in [("/sandboxes", 15.0), ("/v2/sandboxes", 300.0)] {
        let made = server.call("POST", path, json!({ "templateID": "base" })).await.json();
        let detail = server.get(&format!("/sandboxes/{}", made["sandboxID"].as_str().unwrap())).await.json();
        let time = |name: &str| detail[name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        let lasts = time("endAt").duration_since(time("startedAt")).as_secs_f64();
        assert_eq!(lasts, seconds, "{path}");
    }
}

#[tokio::test]
async fn refusals_say_why() {
    let server = Server::start().await;
    let cases = [
        (json!({}), 400, "validation error: "),
        (json!({ "templateID": 1 }), 400, "validation error: "),
        (json!({ "templateID": "base", "timeout": 0 }), 400, "Timeout must be greater than 0"),
        (json!({ "templateID": "base", "timeout": -1 }), 400, "Timeout must be greater than 0"),
        (json!({ "templateID": "base", "timeout": 86401 }), 400, "Timeout cannot be greater than 24 hours"),
        (json!({ "templateID": "no such" }), 400, "Invalid template reference: "),
        (json!({ "templateID": "nosuch" }), 404, "template 'nosuch' not found"),
        (json!({ "templateID": "base:v9" }), 404, "tag 'v9' does not exist for template 'base'"),
        (json!({ "templateID": "ns/base" }), 404, "template 'ns/base' not found"),
        (json!({ "templateID": "base", "autoPauseMemory": false }), 400, "autoPause"),
        (
            json!({ "templateID": "base", "autoPause": true, "autoPauseMemory": false, "autoResume": { "enabled": true } }),
            400,
            "autoResume",
        ),
        (
            json!({ "templateID": "base", "volumeMounts": [{ "name": "a", "path": "/a" }] }),
            400,
            "invalid mounts:\nvolume 'a' not found",
        ),
        (json!({ "templateID": "base", "network": { "denyOut": ["example.com"] } }), 400, "example.com"),
        (
            json!({ "templateID": "base", "network": { "maskRequestHost": "-https://abcd" } }),
            400,
            "-https://abcd",
        ),
        (
            json!({ "templateID": "base", "network": { "egressProxy": { "address": "10.0.0.1:1080" } } }),
            400,
            "invalid egress proxy: '10.0.0.1' does not resolve to public addresses",
        ),
        (
            json!({ "templateID": "base", "network": { "egressProxy": { "address": "p.invalid:1080" } } }),
            400,
            "does not resolve",
        ),
        (
            json!({ "templateID": "base", "network": { "egressProxy": { "address": "a:1", "password": "b" } } }),
            400,
            "'password' needs 'username'",
        ),
        (
            json!({ "templateID": "base", "iam": { "tokens": { "a": { "audience": "b", "tokenType": "x" } } } }),
            400,
            "invalid iam: the type of the token 'a' must be JWT-SVID",
        ),
        (
            json!({ "templateID": "base", "secure": false, "network": { "allowPublicTraffic": false } }),
            400,
            "You cannot create a sandbox without public access unless you enable secure envd access via 'secure' flag.",
        ),
    ];
    for (body, code, text) in cases {
        let reply = server.call("POST", "/sandboxes", body.clone()).await;
        assert_eq!(reply.code(), code, "{body}");
        assert!(reply.message().contains(text), "{body}: {}", reply.message());
    }
    assert_eq!(server.call("POST", "/sandboxes", Value::Null).await.code(), 400);
    assert_eq!(server.fake.ids(), []);
}

#[tokio::test]
async fn templates_are_found_by_name_tag_and_id() {
    let server = Server::start().await;
    for reference in ["base", "BASE", " base:default ", BASE] {
        let reply = server.call("POST", "/sandboxes", json!({ "templateID": reference })).await;
        assert_eq!(reply.code(), 201, "{reference}");
        assert_eq!(reply.json()["templateID"], BASE);
    }
}

#[tokio::test]
async fn a_failed_create_leaves_nothing_and_takes_no_room() {
    let server = Server::with(|config| config.max_sandboxes = 1).await;
    server.fake.fail_next(Operation::Create, 1);
    let reply = server.call("POST", "/sandboxes", json!({ "templateID": "base" })).await;
    assert_eq!(reply.code(), 500);
    assert_eq!(reply.json()["error_code"], "sandbox_create_failed");
    assert!(!reply.text.contains("scripted fault"));
    assert_eq!(server.get("/v2/sandboxes").await.json(), json!([]));
    server.create(json!({})).await;
}

#[tokio::test]
async fn a_team_runs_as_many_as_it_may() {
    let server = Server::with(|config| config.max_sandboxes = 2).await;
    let first = server.id(json!({})).await;
    server.id(json!({})).await;
    let third = async || server.call("POST", "/sandboxes", json!({ "templateID": "base" })).await;
    let reply = third().await;
    assert_eq!(reply.code(), 429);
    assert!(reply.message().contains("maximum number of concurrent E2B sandboxes (2)"));
    // A paused sandbox does not count, and cannot come back while there is no room.
    assert_eq!(server.call("POST", &format!("/sandboxes/{first}/pause"), Value::Null).await.code(), 204);
    assert_eq!(third().await.code(), 201);
    let resume = server.call("POST", &format!("/sandboxes/{first}/resume"), Value::Null).await;
    assert_eq!(resume.code(), 429);
    assert_eq!(server.state(&first).await.as_deref(), Some("paused"));
}

#[tokio::test]
async fn a_client_that_hangs_up_cancels_nothing() {
    let server = Server::start().await;
    let hold = server.fake.hold(Operation::Create);
    let body = json!({ "templateID": "base", "timeout": 60 });
    let call = server.call("POST", "/sandboxes", body);
    tokio::select! {
        reply = call => panic!("answered early: {}", reply.code()),
        () = hold.reached() => {}
    }
    drop(hold);
    crate::support::wait_until("the sandbox is there", || server.fake.ids().len() == 1).await;
    let id = server.fake.ids()[0].to_string();
    server.wait_for_state(&id, Some("running")).await;
}
