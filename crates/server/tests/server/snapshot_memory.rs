//! Snapshots and forks with memory: what is said of them, and what sandboxes are started with.

use sandcove_isolate::fake::Fake;
use serde_json::{Value, json};

use crate::support::{Server, sandbox_id};

/// A server whose backend stores memory.
async fn able() -> Server {
    let fake = Fake::default();
    fake.allow_parking();
    Server::on_fake(fake, |_| ()).await
}

async fn snapshot(server: &Server, id: &str, body: Value) -> Value {
    let reply = server.call("POST", &format!("/sandboxes/{id}/snapshots"), body).await;
    assert_eq!(reply.code(), 201, "{}", reply.text);
    reply.json()
}

async fn from(server: &Server, snapshot: &Value) -> String {
    let made = server.create(json!({ "templateID": snapshot["snapshotID"] })).await;
    made["sandboxID"].as_str().unwrap().to_owned()
}

async fn logs(server: &Server, id: &str) -> String {
    server.get(&format!("/sandboxes/{id}/logs")).await.text
}

/// Labels of the events of a sandbox, and a member of the data of the last.
async fn events(server: &Server, id: &str, member: &str) -> (Vec<String>, Value) {
    let events = server.get(&format!("/events/sandboxes/{id}?orderAsc=true")).await.json();
    let events = events.as_array().unwrap();
    let labels = events.iter().map(|event| event["eventLabel"].as_str().unwrap().to_owned()).collect();
    (labels, events.last().unwrap()["eventData"][member].clone())
}

fn has_memory(server: &Server, id: &str) -> bool {
    server.fake.spec(&sandbox_id(id)).unwrap().memory
}

#[tokio::test]
async fn a_snapshot_has_memory_and_so_do_sandboxes_made_from_it() {
    let server = able().await;
    let id = server.id(json!({})).await;
    let taken = snapshot(&server, &id, json!({})).await;
    assert_eq!(taken["keptMemory"], json!({ "place": "disk", "bytes": 7 << 20 }));
    assert_eq!(server.get("/snapshots").await.json()[0]["keptMemory"], taken["keptMemory"]);
    assert_eq!(
        events(&server, &id, "snapshot_mode").await,
        (vec!["create".into(), "checkpoint".into()], "full".into())
    );
    assert!(logs(&server, &id).await.contains("snapshot taken, with 7 MiB of memory"));
    let server = server.restart().await;
    for _ in 0..2 {
        let copy = from(&server, &taken).await;
        assert!(has_memory(&server, &copy));
        // What a copy is made from has memory; its own snapshot may have none.
        let second = snapshot(&server, &copy, json!({ "memory": false })).await;
        assert_eq!(second.get("keptMemory"), None);
        assert!(!has_memory(&server, &from(&server, &second).await));
    }
}

#[tokio::test]
async fn only_files_are_kept_where_memory_is_not_wanted() {
    let server = able().await;
    let id = server.id(json!({})).await;
    let taken = snapshot(&server, &id, json!({ "memory": false })).await;
    assert_eq!(taken.get("keptMemory"), None);
    assert_eq!(events(&server, &id, "snapshot_mode").await.1, "filesystem");
    assert!(!has_memory(&server, &from(&server, &taken).await));
}

#[tokio::test]
async fn memory_that_cannot_be_stored_makes_a_snapshot_of_files_that_says_why() {
    let server = able().await;
    let id = server.id(json!({})).await;
    server.fake.refuse_parking("process 12 is stopped");
    let taken = snapshot(&server, &id, json!({})).await;
    assert_eq!(taken.get("keptMemory"), None);
    assert!(logs(&server, &id).await.contains("memory cannot be stored on disk: process 12 is stopped"));
    assert!(!has_memory(&server, &from(&server, &taken).await));
}

#[tokio::test]
async fn memory_that_cannot_be_restored_makes_a_sandbox_of_files_that_says_why() {
    let server = able().await;
    let id = server.id(json!({})).await;
    server.fake.write(&sandbox_id(&id), "kept");
    let taken = snapshot(&server, &id, json!({})).await;
    server.fake.refuse_parking("it was stored with another kernel");
    let copy = from(&server, &taken).await;
    assert!(!has_memory(&server, &copy));
    assert_eq!(server.fake.files(&sandbox_id(&copy)).unwrap(), ["kept"]);
    assert!(logs(&server, &copy).await.contains("memory of the snapshot cannot be restored"));
    assert_eq!(
        events(&server, &copy, "start_mode").await,
        (vec!["create".into(), "update".into()], "filesystem".into())
    );
}

#[tokio::test]
async fn every_fork_has_memory() {
    let server = able().await;
    let id = server.id(json!({})).await;
    let forks = server.call("POST", &format!("/sandboxes/{id}/fork"), json!({ "count": 3 })).await.json();
    let forks = forks.as_array().unwrap();
    assert_eq!(forks.len(), 3);
    for fork in forks {
        assert!(has_memory(&server, fork["sandbox"]["sandboxID"].as_str().unwrap()), "{fork}");
    }
    assert_eq!(server.get("/snapshots").await.json(), json!([]));
}

#[tokio::test]
async fn memory_counts_towards_the_disk_of_snapshots() {
    let server = able().await;
    let id = server.id(json!({})).await;
    let team = server.app.store().default_team().await.unwrap().id;
    let limit = json!({ "limits": { "snapshotsMb": 7 } }).to_string();
    let path = format!("/admin/teams/{team}");
    let set = server.send("PATCH", &path, &[("x-admin-token", "admin")], limit).await;
    assert_eq!(set.code(), 200, "{}", set.text);
    snapshot(&server, &id, json!({})).await;
    let refused = server.call("POST", &format!("/sandboxes/{id}/snapshots"), json!({})).await;
    assert_eq!(refused.code(), 400, "{}", refused.text);
    let refused = server.call("POST", &format!("/sandboxes/{id}/fork"), json!({})).await;
    assert_eq!(refused.code(), 400, "{}", refused.text);
}
