//! The audit log: who did what, by HTTP.

use serde_json::{Value, json};

use crate::support::{KEY, Reply, Server};

const ADMIN: (&str, &str) = ("x-admin-token", "admin");

async fn admin(server: &Server, method: &str, path: &str, body: Value) -> Reply {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    server.send(method, path, &[ADMIN], text).await
}

async fn records(server: &Server, query: &str) -> Vec<Value> {
    let reply = admin(server, "GET", &format!("/admin/audit{query}"), Value::Null).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert!(!reply.text.contains(KEY));
    reply.json().as_array().unwrap().clone()
}

#[tokio::test]
async fn actions_are_recorded_with_who_did_them() {
    let server = Server::start().await;
    let sandbox = server.id(json!({})).await;
    let headers = [("x-api-key", KEY), ("x-request-id", "mine"), ("x-forwarded-for", "198.51.100.7")];
    assert_eq!(server.send("DELETE", &format!("/sandboxes/{sandbox}"), &headers, "").await.status, 204);
    assert_eq!(server.send("DELETE", &format!("/sandboxes/{sandbox}"), &headers[..1], "").await.status, 404);
    let team =
        admin(&server, "POST", "/admin/teams", json!({ "name": "audited" })).await.json()["id"].clone();
    let team = team.as_str().unwrap();
    let path = format!("/admin/teams/{team}/api-keys");
    let made = admin(&server, "POST", &path, json!({ "name": "k" })).await.json();
    let (key, secret) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    let volume = server.call_as(secret, "POST", "/volumes", json!({ "name": "v" })).await.json();
    let volume = volume["volumeID"].as_str().unwrap();

    let all = records(&server, "").await;
    let of = |field: &str| all.iter().map(|record| record[field].clone()).collect::<Vec<_>>();
    let actions = ["volume.create", "team.create-api-key", "team.create", "sandbox.kill", "sandbox.kill"];
    assert_eq!(of("action"), actions);
    assert_eq!(of("outcome"), ["done", "done", "done", "refused", "done"]);
    let objects = [volume, &format!("{team}/{key}"), team, &sandbox, &sandbox];
    assert_eq!(of("object"), objects);
    assert_eq!((&all[0]["keyID"], &all[0]["teamID"]), (&json!(key), &json!(team)));
    assert_eq!((&all[1]["credential"], &all[1]["teamID"]), (&json!("admin-token"), &Value::Null));
    let kill = &all[4];
    assert_eq!((&kill["requestID"], &kill["remote"]), (&json!("mine"), &json!("127.0.0.1")));
    assert_eq!((&kill["forwardedFor"], &kill["status"]), (&json!("198.51.100.7"), &json!(204)));
    assert!(!kill["time"].is_null() && kill["via"].is_null());
    assert!(!admin(&server, "GET", "/admin/audit", Value::Null).await.text.contains(secret));

    let ids = |found: &[Value]| found.iter().map(|record| record["id"].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!(ids(&records(&server, "?action=sandbox.&limit=1").await), [2]);
    assert_eq!(ids(&records(&server, &format!("?keyID={key}")).await), [5]);
    assert_eq!(ids(&records(&server, &format!("?object={sandbox}&after=1")).await), [2]);
    let page = admin(&server, "GET", "/admin/audit?limit=2", Value::Null).await;
    let next = page.headers["x-next-token"].to_str().unwrap();
    assert_eq!(ids(&records(&server, &format!("?nextToken={next}")).await), [3, 2, 1]);
    for wrong in ["?limit=0", "?after=x", "?after=1&nextToken=2", "?since=yesterday"] {
        assert_eq!(admin(&server, "GET", &format!("/admin/audit{wrong}"), Value::Null).await.code(), 400);
    }
    assert_eq!(server.get("/admin/audit").await.code(), 401);
    let server = server.restart().await;
    assert_eq!(
        server
            .send("DELETE", "/volumes/00000000-0000-0000-0000-000000000000", &[("x-api-key", secret)], "")
            .await
            .status,
        404
    );
    assert_eq!(ids(&records(&server, "?limit=1000").await), [6, 5, 4, 3, 2, 1]);
}

#[tokio::test]
async fn wrong_keys_leave_no_record_and_ways_around_the_api_do() {
    let server = Server::start().await;
    let sandbox = server.id(json!({})).await;
    let path = format!("/sandboxes/{sandbox}");
    for headers in [vec![], vec![("x-api-key", "e2b_wrong")], vec![("x-admin-token", "wrong")]] {
        assert_eq!(server.send("DELETE", &path, &headers, "").await.status, 401);
    }
    assert_eq!(records(&server, "").await, [] as [Value; 0]);
    let body = json!({ "credential": KEY }).to_string();
    let same = ("sec-fetch-site", "same-origin");
    let login = server.send("POST", "/dashboard/session", &[same], body).await;
    let cookie = login.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap();
    let headers = [same, ("cookie", cookie)];
    assert_eq!(server.send("DELETE", &format!("/dashboard/api{path}"), &headers, "").await.status, 204);
    let record = records(&server, "").await.remove(0);
    assert_eq!((&record["via"], &record["object"]), (&json!("dashboard"), &json!(sandbox)));
    assert!(!record["keyID"].is_null());
}
