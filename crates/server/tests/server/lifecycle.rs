use std::time::Duration;

use futures_util::future::join_all;
use sandcove_isolate::fake::Operation;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{KEY, Server, sandbox_id};

async fn end_at(server: &Server, id: &str) -> jiff::Timestamp {
    server.get(&format!("/sandboxes/{id}")).await.json()["endAt"].as_str().unwrap().parse().unwrap()
}

async fn post(server: &Server, id: &str, verb: &str, body: Value) -> u16 {
    server.call("POST", &format!("/sandboxes/{id}/{verb}"), body).await.code()
}

#[tokio::test]
async fn killing_is_final() {
    let server = Server::start().await;
    let id = server.id(json!({})).await;
    let path = format!("/sandboxes/{id}");
    assert_eq!(server.call("DELETE", &path, Value::Null).await.code(), 204);
    assert_eq!(server.call("DELETE", &path, Value::Null).await.code(), 404);
    assert_eq!(server.get(&path).await.code(), 404);
    assert_eq!(server.fake.ids(), []);
    for verb in ["pause", "resume", "refreshes"] {
        assert_eq!(post(&server, &id, verb, Value::Null).await, 404, "{verb}");
    }
    assert_eq!(post(&server, &id, "connect", json!({ "timeout": 1 })).await, 404);
    assert_eq!(post(&server, &id, "timeout", json!({ "timeout": 1 })).await, 404);
    assert_eq!(server.call("DELETE", "/sandboxes/a-b-c", Value::Null).await.code(), 400);
}

#[tokio::test]
async fn paused_sandboxes_come_back_as_they_were() {
    let server = Server::start().await;
    let made = server.create(json!({ "secure": true, "metadata": { "a": "b" }, "autoPause": true })).await;
    let id = made["sandboxID"].as_str().unwrap();
    assert_eq!(post(&server, id, "pause", json!({})).await, 204);
    assert!(server.fake.is_frozen(&sandbox_id(id)));
    let detail = server.get(&format!("/sandboxes/{id}")).await.json();
    assert_eq!(detail["state"], "paused");
    assert_eq!(detail["pauseMode"], "full");
    assert_eq!(detail["lifecycle"]["onTimeout"], "pause");
    // Clients 2.0 to 2.5 resume only when this fails.
    assert_eq!(post(&server, id, "timeout", json!({ "timeout": 60 })).await, 404);
    assert_eq!(post(&server, id, "pause", Value::Null).await, 409);
    assert_eq!(server.call("PUT", &format!("/sandboxes/{id}/network"), json!({})).await.code(), 404);

    let resumed =
        server.call("POST", &format!("/sandboxes/{id}-6532622b/resume"), json!({ "timeout": 100 })).await;
    assert_eq!(resumed.code(), 201);
    assert_eq!(resumed.json(), made);
    assert!(!server.fake.is_frozen(&sandbox_id(id)));
    assert_eq!(post(&server, id, "resume", Value::Null).await, 409);
    let detail = server.get(&format!("/sandboxes/{id}")).await.json();
    assert_eq!(detail["lifecycle"]["onTimeout"], "pause");

    assert_eq!(post(&server, id, "pause", Value::Null).await, 204);
    assert_eq!(server.call("DELETE", &format!("/sandboxes/{id}"), Value::Null).await.code(), 204);
    assert_eq!(post(&server, id, "resume", Value::Null).await, 404);
}

