//! Memory of paused sandboxes that goes to disk and comes back.

use std::time::Duration;

use sandcove_isolate::fake::{Fake, Operation};
use sandcove_wire::boot::AGENT_PORT;
use serde_json::{Value, json};

use crate::proxy::echo;
use crate::support::{Server, sandbox_id};

/// A server that parks what is paused at once.
async fn eager() -> Server {
    Server::on_fake(fake().await, |config| config.park_after = Some(Duration::ZERO)).await
}

/// A server that parks on command, and when memory is short.
async fn able() -> Server {
    Server::on_fake(fake().await, |_| ()).await
}

/// A backend that stores memory. What is restored is asked whether it is well.
async fn fake() -> Fake {
    let fake = Fake::default();
    fake.allow_parking();
    fake.listen(AGENT_PORT, echo().await);
    fake
}

async fn post(server: &Server, id: &str, action: &str, body: Value) -> u16 {
    server.call("POST", &format!("/sandboxes/{id}/{action}"), body).await.code()
}

async fn place(server: &Server, id: &str) -> Value {
    server.get(&format!("/sandboxes/{id}")).await.json()["keptMemory"]["place"].clone()
}

async fn wait_for_place(server: &Server, id: &str, place: &str) {
    server.wait_for(&format!("/sandboxes/{id}"), "/keptMemory/place", place.into()).await;
}

async fn logs(server: &Server, id: &str) -> String {
    server.get(&format!("/sandboxes/{id}/logs")).await.text
}

#[tokio::test]
async fn memory_goes_to_disk_in_the_background_and_a_resume_goes_on_with_it() {
    let server = eager().await;
    let id = server.id(json!({})).await;
    assert_eq!(post(&server, &id, "pause", Value::Null).await, 204);
    wait_for_place(&server, &id, "disk").await;
    assert_eq!(server.fake.ids(), [], "its processes are gone");
    let detail = server.get(&format!("/sandboxes/{id}")).await.json();
    assert_eq!((&detail["pauseMode"], &detail["keptMemory"]["bytes"]), (&json!("full"), &json!(7 << 20)));
    assert_eq!(post(&server, &id, "pause", Value::Null).await, 409);
    assert_eq!(post(&server, &id, "park", Value::Null).await, 204, "nothing is left to do");
    assert_eq!(post(&server, &id, "connect", json!({ "timeout": 60 })).await, 201);
    assert!(server.fake.spec(&sandbox_id(&id)).unwrap().memory);
    assert_eq!(server.get(&format!("/sandboxes/{id}")).await.json().get("keptMemory"), None);
    let metrics = server.send("GET", "/metrics", &[("x-admin-token", "admin")], "").await.text;
    for counter in ["sandcove_sandboxes_parked_total 1", "sandcove_sandboxes_unparked_total 1"] {
        assert!(metrics.contains(counter), "{metrics}");
    }
}

#[tokio::test]
async fn memory_on_disk_outlives_the_server() {
    let server = able().await;
    let id = server.id(json!({})).await;
    assert_eq!(post(&server, &id, "park", Value::Null).await, 409, "it runs");
    assert_eq!(post(&server, &id, "pause", Value::Null).await, 204);
    assert_eq!(place(&server, &id).await, "host");
    assert_eq!(post(&server, &id, "park", Value::Null).await, 204);
    let server = server.restart().await;
    assert_eq!(place(&server, &id).await, "disk");
    assert_eq!(post(&server, &id, "resume", Value::Null).await, 201);
    assert!(server.fake.spec(&sandbox_id(&id)).unwrap().memory);
}

#[tokio::test]
async fn memory_that_was_stored_is_found_when_only_the_processes_are_gone() {
    let server = able().await;
    let id = server.id(json!({})).await;
    assert_eq!(post(&server, &id, "pause", Value::Null).await, 204);
    let fake = server.fake.clone();
    // The server has died between the memory and the row, and the host after it.
    let between = || {
        fake.store_memory(&sandbox_id(&id));
        fake.crash(&sandbox_id(&id));
    };
    let server = server.restart_with(between).await;
    assert_eq!(place(&server, &id).await, "disk");
}

#[tokio::test]
async fn what_cannot_be_stored_stays_frozen_and_says_why() {
    let server = able().await;
    let id = server.id(json!({})).await;
    assert_eq!(post(&server, &id, "pause", Value::Null).await, 204);
    server.fake.refuse_parking("process 12 is stopped");
    let refused = server.call("POST", &format!("/sandboxes/{id}/park"), Value::Null).await;
    assert_eq!(refused.code(), 409);
    assert!(refused.text.contains("cannot be parked: process 12 is stopped"), "{}", refused.text);
    assert!(logs(&server, &id).await.contains("process 12 is stopped"));
    assert!(server.fake.is_frozen(&sandbox_id(&id)));
    assert_eq!(place(&server, &id).await, "host");
    assert_eq!(post(&server, &id, "resume", Value::Null).await, 201);
}

