use std::time::Duration;

use futures_util::future::join_all;
use sandcove_isolate::Files;
use sandcove_isolate::fake::Operation;
use serde_json::{Value, json};

use crate::support::{BASE, Server, sandbox_id};

async fn snapshot(server: &Server, id: &str, body: Value) -> Value {
    let reply = server.call("POST", &format!("/sandboxes/{id}/snapshots"), body).await;
    assert_eq!(reply.code(), 201, "{}", reply.text);
    reply.json()
}

async fn listed(server: &Server, query: &str) -> Vec<String> {
    let reply = server.get(&format!("/snapshots{query}")).await;
    assert_eq!(reply.code(), 200, "{}", reply.text);
    let rows = reply.json();
    rows.as_array().unwrap().iter().map(|row| row["snapshotID"].as_str().unwrap().to_owned()).collect()
}

async fn delete(server: &Server, reference: &str) -> u16 {
    let encoded = reference.replace('/', "%2F").replace(':', "%3A");
    server.call("DELETE", &format!("/templates/{encoded}"), Value::Null).await.code()
}

#[tokio::test]
async fn snapshots_without_a_name_have_an_id_each() {
    let server = Server::start().await;
    let id = server.id(json!({ "metadata": { "a": "b" }, "envVars": { "A": "1" } })).await;
    server.fake.write(&sandbox_id(&id), "first");
    let first = snapshot(&server, &id, json!({})).await;
    server.fake.write(&sandbox_id(&id), "second");
    let second = snapshot(&server, &id, json!({ "memory": true })).await;
    assert_eq!(first["names"], json!([]));
    assert_ne!(first, second);
    assert_eq!(server.state(&id).await.as_deref(), Some("running"));
    let id_of = |snapshot: &Value| snapshot["snapshotID"].as_str().unwrap().to_owned();
    let (first, second) = (id_of(&first), id_of(&second));
    let (template, tag) = first.split_once(':').unwrap();
    assert_eq!((template.len(), tag), (20, "default"));

    assert_eq!(listed(&server, "").await, [second.clone(), first.clone()]);
    assert_eq!(listed(&server, &format!("?name={template}")).await, [first.as_str()]);
    for reference in [first.as_str(), template] {
        let made = server.create(json!({ "templateID": reference })).await;
        assert_eq!(made["templateID"], template);
        let made = sandbox_id(made["sandboxID"].as_str().unwrap());
        assert_eq!(server.fake.files(&made).unwrap(), ["first"]);
        let spec = server.fake.spec(&made).unwrap();
        assert_eq!(
            spec.blueprint.layers,
            server.fake.spec(&sandbox_id(&id)).unwrap().blueprint.layers,
            "none on top"
        );
        let env = spec.settings.env_vars.clone().unwrap();
        assert_eq!((env.get("FROM_TEMPLATE").map(String::as_str), env.get("A")), (Some("1"), None));
    }
    // It is no template to choose from.
    let templates = server.get("/templates").await.json();
    assert!(templates.as_array().unwrap().iter().all(|one| one["templateID"] != template));

    assert_eq!(delete(&server, &first).await, 204);
    assert_eq!(delete(&server, &first).await, 404);
    assert_eq!(listed(&server, "").await, [second]);
    assert_eq!(server.fake.snapshots().len(), 1);
    let gone = server.call("POST", "/sandboxes", json!({ "templateID": first })).await;
    assert_eq!(gone.code(), 404);
}

