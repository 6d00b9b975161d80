use std::time::Duration;

use sandcove_isolate::Usage;
use serde_json::{Value, json};

use crate::support::{Server, sandbox_id};

#[tokio::test]
async fn metrics_are_there_when_first_asked_for() {
    let server = Server::start().await;
    let usage = Usage { cpu_us: 10_000, memory_bytes: 3000, cache_bytes: 1000, disk_bytes: 7 };
    // Asked at once, and before its first turn; with another sandbox, should the turn come before it has a usage.
    let mut readings = Vec::new();
    for _ in 0..10 {
        let id = server.id(json!({})).await;
        server.fake.set_usage(&sandbox_id(&id), usage);
        let reading = server.get(&format!("/sandboxes/{id}/metrics")).await.json()[0].clone();
        let is_early = reading["memUsed"] == 0;
        readings.push((id, reading));
        if !is_early {
            break;
        }
    }
    let (id, reading) = readings.pop().unwrap();
    let path = format!("/sandboxes/{id}/metrics");
    assert!(reading["cpuUsedPct"].as_f64().unwrap() > 0.0, "{reading} after {readings:?}");
    assert_eq!(reading["cpuCount"], 2);
    assert_eq!((&reading["memUsed"], &reading["memCache"]), (&json!(2000), &json!(1000)));
    assert_eq!(reading["memTotal"], 512 * 1024 * 1024);
    assert_eq!((&reading["diskUsed"], &reading["diskTotal"]), (&json!(7), &json!(1024 * 1024 * 1024)));
    assert!(reading["timestamp"].is_string() && reading["timestampUnix"].is_i64());
    let latest = server.get(&format!("/sandboxes/metrics?sandbox_ids={id},inothere")).await.json();
    assert_eq!(latest["sandboxes"].as_object().unwrap().len(), 1);
    assert_eq!(latest["sandboxes"][&id]["cpuCount"], 2);
    assert_eq!(server.get(&format!("{path}?start=1&end=2")).await.json(), json!([]));
    let new = server.id(json!({})).await;
    let latest = server.get(&format!("/sandboxes/metrics?sandbox_ids={new}")).await.json();
    assert_eq!(latest["sandboxes"][&new]["cpuCount"], 2);
    // The next server knows what this one has seen, also of a sandbox that is gone.
    let gone = server.id(json!({})).await;
    assert_eq!(server.call("DELETE", &format!("/sandboxes/{gone}"), Value::Null).await.code(), 204);
    let server = server.restart().await;
    assert_eq!(server.get(&path).await.json()[0], reading);
    let log = async |id: &str| {
        let logs = server.get(&format!("/sandboxes/{id}/logs")).await.json();
        let entries = logs["logEntries"].as_array().unwrap().iter();
        entries.map(|entry| entry["message"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let found = "sandbox found again after a restart of the server";
    assert_eq!(log(&id).await, ["sandbox started", found]);
    assert_eq!(log(&gone).await, ["sandbox started", "sandbox ended, reason: request"]);
}

#[tokio::test]
async fn metrics_requests_are_checked() {
    let server = Server::start().await;
    let many = (0..101).map(|n| format!("i{n}")).collect::<Vec<_>>().join(",");
    for bad in ["", "?sandbox_ids=ia,ia", "?sandbox_ids=a_b", &format!("?sandbox_ids={many}")] {
        assert_eq!(server.get(&format!("/sandboxes/metrics{bad}")).await.code(), 400, "{bad}");
    }
    assert_eq!(server.get("/sandboxes/inothere/metrics").await.json(), json!([]));
    assert_eq!(server.get("/sandboxes/inothere/metrics?start=2&end=1").await.code(), 400);
}

#[tokio::test]
async fn logs_tell_what_happened() {
    let server = Server::start().await;
    let id = server.id(json!({})).await;
    assert_eq!(server.call("POST", &format!("/sandboxes/{id}/pause"), Value::Null).await.code(), 204);
    let logs = server.get(&format!("/sandboxes/{id}/logs?start=0&limit=10")).await.json();
    let messages: Vec<Value> =
        logs["logEntries"].as_array().unwrap().iter().map(|e| e["message"].clone()).collect();
    assert_eq!(messages, ["sandbox started", "sandbox paused"]);
    let line: Value = serde_json::from_str(logs["logs"][0]["line"].as_str().unwrap()).unwrap();
    assert_eq!((&line["level"], &line["message"]), (&json!("info"), &json!("sandbox started")));
    let backward = server.get(&format!("/v2/sandboxes/{id}/logs")).await.json();
    assert_eq!(backward["logs"][0]["message"], "sandbox paused");
    let forward = server.get(&format!("/v2/sandboxes/{id}/logs?direction=forward&limit=1")).await.json();
    assert_eq!(forward["logs"].as_array().unwrap().len(), 1);
    assert_eq!(forward["logs"][0]["message"], "sandbox started");
    let warnings = server.get(&format!("/v2/sandboxes/{id}/logs?level=warn")).await.json();
    assert_eq!(warnings["logs"], json!([]));
    let found = server.get(&format!("/v2/sandboxes/{id}/logs?search=paused")).await.json();
    assert_eq!(found["logs"].as_array().unwrap().len(), 1);
    assert_eq!(server.get("/sandboxes/inothere/logs").await.json(), json!({ "logs": [], "logEntries": [] }));
    assert_eq!(server.get("/v2/sandboxes/inothere/logs").await.json(), json!({ "logs": [] }));
    for bad in ["direction=up", "level=loud", "limit=1001"] {
        assert_eq!(server.get(&format!("/v2/sandboxes/{id}/logs?{bad}")).await.code(), 400, "{bad}");
    }
}

#[tokio::test]
async fn how_busy_a_team_was_is_shown_to_itself() {
    let server = Server::with(|config| config.team_metrics_step = Duration::from_millis(50)).await;
    let team = server.app.store().default_team().await.unwrap().id;
    let path = format!("/teams/{team}/metrics");
    assert_eq!(server.get(&path).await.json(), json!([]));
    let max = server.get(&format!("{path}/max?metric=concurrent_sandboxes")).await.json();
    assert_eq!(max["value"], 0.0);
    for _ in 0..3 {
        server.id(json!({})).await;
    }
    let most = async |metric: &str| {
        server.get(&format!("{path}/max?metric={metric}")).await.json()["value"].as_f64().unwrap()
    };
    let deadline = tokio::time::Instant::now() + crate::support::WAIT;
    while most("concurrent_sandboxes").await < 3.0 || most("sandbox_start_rate").await == 0.0 {
        assert!(tokio::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let series = server.get(&path).await.json();
    let last = series.as_array().unwrap().last().unwrap();
    assert_eq!(last["concurrentSandboxes"], 3);
    assert!(last["sandboxStartRate"].is_f64() && last["timestamp"].is_string());
    // What was seen is seen after a restart.
    let server = server.restart().await;
    assert!(!server.get(&path).await.json().as_array().unwrap().is_empty());
    assert_eq!(server.get(&format!("{path}?start=1&end=2")).await.json(), json!([]));
    for bad in ["?start=2&end=1", "?start=0&end=9999999", "?start=x", "/max", "/max?metric=x"] {
        assert_eq!(server.get(&format!("{path}{bad}")).await.code(), 400, "{bad}");
    }
    let other = server.get(&format!("/teams/{}/metrics", uuid::Uuid::new_v4())).await;
    assert_eq!(other.code(), 403);
    assert_eq!(server.get("/teams/x/metrics").await.code(), 400);
}
