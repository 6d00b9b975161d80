use std::time::Duration;

use futures_util::future::join_all;
use sandcove_isolate::fake::{Hold, Operation};
use serde_json::{Value, json};

use crate::proxy::echo;
use crate::support::Server;

async fn paused(server: &Server, extra: Value) -> (String, Value) {
    let made = server.create(extra).await;
    let id = made["sandboxID"].as_str().unwrap().to_owned();
    assert_eq!(server.call("POST", &format!("/sandboxes/{id}/pause"), Value::Null).await.code(), 204);
    (id, made)
}

async fn with_services() -> Server {
    let server = Server::start().await;
    let address = echo().await;
    server.fake.listen(49983, address);
    server.fake.listen(8080, address);
    server
}

async fn lifetime(server: &Server, id: &str) -> f64 {
    let detail = server.get(&format!("/sandboxes/{id}")).await.json();
    let time = |name: &str| detail[name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    time("endAt").duration_since(time("startedAt")).as_secs_f64()
}

#[tokio::test]
async fn traffic_wakes_what_may_be_woken() {
    let server = with_services().await;
    let (id, _) = paused(&server, json!({ "autoResume": { "enabled": true } })).await;
    let headers = [("e2b-sandbox-id", id.as_str()), ("e2b-sandbox-port", "8080")];
    let replies = join_all((0..5).map(|_| server.send("GET", "/", &headers, ""))).await;
    assert!(replies.iter().all(|reply| reply.status == 200));
    assert_eq!(server.state(&id).await.as_deref(), Some("running"));
    assert_eq!(lifetime(&server, &id).await, 300.0);
    let (long, _) = paused(&server, json!({ "autoResume": { "enabled": true }, "timeout": 420 })).await;
    let headers = [("e2b-sandbox-id", long.as_str()), ("e2b-sandbox-port", "49983")];
    assert_eq!(server.send("GET", "/health", &headers, "").await.status, 200);
    assert_eq!(lifetime(&server, &long).await, 420.0);
}

#[tokio::test]
async fn others_stay_asleep() {
    let server = with_services().await;
    let (id, _) = paused(&server, json!({})).await;
    for port in ["8080", "49983"] {
        let headers = [("e2b-sandbox-id", id.as_str()), ("e2b-sandbox-port", port)];
        assert_eq!(server.send("GET", "/", &headers, "").await.code(), 502);
    }
    assert_eq!(server.state(&id).await.as_deref(), Some("paused"));
}

#[tokio::test]
async fn nothing_wakes_what_was_kept_as_files() {
    let server = with_services().await;
    let id = server.id(json!({ "autoResume": { "enabled": true } })).await;
    let pause = server.call("POST", &format!("/sandboxes/{id}/pause"), json!({ "memory": false })).await;
    assert_eq!(pause.code(), 204);
    for port in ["8080", "49983"] {
        let headers = [("e2b-sandbox-id", id.as_str()), ("e2b-sandbox-port", port)];
        let reply = server.send("GET", "/", &headers, "").await;
        assert_eq!(reply.code(), 502);
        assert!(reply.message().contains("was not found"));
    }
    assert_eq!(server.state(&id).await.as_deref(), Some("paused"));
}

#[tokio::test]
async fn only_those_who_would_be_let_in_wake_it() {
    let server = with_services().await;
    let body = json!({ "secure": true, "autoResume": { "enabled": true }, "network": { "allowPublicTraffic": false } });
    let (id, made) = paused(&server, body).await;
    let traffic = made["trafficAccessToken"].as_str().unwrap();
    let access = made["envdAccessToken"].as_str().unwrap();
    let ask = async |port: &str, more: (&str, &str)| {
        server.send("GET", "/", &[("e2b-sandbox-id", &id), ("e2b-sandbox-port", port), more], "").await
    };
    assert_eq!(ask("8080", ("accept", "*/*")).await.code(), 403);
    assert_eq!(ask("49983", ("accept", "*/*")).await.code(), 403);
    assert_eq!(ask("49983", ("x-access-token", "wrong")).await.code(), 403);
    assert_eq!(server.state(&id).await.as_deref(), Some("paused"));
    assert_eq!(ask("8080", ("e2b-traffic-access-token", traffic)).await.status, 200);
    assert_eq!(server.state(&id).await.as_deref(), Some("running"));
    assert_eq!(server.call("POST", &format!("/sandboxes/{id}/pause"), Value::Null).await.code(), 204);
    assert_eq!(ask("49983", ("x-access-token", access)).await.status, 200);
    assert_eq!(server.state(&id).await.as_deref(), Some("running"));
}

#[tokio::test]
async fn the_teams_limit_holds_for_traffic_too() {
    let server = Server::with(|config| config.max_sandboxes = 1).await;
    server.fake.listen(8080, echo().await);
    let (id, _) = paused(&server, json!({ "autoResume": { "enabled": true } })).await;
    server.id(json!({})).await;
    let reply = server.send("GET", "/", &[("e2b-sandbox-id", &id), ("e2b-sandbox-port", "8080")], "").await;
    assert_eq!(reply.code(), 429);
    assert_eq!(reply.json()["connectionLimit"], 1);
}

/// A server, and a sandbox made with `extra` whose pause ends with the hold.
async fn pausing(extra: Value, transition_deadline: Duration) -> (Server, String, Hold) {
    let server = Server::with(|config| config.transition_deadline = transition_deadline).await;
    server.fake.listen(8080, echo().await);
    let hold = server.fake.hold(Operation::Pause);
    let mut wish = json!({ "autoPause": true });
    wish.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    let id = server.id(wish).await;
    assert_eq!(
        server.call("POST", &format!("/sandboxes/{id}/timeout"), json!({ "timeout": 0 })).await.code(),
        204
    );
    server.wait_for_state(&id, Some("paused")).await;
    (server, id, hold)
}

#[tokio::test]
async fn what_is_pausing_and_stays_asleep_is_not_found() {
    let (server, id, _hold) = pausing(json!({}), Duration::from_secs(3600)).await;
    for port in ["8080", "49983"] {
        let headers = [("e2b-sandbox-id", id.as_str()), ("e2b-sandbox-port", port)];
        let reply = server.send("GET", "/health", &headers, "").await;
        assert_eq!((reply.code(), reply.message().as_str()), (502, "The sandbox was not found"));
    }
}

#[tokio::test]
async fn what_is_pausing_and_may_wake_is_waited_for_but_not_for_ever() {
    let (server, id, _hold) =
        pausing(json!({ "autoResume": { "enabled": true } }), Duration::from_millis(50)).await;
    let headers = [("e2b-sandbox-id", id.as_str()), ("e2b-sandbox-port", "8080")];
    assert_eq!(server.send("GET", "/", &headers, "").await.code(), 409);
}