#[tokio::test]
async fn a_name_stands_for_its_newest_snapshot() {
    let server = Server::start().await;
    let slug = server.app.store().default_team().await.unwrap().slug;
    let id = server.id(json!({})).await;
    let first = snapshot(&server, &id, json!({ "name": "Mine" })).await;
    assert_eq!(
        first,
        json!({ "snapshotID": format!("{slug}/mine:default"), "names": [format!("{slug}/mine")] })
    );
    server.fake.write(&sandbox_id(&id), "written between");
    assert_eq!(snapshot(&server, &id, json!({ "name": format!("{slug}/mine") })).await, first);
    assert_eq!(server.fake.snapshots().len(), 1, "what nothing names any more is gone");
    let made = server.create(json!({ "templateID": "mine" })).await;
    let made_id = sandbox_id(made["sandboxID"].as_str().unwrap());
    assert_eq!(server.fake.files(&made_id).unwrap(), ["written between"]);
    assert_eq!(made["alias"], "mine");

    for tag in ["v1", "v2"] {
        let tagged = snapshot(&server, &id, json!({ "name": format!("mine:{tag}") })).await;
        assert_eq!(tagged["snapshotID"], format!("{slug}/mine:{tag}"));
        assert_eq!(tagged["names"], json!([format!("{slug}/mine:{tag}")]));
    }
    let newest = format!("{slug}/mine:v2");
    for query in ["", "?name=mine", &format!("?name={slug}/mine"), &format!("?sandboxID={id}")] {
        assert_eq!(listed(&server, query).await, [newest.as_str()], "{query}");
    }
    assert_eq!(listed(&server, "?name=mine:v1").await, [format!("{slug}/mine:v1")]);
    for query in ["?name=other", "?name=mine:v3", "?name=other/mine", "?sandboxID=iother"] {
        assert_eq!(listed(&server, query).await, [""; 0], "{query}");
    }
    assert_eq!(server.get("/snapshots?name=a%20b").await.code(), 400);
    assert_eq!(server.get("/snapshots?limit=0").await.code(), 400);

    assert_eq!(delete(&server, "mine:v2").await, 204);
    assert_eq!(listed(&server, "?name=mine").await, [format!("{slug}/mine:v1")]);
    assert_eq!(delete(&server, "mine").await, 204, "all the rest of it");
    assert_eq!(listed(&server, "").await, [""; 0]);
    assert_eq!(server.fake.snapshots(), [""; 0]);
    assert_eq!(delete(&server, "mine").await, 404);
    // Those made from it live on.
    assert_eq!(server.state(made_id.as_str()).await.as_deref(), Some("running"));
}

#[tokio::test]
async fn names_outside_the_rules_and_sandboxes_that_do_not_run_are_refused() {
    let server = Server::start().await;
    let id = server.id(json!({})).await;
    let path = format!("/sandboxes/{id}/snapshots");
    for bad in ["a b", "ä", "a:b:c", "somebody-else/name", "../x", "a/b/c"] {
        assert_eq!(server.call("POST", &path, json!({ "name": bad })).await.code(), 400, "{bad}");
    }
    assert_eq!(server.fake.snapshots(), [""; 0]);
    let key = server.other_team().await;
    assert_eq!(server.call_as(key, "POST", &path, json!({})).await.code(), 404);
    assert_eq!(server.call("POST", "/sandboxes/inothere/snapshots", json!({})).await.code(), 404);
    assert_eq!(server.call("POST", &path, Value::Null).await.code(), 400, "a body is required");

    let snapshot = snapshot(&server, &id, json!({})).await["snapshotID"].as_str().unwrap().to_owned();
    let foreign = server.call_as(key, "POST", "/sandboxes", json!({ "templateID": snapshot })).await;
    assert_eq!(foreign.code(), 404);
    let foreign = server.call_as(key, "DELETE", &format!("/templates/{snapshot}"), Value::Null).await;
    assert_eq!(foreign.code(), 404);
    assert_eq!(server.call_as(key, "GET", "/snapshots", Value::Null).await.json(), json!([]));
    assert_eq!(delete(&server, BASE).await, 403);

    assert_eq!(server.call("POST", &format!("/sandboxes/{id}/pause"), Value::Null).await.code(), 204);
    assert_eq!(server.call("POST", &path, json!({})).await.code(), 404);
    assert_eq!(server.call("DELETE", &format!("/sandboxes/{id}"), Value::Null).await.code(), 204);
    assert_eq!(server.call("POST", &path, json!({})).await.code(), 404);
    assert_eq!(listed(&server, &format!("?sandboxID={id}")).await, [snapshot], "it outlives its sandbox");
}