#[tokio::test]
async fn requests_at_once_share_one_change() {
    let server = Server::start().await;
    let id = server.id(json!({})).await;
    let hold = server.fake.hold(Operation::Pause);
    let (pauses, ()) =
        tokio::join!(join_all((0..5).map(|_| post(&server, &id, "pause", Value::Null))), async {
            server.wait_for_commands(&id, 5).await;
            drop(hold);
        });
    assert_eq!(pauses, [204; 5]);
    assert_eq!(server.state(&id).await.as_deref(), Some("paused"));
    let hold = server.fake.hold(Operation::Resume);
    let resumes = join_all((0..5).map(|_| async {
        let code = post(&server, &id, "resume", Value::Null).await;
        (code, server.state(&id).await)
    }));
    let (resumes, ()) = tokio::join!(resumes, async {
        server.wait_for_commands(&id, 5).await;
        drop(hold);
    });
    assert_eq!(resumes, vec![(201, Some("running".to_owned())); 5]);
    assert_eq!(post(&server, &id, "pause", Value::Null).await, 204);
    let connects = join_all((0..5).map(|_| async {
        let code = post(&server, &id, "connect", json!({ "timeout": 60 })).await;
        (code, server.state(&id).await)
    }))
    .await;
    for (code, state) in connects {
        assert!(code == 200 || code == 201);
        assert_eq!(state.as_deref(), Some("running"));
    }
}

