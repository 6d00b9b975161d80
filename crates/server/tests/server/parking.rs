//! Memory of paused sandboxes that goes to disk and comes back.

use std::time::Duration;

use sandcove_isolate::fake::{Fake, Operation};
use sandcove_wire::boot::AGENT_PORT;
use serde_json::{Value, json};

use crate::proxy::echo;
use crate::support::{Server, WAIT, sandbox_id, wait_until};

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

async fn limit(server: &Server, limits: Value) {
    let path = format!("/admin/teams/{}", server.app.store().default_team().await.unwrap().id);
    let limits = json!({ "limits": limits }).to_string();
    let set = server.send("PATCH", &path, &[("x-admin-token", "admin")], limits).await;
    assert_eq!(set.code(), 200, "{}", set.text);
}

/// Sandboxes that are paused.
async fn paused<const N: usize>(server: &Server) -> [String; N] {
    let mut ids = [const { String::new() }; N];
    for id in &mut ids {
        *id = server.id(json!({})).await;
        assert_eq!(post(server, id, "pause", Value::Null).await, 204);
    }
    ids
}

async fn kill(server: &Server, id: &str) {
    assert_eq!(server.call("DELETE", &format!("/sandboxes/{id}"), Value::Null).await.code(), 204);
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
    limit(&server, json!({ "pausedInMemory": 1 })).await;
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

// The memory of each sandbox has 7 MiB on disk.

#[tokio::test]
async fn a_team_parks_no_more_than_it_may_have_on_disk() {
    let server = able().await;
    limit(&server, json!({ "pausedDiskMb": 13 })).await;
    let [first, second] = paused(&server).await;
    assert_eq!(post(&server, &first, "park", Value::Null).await, 204);
    let refused = server.call("POST", &format!("/sandboxes/{second}/park"), Value::Null).await;
    assert_eq!(refused.code(), 409);
    let expected = "cannot be parked: memory of the team's paused sandboxes may take 13 MiB of disk (`pausedDiskMb`), and the \
                    sandbox needs more than the 6 MiB that are left";
    assert!(refused.text.contains(expected), "{}", refused.text);
    assert!(logs(&server, &second).await.contains("may take 13 MiB of disk"));
    assert!(server.fake.is_frozen(&sandbox_id(&second)), "it keeps its memory");
    assert!(!server.fake.has_memory(&sandbox_id(&second)));
    // What is stored counts after a restart too.
    let server = server.restart().await;
    assert_eq!(post(&server, &second, "park", Value::Null).await, 409);
    // A lower limit leaves what is stored.
    limit(&server, json!({ "pausedDiskMb": 0 })).await;
    assert_eq!(place(&server, &first).await, "disk");
    limit(&server, json!({ "pausedDiskMb": 7 })).await;
    assert_eq!(post(&server, &second, "park", Value::Null).await, 409);
    // A resume frees what it had, and so does a kill.
    assert_eq!(post(&server, &first, "resume", Value::Null).await, 201);
    assert_eq!(post(&server, &second, "park", Value::Null).await, 204);
    assert_eq!(post(&server, &first, "pause", Value::Null).await, 204);
    assert_eq!(post(&server, &first, "park", Value::Null).await, 409);
    kill(&server, &second).await;
    assert_eq!(post(&server, &first, "park", Value::Null).await, 204);
    // So does memory that is lost.
    server.fake.lose_memory(&sandbox_id(&first));
    assert_eq!(post(&server, &first, "connect", json!({ "timeout": 60 })).await, 201);
    let [third] = paused(&server).await;
    assert_eq!(post(&server, &third, "park", Value::Null).await, 204);
}

#[tokio::test]
async fn the_limit_on_disk_is_that_of_each_team() {
    let server = able().await;
    limit(&server, json!({ "pausedDiskMb": 0 })).await;
    let key = server.other_team().await;
    let create = json!({ "templateID": "base", "timeout": 600 });
    let other = server.call_as(key, "POST", "/sandboxes", create).await.json();
    let other = other["sandboxID"].as_str().unwrap();
    for action in ["pause", "park"] {
        let done = server.call_as(key, "POST", &format!("/sandboxes/{other}/{action}"), Value::Null).await;
        assert_eq!(done.code(), 204, "{}", done.text);
    }
    let [own] = paused(&server).await;
    assert_eq!(post(&server, &own, "park", Value::Null).await, 409);
}

#[tokio::test]
async fn sandboxes_that_are_parked_at_the_same_time_share_the_limit_on_disk() {
    let server = able().await;
    limit(&server, json!({ "pausedDiskMb": 20 })).await;
    let ids: [String; 4] = paused(&server).await;
    let mut codes =
        futures_util::future::join_all(ids.iter().map(|id| post(&server, id, "park", Value::Null))).await;
    codes.sort_unstable();
    assert_eq!(codes, [204, 204, 409, 409]);
    let stored = ids.iter().filter(|id| server.fake.has_memory(&sandbox_id(id)));
    assert_eq!(stored.count(), 2);
}

#[tokio::test]
async fn a_client_does_not_wait_for_other_sandboxes_that_are_parked() {
    let server = able().await;
    limit(&server, json!({ "pausedDiskMb": 20 })).await;
    let [first, second] = paused(&server).await;
    let hold = server.fake.hold(Operation::Park);
    let others = async {
        hold.reached().await;
        let wants = async {
            server.wait_for_commands(&second, 1).await;
            assert_eq!(post(&server, &second, "connect", json!({ "timeout": 60 })).await, 201);
        };
        let (parked, ()) = tokio::join!(post(&server, &second, "park", Value::Null), wants);
        drop(hold);
        parked
    };
    assert_eq!(tokio::join!(post(&server, &first, "park", Value::Null), others), (204, 409));
}

#[tokio::test]
async fn a_sandbox_goes_to_disk_when_there_is_room_again() {
    let server = eager().await;
    limit(&server, json!({ "pausedDiskMb": 10 })).await;
    let [first] = paused(&server).await;
    wait_for_place(&server, &first, "disk").await;
    let ids: [String; 3] = paused(&server).await;
    for id in &ids {
        let refused = async {
            while !logs(&server, id).await.contains("may take 10 MiB of disk") {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(WAIT, refused).await.unwrap();
        assert_eq!(place(&server, id).await, "host");
    }
    let on_disk = || ids.iter().filter(|id| server.fake.has_memory(&sandbox_id(id))).count();
    kill(&server, &first).await;
    wait_until("one has room", || on_disk() == 1).await;
    limit(&server, json!({ "pausedDiskMb": 20 })).await;
    wait_until("another one has room", || on_disk() == 2).await;
    limit(&server, json!({ "pausedDiskMb": 21 })).await;
    wait_until("all have room", || on_disk() == 3).await;
}

#[tokio::test]
async fn memory_that_has_no_room_on_disk_either_is_given_up() {
    let server = able().await;
    limit(&server, json!({ "pausedInMemory": 1, "pausedDiskMb": 6 })).await;
    let ids: [String; 2] = paused(&server).await;
    let mode = server.get(&format!("/sandboxes/{}", ids[0])).await.json()["pauseMode"].clone();
    assert_eq!((mode, place(&server, &ids[1]).await), (json!("filesystem"), json!("host")));
    limit(&server, json!({ "pausedInMemory": 0 })).await;
    let [last] = paused(&server).await;
    server.wait_for_pause_mode(&last, "filesystem").await;
}