#[tokio::test]
async fn pages_do_not_shift() {
    let server = Server::start().await;
    let id = server.id(json!({})).await;
    for name in ["a", "b", "c"] {
        snapshot(&server, &id, json!({ "name": name })).await;
    }
    let mut seen = Vec::new();
    let mut query = "?limit=1".to_owned();
    loop {
        let page = server.get(&format!("/snapshots{query}")).await;
        seen.extend(
            page.json().as_array().unwrap().iter().map(|row| row["snapshotID"].as_str().unwrap().to_owned()),
        );
        let Some(token) = page.headers.get("x-next-token") else { break };
        query = format!("?limit=1&nextToken={}", token.to_str().unwrap());
        if seen.len() == 1 {
            snapshot(&server, &id, json!({ "name": "new" })).await;
        }
    }
    let names: Vec<_> = seen.iter().map(|id| id.split(['/', ':']).nth(1).unwrap()).collect();
    assert_eq!(names, ["c", "b", "a"]);
}

#[tokio::test]
async fn others_wait_for_a_snapshot_or_are_told() {
    for (verb, path, expected) in [
        ("POST", "/pause", 204),
        ("DELETE", "", 204),
        ("POST", "/resume", 409),
        ("POST", "/snapshots", 409),
        ("POST", "/fork", 201),
        ("POST", "/timeout", 204),
    ] {
        let server = Server::start().await;
        let id = server.id(json!({})).await;
        let hold = server.fake.hold(Operation::Snapshot);
        let (taken, (state, other)) = tokio::join!(snapshot(&server, &id, json!({})), async {
            hold.reached().await;
            let state = server.state(&id).await;
            let path = format!("/sandboxes/{id}{path}");
            let mut other = std::pin::pin!(server.call(verb, &path, json!({ "timeout": 20 })));
            let other = match expected {
                409 => other.await,
                // May be answered before the snapshot has ended or wait for that.
                _ => match tokio::time::timeout(Duration::from_millis(50), &mut other).await {
                    Ok(reply) => reply,
                    Err(_) => {
                        drop(hold);
                        other.await
                    }
                },
            };
            (state, other.code())
        });
        assert_eq!((state.as_deref(), other), (Some("running"), expected), "{path}");
        assert!(taken["snapshotID"].is_string());
    }
}

#[tokio::test]
async fn a_failed_snapshot_leaves_nothing_and_the_sandbox_running() {
    let server = Server::start().await;
    let id = server.id(json!({})).await;
    server.fake.fail_next(Operation::Snapshot, 1);
    let reply = server.call("POST", &format!("/sandboxes/{id}/snapshots"), json!({})).await;
    assert_eq!(reply.code(), 500);
    assert_eq!((server.fake.snapshots().len(), listed(&server, "").await.len()), (0, 0));
    assert_eq!(server.state(&id).await.as_deref(), Some("running"));
    snapshot(&server, &id, json!({})).await;
}

#[tokio::test]
async fn chains_have_no_length() {
    let server = Server::start().await;
    let mut id = server.id(json!({})).await;
    let layers = server.fake.spec(&sandbox_id(&id)).unwrap().blueprint.layers.clone();
    for generation in 0..20 {
        server.fake.write(&sandbox_id(&id), &format!("{generation:02}"));
        let taken = snapshot(&server, &id, json!({})).await;
        id = server.id(json!({ "templateID": taken["snapshotID"] })).await;
    }
    assert_eq!(server.fake.files(&sandbox_id(&id)).unwrap().len(), 20);
    assert_eq!(server.fake.spec(&sandbox_id(&id)).unwrap().blueprint.layers, layers);
}