/// Asks for a pause on an open connection, and returns the status.
async fn pause_on(connection: &mut TcpStream, id: &str) -> u16 {
    let request = format!(
        "POST /sandboxes/{id}/pause HTTP/1.1\r\nHost: api\r\nX-API-Key: {KEY}\r\nContent-Length: 0\r\n\r\n"
    );
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(connection.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap().split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_client_that_connected_before_the_answer_shares_it() {
    let server = Server::start().await;
    let id = server.id(json!({})).await;
    let mut second = TcpStream::connect(server.address).await.unwrap();
    let mut first = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(pause_on(&mut first, &id).await, 204);
    assert_eq!(pause_on(&mut second, &id).await, 204);
    let mut third = TcpStream::connect(server.address).await.unwrap();
    for connection in [&mut first, &mut second, &mut third] {
        assert_eq!(pause_on(connection, &id).await, 409);
    }
}

#[tokio::test]
async fn a_pause_may_ask_for_a_healthy_agent() {
    let server = Server::start().await;
    let id = server.id(json!({})).await;
    let strict = json!({ "requireHealthyGuest": true });
    let refused = server.call("POST", &format!("/sandboxes/{id}/pause"), strict.clone()).await;
    assert_eq!(refused.code(), 503);
    // Clients read that code as one of a resume.
    assert_eq!(refused.json().get("error_code"), None);
    assert_eq!(server.state(&id).await.as_deref(), Some("running"));

    let agent =
        axum::Router::new().route("/health", axum::routing::get(|| async { http::StatusCode::NO_CONTENT }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    server.fake.listen(49983, listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, agent).await.unwrap() });
    assert_eq!(post(&server, &id, "pause", strict.clone()).await, 204);
    assert_eq!(post(&server, &id, "pause", strict).await, 409);
}

#[tokio::test]
async fn memory_with_an_agent_that_did_not_answer_is_not_resumed() {
    const MARK: &str = "envdUnresponsiveAtPause";
    let server = Server::start().await;
    let id = server.id(json!({})).await;
    // Connections are accepted, and nobody answers.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    server.fake.listen(49983, silent.local_addr().unwrap());
    // One that was heard within 5 s is not checked.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let files_only = json!({ "memory": false });
    assert_eq!(post(&server, &id, "pause", files_only.clone()).await, 503);
    assert_eq!(server.state(&id).await.as_deref(), Some("running"));
    assert_eq!(post(&server, &id, "pause", json!({})).await, 204);

    let place = format!("/sandboxes/{id}");
    assert_eq!(server.get(&place).await.json()[MARK], true);
    assert_eq!(server.get("/v2/sandboxes").await.json()[0][MARK], true);
    for (call, body) in [("resume", json!({})), ("connect", json!({ "timeout": 60 }))] {
        let refused = server.call("POST", &format!("{place}/{call}"), body).await;
        assert_eq!(refused.code(), 409);
        assert_eq!(refused.json()["error_code"], "sandbox_snapshot_guest_agent_unresponsive");
    }
    assert_eq!(post(&server, &id, "resume", files_only).await, 201);
    assert_eq!(server.get(&place).await.json().get(MARK), None);
}

#[tokio::test]
async fn a_change_under_way_is_waited_for_or_told() {
    let server = Server::start().await;
    let id = server.id(json!({})).await;
    let hold = server.fake.hold(Operation::Pause);
    let (pause, (state, timeout, resume)) = tokio::join!(post(&server, &id, "pause", Value::Null), async {
        hold.reached().await;
        let state = server.state(&id).await;
        let timeout = post(&server, &id, "timeout", json!({ "timeout": 9 })).await;
        let mut resume = std::pin::pin!(post(&server, &id, "resume", Value::Null));
        let early = tokio::time::timeout(Duration::from_millis(50), &mut resume).await;
        assert!(early.is_err(), "the pause was not waited for");
        tokio::select! {
            _ = &mut resume => panic!("the pause was not waited for"),
            () = server.wait_for_commands(&id, 2) => {}
        }
        drop(hold);
        (state, timeout, resume.await)
    });
    assert_eq!((pause, state.as_deref(), timeout, resume), (204, Some("paused"), 409, 201));
    let hold = server.fake.hold(Operation::Destroy);
    let path = format!("/sandboxes/{id}");
    let (first, (second, seen)) = tokio::join!(server.call("DELETE", &path, Value::Null), async {
        hold.reached().await;
        let seen = (server.state(&id).await, post(&server, &id, "connect", json!({ "timeout": 9 })).await);
        let mut second = std::pin::pin!(server.call("DELETE", &path, Value::Null));
        let early = tokio::time::timeout(Duration::from_millis(50), &mut second).await;
        assert!(early.is_err(), "the end was not waited for");
        tokio::select! {
            _ = &mut second => panic!("the end was not waited for"),
            () = server.wait_for_commands(&id, 2) => {}
        }
        drop(hold);
        (second.await, seen)
    });
    assert_eq!((first.code(), second.code(), seen), (204, 204, (None, 409)));
}

#[tokio::test]
async fn connect_extends_and_never_shortens() {
    let server = Server::start().await;
    let id = server.id(json!({ "timeout": 120 })).await;
    let before = end_at(&server, &id).await;
    assert_eq!(post(&server, &id, "connect", json!({ "timeout": 10 })).await, 200);
    assert_eq!(end_at(&server, &id).await, before);
    assert_eq!(post(&server, &id, "connect", json!({ "timeout": 500 })).await, 200);
    assert!(end_at(&server, &id).await > before);
    let v2 = server.call("POST", &format!("/v2/sandboxes/{id}/connect"), Value::Null).await;
    assert_eq!(v2.code(), 200);
    assert_eq!(post(&server, &id, "connect", json!({})).await, 400);
    assert_eq!(post(&server, &id, "connect", json!({ "timeout": -1 })).await, 400);
    // Judged before the sandbox is looked for.
    assert_eq!(post(&server, "inothere", "connect", json!({ "timeout": 3 * 86400 })).await, 400);
    assert_eq!(post(&server, "inothere", "connect", json!({ "timeout": 3 })).await, 404);
    tokio::time::sleep(Duration::from_millis(5)).await;
    let reply = server.call("POST", &format!("/sandboxes/{id}/connect"), json!({ "timeout": 86400 })).await;
    assert_eq!((reply.code(), reply.message().as_str()), (400, "Max instance length exceeded"));
}

#[tokio::test]
async fn timeouts_move_the_end_both_ways_and_refreshes_only_later() {
    let server = Server::start().await;
    let id = server.id(json!({ "timeout": 60 })).await;
    let first = end_at(&server, &id).await;
    assert_eq!(post(&server, &id, "timeout", json!({ "timeout": 120 })).await, 204);
    let second = end_at(&server, &id).await;
    assert!(second > first);
    assert_eq!(post(&server, &id, "refreshes", json!({ "duration": 30 })).await, 204);
    assert_eq!(end_at(&server, &id).await, second);
    // Sooner than the refresh below extends to, and still far enough for the calls until then.
    assert_eq!(post(&server, &id, "timeout", json!({ "timeout": 14 })).await, 204);
    let third = end_at(&server, &id).await;
    assert!(third < first);
    assert_eq!(post(&server, &id, "refreshes", Value::Null).await, 204);
    assert!(end_at(&server, &id).await > third);
    assert_eq!(post(&server, &id, "refreshes", json!({ "duration": 3601 })).await, 400);
    assert_eq!(post(&server, &id, "timeout", json!({})).await, 400);
    assert_eq!(post(&server, &id, "timeout", json!({ "timeout": -5 })).await, 400);
    // Beyond the longest session it is capped, not refused.
    assert_eq!(post(&server, &id, "timeout", json!({ "timeout": 999_999_999 })).await, 204);
    let detail = server.get(&format!("/sandboxes/{id}")).await.json();
    let started: jiff::Timestamp = detail["startedAt"].as_str().unwrap().parse().unwrap();
    assert_eq!(end_at(&server, &id).await.duration_since(started).as_secs(), 24 * 3600);
}

#[tokio::test]
async fn time_up_means_killed_or_paused() {
    let server = Server::start().await;
    let killed = server.id(json!({})).await;
    let paused = server.id(json!({ "autoPause": true })).await;
    for id in [&killed, &paused] {
        assert_eq!(post(&server, id, "timeout", json!({ "timeout": 0 })).await, 204);
    }
    server.wait_for_state(&killed, None).await;
    assert_eq!(post(&server, &killed, "resume", Value::Null).await, 404);
    server.wait_for_state(&paused, Some("paused")).await;
    // The policy outlives the resume, and a resume may change it.
    assert_eq!(post(&server, &paused, "resume", Value::Null).await, 201);
    assert_eq!(post(&server, &paused, "timeout", json!({ "timeout": 0 })).await, 204);
    server.wait_for_state(&paused, Some("paused")).await;
    assert_eq!(post(&server, &paused, "resume", json!({ "autoPause": false })).await, 201);
    assert_eq!(post(&server, &paused, "timeout", json!({ "timeout": 0 })).await, 204);
    server.wait_for_state(&paused, None).await;
    crate::support::wait_until("nothing is left", || server.fake.ids().is_empty()).await;
}

#[tokio::test]
async fn a_short_life_ends_by_itself() {
    let server = Server::start().await;
    let begun = jiff::Timestamp::now();
    let id = server.id(json!({ "timeout": 1 })).await;
    server.wait_for_state(&id, None).await;
    // It is not looked at while it runs, which on a busy machine comes too late: the events say how long it lived.
    server.wait_for(&format!("/events/sandboxes/{id}"), "/0/eventLabel", "kill".into()).await;
    let events = server.get(&format!("/events/sandboxes/{id}?orderAsc=true")).await.json();
    let labels: Vec<_> = events.as_array().unwrap().iter().map(|event| &event["eventLabel"]).collect();
    assert_eq!(labels, ["create", "kill"]);
    assert_eq!(events[1]["eventData"]["kill_reason"], "timeout");
    let killed: jiff::Timestamp = events[1]["timestamp"].as_str().unwrap().parse().unwrap();
    let lived = killed.duration_since(begun).as_secs_f64();
    assert!(lived >= 0.999, "it lived {lived} s");
}

#[tokio::test]
async fn a_crash_ends_what_runs_and_leaves_what_was_paused_its_files() {
    let server = Server::start().await;
    let running = server.id(json!({})).await;
    let paused = server.id(json!({})).await;
    server.fake.write(&sandbox_id(&paused), "kept");
    assert_eq!(post(&server, &paused, "pause", Value::Null).await, 204);
    assert_eq!(pause_mode(&server, &paused).await, "full");
    for id in [&running, &paused] {
        server.fake.crash(&sandbox_id(id));
    }
    server.wait_for_state(&running, None).await;
    crate::support::wait_until("nothing is left", || server.fake.ids().is_empty()).await;
    server.wait_for_pause_mode(&paused, "filesystem").await;
    assert_eq!(post(&server, &paused, "resume", Value::Null).await, 201);
    assert_eq!(server.fake.files(&sandbox_id(&paused)).unwrap(), ["kept"]);
}

#[tokio::test]
async fn a_failed_change_leaves_the_state_before() {
    let server = Server::start().await;
    let id = server.id(json!({})).await;
    server.fake.fail_next(Operation::Pause, 1);
    assert_eq!(post(&server, &id, "pause", Value::Null).await, 500);
    assert_eq!(server.state(&id).await.as_deref(), Some("running"));
    assert_eq!(post(&server, &id, "pause", Value::Null).await, 204);
    server.fake.fail_next(Operation::Resume, 1);
    assert_eq!(post(&server, &id, "resume", Value::Null).await, 500);
    assert_eq!(server.state(&id).await.as_deref(), Some("paused"));
    assert_eq!(post(&server, &id, "resume", Value::Null).await, 201);
}

async fn pause_mode(server: &Server, id: &str) -> Value {
    server.get(&format!("/sandboxes/{id}")).await.json()["pauseMode"].clone()
}

#[tokio::test]
async fn a_pause_may_keep_only_files() {
    let server = Server::start().await;
    let made = server
        .create(json!({
            "secure": true, "metadata": { "a": "b" }, "envVars": { "A": "1" },
            "network": { "denyOut": ["1.1.1.1"], "allowPublicTraffic": false },
        }))
        .await;
    let id = made["sandboxID"].as_str().unwrap();
    let first = server.fake.spec(&sandbox_id(id)).unwrap();
    server.fake.write(&sandbox_id(id), "kept");
    assert_eq!(post(&server, id, "pause", json!({ "memory": false })).await, 204);
    assert_eq!(server.fake.ids(), [], "no process is left");
    assert_eq!(pause_mode(&server, id).await, "filesystem");
    assert_eq!(post(&server, id, "pause", json!({ "memory": false })).await, 409);
    assert_eq!(post(&server, id, "timeout", json!({ "timeout": 60 })).await, 404);

    let resumed = server.call("POST", &format!("/sandboxes/{id}/connect"), json!({ "timeout": 100 })).await;
    assert_eq!((resumed.code(), resumed.json()), (201, made.clone()), "tokens and all");
    assert_eq!(server.fake.files(&sandbox_id(id)).unwrap(), ["kept"]);
    let second = server.fake.spec(&sandbox_id(id)).unwrap();
    assert_eq!(
        (&second.blueprint.layers, &second.blueprint.limits, &second.network),
        (&first.blueprint.layers, &first.blueprint.limits, &first.network)
    );
    let (first, second) = (&first.settings, &second.settings);
    assert_eq!((&second.env_vars, &second.default_user), (&first.env_vars, &first.default_user));
    assert_eq!(pause_mode(&server, id).await, Value::Null);

    assert_eq!(post(&server, id, "pause", json!({ "memory": false })).await, 204);
    assert_eq!(server.call("DELETE", &format!("/sandboxes/{id}"), Value::Null).await.code(), 204);
    assert_eq!(server.fake.files(&sandbox_id(id)), None, "its files go with it");
}

#[tokio::test]
async fn a_resume_may_leave_memory_behind() {
    let server = Server::start().await;
    let id = server.id(json!({})).await;
    server.fake.write(&sandbox_id(&id), "kept");
    assert_eq!(post(&server, &id, "pause", Value::Null).await, 204);
    let slot = server.fake.slot(&sandbox_id(&id));
    assert_eq!(post(&server, &id, "resume", json!({ "memory": false })).await, 201);
    assert_ne!(server.fake.slot(&sandbox_id(&id)), slot, "other processes");
    assert_eq!(server.fake.files(&sandbox_id(&id)).unwrap(), ["kept"]);
    // Of a running one nothing is given up.
    let slot = server.fake.slot(&sandbox_id(&id));
    assert_eq!(post(&server, &id, "connect", json!({ "timeout": 5, "memory": false })).await, 200);
    assert_eq!(server.fake.slot(&sandbox_id(&id)), slot);
}

#[tokio::test]
async fn time_up_may_keep_only_files_again_and_again() {
    let server = Server::start().await;
    for bad in [
        json!({ "autoPauseMemory": false }),
        json!({ "autoPause": true, "autoPauseMemory": false, "autoResume": { "enabled": true } }),
    ] {
        let mut body = json!({ "templateID": "base" });
        body.as_object_mut().unwrap().extend(bad.as_object().unwrap().clone());
        assert_eq!(server.call("POST", "/sandboxes", body).await.code(), 400, "{bad}");
    }
    let id = server.id(json!({ "autoPause": true, "autoPauseMemory": false })).await;
    for resume in [json!(null), json!({ "autoPause": true })] {
        assert_eq!(post(&server, &id, "timeout", json!({ "timeout": 0 })).await, 204);
        server.wait_for_state(&id, Some("paused")).await;
        crate::support::wait_until("nothing runs", || server.fake.ids().is_empty()).await;
        assert_eq!(post(&server, &id, "resume", resume).await, 201);
    }
    let detail = server.get(&format!("/sandboxes/{id}")).await.json();
    assert_eq!(detail["lifecycle"]["onTimeout"], "pause");
}

#[tokio::test]
async fn what_cannot_be_ended_or_started_is_told_and_can_be_tried_again() {
    let server = Server::start().await;
    let id = server.id(json!({})).await;
    server.fake.write(&sandbox_id(&id), "kept");
    server.fake.fail_next(Operation::ShutDown, 1);
    assert_eq!(post(&server, &id, "pause", json!({ "memory": false })).await, 500);
    assert_eq!(server.state(&id).await.as_deref(), Some("paused"));
    server.fake.fail_next(Operation::Create, 1);
    assert_eq!(post(&server, &id, "resume", Value::Null).await, 500);
    assert_eq!(server.state(&id).await.as_deref(), Some("paused"));
    assert_eq!(post(&server, &id, "resume", Value::Null).await, 201);
    assert_eq!(server.fake.files(&sandbox_id(&id)).unwrap(), ["kept"]);
}

#[tokio::test]
async fn network_updates_replace_everything() {
    let server = Server::start().await;
    let id = server
        .id(json!({ "network": { "denyOut": ["1.1.1.1"], "maskRequestHost": "a.b" }, "allow_internet_access": false }))
        .await;
    let policy = || server.fake.network(&sandbox_id(&id)).unwrap();
    assert!(policy().deny_all);
    let put = async |body: Value| server.call("PUT", &format!("/sandboxes/{id}/network"), body).await.code();
    assert_eq!(put(json!({ "denyOut": ["0.0.0.0/0"], "allowOut": ["8.8.8.8", "example.com"] })).await, 204);
    assert!(policy().deny_all);
    assert_eq!(policy().allow_out, ["8.8.8.8"]);
    let network = server.get(&format!("/sandboxes/{id}")).await.json()["network"].clone();
    assert_eq!(network["allowOut"], json!(["8.8.8.8", "example.com"]));
    assert_eq!(network["maskRequestHost"], "a.b");
    for bad in [
        json!({ "denyOut": ["example.com"] }),
        json!({ "allowOut": ["*.example.com"] }),
        json!({ "denyOut": [1] }),
    ] {
        assert_eq!(put(bad.clone()).await, 400, "{bad}");
    }
    assert_eq!(put(json!({ "allow_internet_access": false })).await, 204);
    assert!(policy().deny_all && policy().allow_out.is_empty());
    assert_eq!(put(Value::Null).await, 204);
    assert_eq!(policy(), sandcove_isolate::NetworkPolicy::default());
    assert_eq!(server.call("PUT", "/sandboxes/inothere/network", json!({})).await.code(), 404);
}