#[tokio::test]
async fn a_host_that_ends_leaves_memory_on_disk_or_files() {
    let server = able().await;
    let (running, kept, refused) =
        (server.id(json!({})).await, server.id(json!({})).await, server.id(json!({})).await);
    assert_eq!(post(&server, &kept, "pause", Value::Null).await, 204);
    server.app.sandboxes().leave_host().await;
    assert_eq!(place(&server, &kept).await, "disk");
    server.fake.refuse_parking("process 12 is stopped");
    assert_eq!(post(&server, &refused, "pause", Value::Null).await, 204);
    server.app.sandboxes().leave_host().await;
    assert_eq!(place(&server, &refused).await, Value::Null);
    assert_eq!(server.get(&format!("/sandboxes/{refused}")).await.json()["state"], "paused");
    assert_eq!(place(&server, &kept).await, "disk", "it was stored before");
    assert_eq!(server.fake.ids(), [sandbox_id(&running)], "nothing that is frozen is left");
}

#[tokio::test]
async fn memory_that_cannot_be_restored_is_reported_and_the_files_are_kept() {
    let server = able().await;
    let id = server.id(json!({})).await;
    server.fake.write(&sandbox_id(&id), "kept");
    assert_eq!(post(&server, &id, "pause", Value::Null).await, 204);
    assert_eq!(post(&server, &id, "park", Value::Null).await, 204);
    server.fake.lose_memory(&sandbox_id(&id));
    assert_eq!(post(&server, &id, "connect", json!({ "timeout": 60 })).await, 201);
    assert!(!server.fake.spec(&sandbox_id(&id)).unwrap().memory);
    assert_eq!(server.fake.files(&sandbox_id(&id)).unwrap(), ["kept"]);
    assert!(logs(&server, &id).await.contains("memory of the paused sandbox cannot be restored"));
    let events = server.get(&format!("/events/sandboxes/{id}?orderAsc=true")).await.json();
    let events = events.as_array().unwrap();
    let labels: Vec<_> = events.iter().map(|event| event["eventLabel"].as_str().unwrap()).collect();
    assert_eq!(labels, ["create", "pause", "update", "resume"]);
    assert_eq!(events[2]["eventData"]["pause_mode"], "filesystem");
}

#[tokio::test]
async fn a_start_that_fails_leaves_the_memory_on_disk() {
    let server = able().await;
    let id = server.id(json!({})).await;
    assert_eq!(post(&server, &id, "pause", Value::Null).await, 204);
    assert_eq!(post(&server, &id, "park", Value::Null).await, 204);
    server.fake.fail_next(Operation::Create, 1);
    assert_eq!(post(&server, &id, "resume", Value::Null).await, 500);
    assert_eq!(place(&server, &id).await, "disk");
    assert_eq!(post(&server, &id, "resume", Value::Null).await, 201);
    assert!(server.fake.spec(&sandbox_id(&id)).unwrap().memory);
}

#[tokio::test]
async fn a_client_that_wants_the_sandbox_does_not_wait_for_its_end() {
    let server = eager().await;
    let id = server.id(json!({})).await;
    let slot = server.fake.slot(&sandbox_id(&id));
    let hold = server.fake.hold(Operation::Park);
    assert_eq!(post(&server, &id, "pause", Value::Null).await, 204);
    hold.reached().await;
    let connect = format!("/sandboxes/{id}/connect");
    let connected = server.call("POST", &connect, json!({ "timeout": 60 }));
    let release = async {
        // The command is in the driver's hands before the memory is stored.
        server.wait_for_commands(&id, 1).await;
        drop(hold);
    };
    let (connected, ()) = tokio::join!(connected, release);
    assert_eq!(connected.code(), 201);
    assert_eq!(server.fake.slot(&sandbox_id(&id)), slot, "it went on where it was");
    assert!(!server.fake.has_memory(&sandbox_id(&id)));
}

#[tokio::test]
async fn memory_goes_to_disk_before_it_is_given_up() {
    let server = able().await;
    let path = format!("/admin/teams/{}", server.app.store().default_team().await.unwrap().id);
    let limits = json!({ "limits": { "pausedInMemory": 1 } }).to_string();
    let set = server.send("PATCH", &path, &[("x-admin-token", "admin")], limits).await;
    assert_eq!(set.code(), 200, "{}", set.text);
    let ids = [server.id(json!({})).await, server.id(json!({})).await];
    for id in &ids {
        assert_eq!(post(&server, id, "pause", Value::Null).await, 204);
    }
    assert_eq!([place(&server, &ids[0]).await, place(&server, &ids[1]).await], ["disk", "host"]);
}

#[tokio::test]
async fn a_kill_removes_memory_and_files() {
    let server = able().await;
    let id = server.id(json!({})).await;
    assert_eq!(post(&server, &id, "pause", Value::Null).await, 204);
    assert_eq!(post(&server, &id, "park", Value::Null).await, 204);
    assert_eq!(server.call("DELETE", &format!("/sandboxes/{id}"), Value::Null).await.code(), 204);
    assert!(!server.fake.has_memory(&sandbox_id(&id)));
    assert_eq!(server.fake.files(&sandbox_id(&id)), None);
}

#[tokio::test]
async fn without_criu_memory_stays_in_memory() {
    let server = Server::with(|config| config.park_after = Some(Duration::ZERO)).await;
    let id = server.id(json!({})).await;
    assert_eq!(post(&server, &id, "pause", Value::Null).await, 204);
    let refused = server.call("POST", &format!("/sandboxes/{id}/park"), Value::Null).await;
    assert_eq!(refused.code(), 409);
    assert!(refused.text.contains("has no CRIU"), "{}", refused.text);
    assert_eq!(place(&server, &id).await, "host");
}