#[tokio::test]
async fn forks_begin_with_the_files_and_live_on_their_own() {
    let server = Server::start().await;
    let source = server
        .create(json!({ "secure": true, "metadata": { "a": "b" }, "envVars": { "A": "1" }, "network": { "denyOut": ["1.1.1.1"] } }))
        .await;
    let id = source["sandboxID"].as_str().unwrap();
    server.fake.write(&sandbox_id(id), "kept");
    let before = server.get(&format!("/sandboxes/{id}")).await.json();
    let reply =
        server.call("POST", &format!("/sandboxes/{id}/fork"), json!({ "timeout": 100, "count": 3 })).await;
    assert_eq!(reply.code(), 201, "{}", reply.text);
    let forks = reply.json();
    let forks = forks.as_array().unwrap();
    assert_eq!(forks.len(), 3);
    let mut ids = std::collections::BTreeSet::from([id.to_owned()]);
    for fork in forks {
        assert_eq!(fork["error"], Value::Null);
        let fork = &fork["sandbox"];
        assert_eq!(fork["templateID"], source["templateID"]);
        assert_ne!(fork["envdAccessToken"], source["envdAccessToken"]);
        let fork_id = fork["sandboxID"].as_str().unwrap();
        assert!(ids.insert(fork_id.to_owned()));
        assert_eq!(server.fake.files(&sandbox_id(fork_id)).unwrap(), ["kept"]);
        let spec = server.fake.spec(&sandbox_id(fork_id)).unwrap();
        assert!(matches!(spec.files, Files::Snapshot(_)));
        assert_eq!(spec.settings.env_vars.as_ref().unwrap()["A"], "1");
        assert_eq!(spec.network.deny_out, ["1.1.1.1"]);
        let detail = server.get(&format!("/sandboxes/{fork_id}")).await.json();
        assert_eq!((&detail["metadata"], &detail["state"]), (&json!({ "a": "b" }), &json!("running")));
    }
    assert_eq!(server.get(&format!("/sandboxes/{id}")).await.json(), before, "the source is as it was");
    assert_eq!(server.fake.snapshots(), [""; 0], "what they were made from is gone");
    assert_eq!(listed(&server, "").await, [""; 0]);
    // A fork is a sandbox like any other.
    let fork = forks[0]["sandbox"]["sandboxID"].as_str().unwrap();
    assert_eq!(
        server.call("POST", &format!("/sandboxes/{fork}/pause"), json!({ "memory": false })).await.code(),
        204
    );
    assert_eq!(server.call("POST", &format!("/sandboxes/{fork}/resume"), Value::Null).await.code(), 201);
    assert_eq!(server.fake.files(&sandbox_id(fork)).unwrap(), ["kept"]);
}

#[tokio::test]
async fn forks_have_limits_and_each_its_own_error() {
    let server = Server::start().await;
    let id = server.id(json!({})).await;
    let path = format!("/sandboxes/{id}/fork");
    for bad in
        [json!({ "count": 0 }), json!({ "count": 101 }), json!({ "count": "x" }), json!({ "timeout": 0 })]
    {
        assert_eq!(server.call("POST", &path, bad.clone()).await.code(), 400, "{bad}");
    }
    assert_eq!(server.call("POST", &path, Value::Null).await.json().as_array().unwrap().len(), 1);

    server.fake.fail_next(Operation::Create, 1);
    let reply = server.call("POST", &path, json!({ "count": 2 })).await;
    assert_eq!(reply.code(), 201);
    let errors: Vec<_> =
        reply.json().as_array().unwrap().iter().map(|fork| fork["error"]["code"].clone()).collect();
    assert_eq!(errors.iter().filter(|code| **code == 500).count(), 1, "{errors:?}");

    let key = server.other_team().await;
    assert_eq!(server.call_as(key, "POST", &path, json!({})).await.code(), 404);
    let made = server
        .call_as(key, "POST", "/sandboxes", json!({ "templateID": "base", "timeout": 600 }))
        .await
        .json();
    let own = format!("/sandboxes/{}", made["sandboxID"].as_str().unwrap());
    let fork = async |count: u32| {
        server.call_as(key, "POST", &format!("{own}/fork"), json!({ "count": count })).await
    };
    assert_eq!(fork(2).await.code(), 400, "a team of two at once");
    let results = join_all([fork(1), fork(1)]).await;
    let codes: Vec<_> = results.iter().map(|reply| reply.json()[0]["error"]["code"].clone()).collect();
    assert!(codes.contains(&json!(429)) && codes.contains(&Value::Null), "{codes:?}");

    assert_eq!(server.call("POST", &format!("/sandboxes/{id}/pause"), Value::Null).await.code(), 204);
    assert_eq!(server.call("POST", &path, Value::Null).await.code(), 409);
    assert_eq!(server.call("DELETE", &format!("/sandboxes/{id}"), Value::Null).await.code(), 204);
    assert_eq!(server.call("POST", &path, Value::Null).await.code(), 404);
}
