//! What releases before 2.7 send, as recorded from them: method, host, path, headers and body. Newer ones send less odd things.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::proxy::echo;
use crate::support::{KEY, Reply, Server, sandbox_id};

const API: &str = "api.e2b.app";
const JSON: (&str, &str) = ("content-type", "application/json");

/// A request to the API, without the headers that say what kind of machine the client runs on.
async fn ask(server: &Server, method: &str, path: &str, body: Value, token: Option<&str>) -> Reply {
    let mut headers = vec![("host", API), ("x-api-key", KEY)];
    headers.extend(token.map(|token| ("x-access-token", token)));
    if body.is_null() {
        return server.send(method, path, &headers, "").await;
    }
    headers.push(JSON);
    server.send(method, path, &headers, body.to_string()).await
}

/// Whether the agent of a sandbox demands its token.
fn demands_token(server: &Server, id: &str) -> bool {
    server.fake.spec(&sandbox_id(id)).unwrap().settings.token_required != Some(false)
}

/// When a sandbox ends, in seconds from `start`.
fn ends_after(detail: &Value, start: jiff::Timestamp) -> f64 {
    let end: jiff::Timestamp = detail["endAt"].as_str().unwrap().parse().unwrap();
    end.duration_since(start).as_secs_f64()
}

/// Whether a sandbox ends `seconds` after a call that began at `start` and is over now.
fn is_extended(detail: &Value, start: jiff::Timestamp, seconds: f64) -> bool {
    // The server's clock counts microseconds.
    let (least, most) =
        (seconds - 0.001, seconds + jiff::Timestamp::now().duration_since(start).as_secs_f64());
    (least..=most).contains(&ends_after(detail, start))
}

/// The generation before 1.0 would wait a minute for an agent that is not there, where its protocol is switched off. Of the answer,
/// Python shows the body and JavaScript the reason.
#[tokio::test]
async fn releases_before_1_0_are_refused_in_words_they_show_where_they_are_off() {
    let server = Server::with(|config| config.legacy = false).await;
    let text = |release: &str| {
        format!("e2b {release} is not supported by this server: use release 1.0 or later of the package")
    };
    for release in ["0.16.2", "0.17.1"] {
        let headers =
            [("x-api-key", KEY), JSON, ("lang", "js"), ("package_version", release), ("publisher", "e2b")];
        let reply = server.send("POST", "/sandboxes", &headers, r#"{"templateID":"base"}"#).await;
        assert_eq!((reply.code(), reply.message()), (400, text(release)));
        let mut stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
        let head = format!(
            "POST /sandboxes HTTP/1.1\r\nhost: {API}\r\nx-api-key: {KEY}\r\ncontent-type: application/json\r\n\
             package_version: {release}\r\npublisher: e2b\r\ncontent-length: 21\r\nconnection: close\r\n\r\n\
             {{\"templateID\":\"base\"}}"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 400 {}\r\n", text(release))), "{answer}");
    }
    // Pre-releases of 1.0 are of the next generation, and others may call themselves what they like.
    for (headers, body) in [
        (
            [("package_version", "0.16.2-beta.5"), ("publisher", "e2b")],
            r#"{"templateID":"base","timeout":60}"#,
        ),
        ([("package_version", "0.1.0"), ("publisher", "somebody")], r#"{"templateID":"base"}"#),
        ([("package_version", "1.0.6"), ("publisher", "e2b")], r#"{"templateID":"base"}"#),
    ] {
        let headers = [&[("x-api-key", KEY), JSON][..], &headers].concat();
        assert_eq!(server.send("POST", "/sandboxes", &headers, body).await.code(), 201, "{headers:?}");
    }
}

/// Python and JavaScript 1.0 to 1.4: the composite id everywhere, no token, `connect` without a request.
#[tokio::test]
async fn releases_1_0_to_1_4() {
    let server = Server::start().await;
    server.fake.listen(49983, echo().await);
    for body in [
        json!({ "templateID": "base", "envVars": {}, "metadata": {}, "timeout": 60 }),
        json!({ "templateID": "base", "timeout": 60 }),
    ] {
        let made = ask(&server, "POST", "/sandboxes", body, None).await;
        assert_eq!(made.code(), 201);
        let (id, client) = (made.json()["sandboxID"].clone(), made.json()["clientID"].clone());
        let id = format!("{}-{}", id.as_str().unwrap(), client.as_str().unwrap());
        assert!(!demands_token(&server, &id), "their clients do not send it");
        let path = format!("/sandboxes/{id}");
        let timeout = ask(&server, "POST", &format!("{path}/timeout"), json!({ "timeout": 90 }), None).await;
        assert_eq!(timeout.code(), 204);
        let host = format!("49983-{id}.e2b.dev");
        assert_eq!(server.send("GET", "/health", &[("host", &host)], "").await.status, 200);
        let listed = ask(&server, "GET", "/sandboxes", Value::Null, None).await.json();
        let listed = listed.as_array().unwrap();
        assert_eq!(listed.len(), 1);
        let glued = [&listed[0]["sandboxID"], &listed[0]["clientID"]].map(|part| part.as_str().unwrap());
        assert_eq!(glued.join("-"), id);
        assert_eq!(ask(&server, "DELETE", &path, Value::Null, None).await.code(), 204);
        assert_eq!(ask(&server, "DELETE", &path, Value::Null, None).await.code(), 404);
    }
}

/// Python 1.5 to 1.11 and JavaScript 1.5 to 1.13: `connect` reads the sandbox; Python shows its token to the API as well.
#[tokio::test]
async fn releases_1_5_to_1_13() {
    let server = Server::start().await;
    server.fake.listen(49983, echo().await);
    for (secure, glued) in [(false, true), (true, false)] {
        let body = json!({
            "templateID": "base", "autoPause": false, "envVars": {}, "metadata": {}, "secure": secure, "timeout": 60,
            "allow_internet_access": true,
        });
        let made = ask(&server, "POST", "/sandboxes", body, None).await.json();
        let token = made["envdAccessToken"].as_str();
        assert!(token.is_some(), "agents are found by it");
        assert_eq!(demands_token(&server, made["sandboxID"].as_str().unwrap()), secure);
        let id = made["sandboxID"].as_str().unwrap();
        let id = if glued { format!("{id}-6532622b") } else { id.to_owned() };
        let path = format!("/sandboxes/{id}");
        let start = jiff::Timestamp::now();
        let timeout = ask(&server, "POST", &format!("{path}/timeout"), json!({ "timeout": 90 }), token).await;
        assert_eq!(timeout.code(), 204);
        let detail = ask(&server, "GET", &path, Value::Null, token).await.json();
        assert!(is_extended(&detail, start, 90.0), "{start}: {detail}");
        assert_eq!(detail["envdAccessToken"].as_str(), token);
        for required in [
            "sandboxID",
            "templateID",
            "clientID",
            "startedAt",
            "cpuCount",
            "memoryMB",
            "state",
            "envdVersion",
        ] {
            assert!(!detail[required].is_null(), "{required}");
        }
        assert_eq!(ask(&server, "DELETE", &path, Value::Null, token).await.code(), 204);
    }
}

/// 2.0 to 2.5: `connect` is a dance. A timeout is set; where that fails the sandbox is resumed; then it is read.
#[tokio::test]
async fn releases_2_0_to_2_5() {
    let server = Server::start().await;
    for resume in [json!({ "autoPause": false, "timeout": 300 }), json!({ "timeout": 300 })] {
        let body = json!({
            "templateID": "base", "allow_internet_access": true, "autoPause": false, "envVars": {}, "metadata": {},
            "secure": true, "timeout": 60,
        });
        let made = ask(&server, "POST", "/sandboxes", body, None).await.json();
        let id = made["sandboxID"].as_str().unwrap();
        let path = format!("/sandboxes/{id}");
        let set = async || {
            ask(&server, "POST", &format!("{path}/timeout"), json!({ "timeout": 300 }), None).await.code()
        };
        assert_eq!(set().await, 204, "a running one needs no more");
        assert_eq!(ask(&server, "POST", &format!("{path}/resume"), resume.clone(), None).await.code(), 409);
        for _ in 0..2 {
            assert_eq!(ask(&server, "POST", &format!("{path}/pause"), Value::Null, None).await.code(), 204);
            assert_eq!(ask(&server, "POST", &format!("{path}/pause"), Value::Null, None).await.code(), 409);
            assert_eq!(set().await, 404, "else it would never be resumed");
            let start = jiff::Timestamp::now();
            let resumed = ask(&server, "POST", &format!("{path}/resume"), resume.clone(), None).await;
            assert_eq!(resumed.code(), 201);
            assert_eq!(resumed.json()["envdAccessToken"], made["envdAccessToken"]);
            assert!(!server.fake.is_frozen(&sandbox_id(id)));
            let detail = ask(&server, "GET", &path, Value::Null, None).await.json();
            assert_eq!(
                (&detail["state"], &detail["envdAccessToken"]),
                (&json!("running"), &made["envdAccessToken"])
            );
            assert!(is_extended(&detail, start, 300.0), "{start}: {detail}");
        }
        let listed = ask(&server, "GET", "/v2/sandboxes", Value::Null, None).await;
        assert_eq!(listed.json()[0]["sandboxID"], id);
        assert_eq!(ask(&server, "DELETE", &path, Value::Null, None).await.code(), 204);
        assert_eq!(ask(&server, "POST", &format!("{path}/resume"), resume, None).await.code(), 404);
    }
}

/// The heart-beat of generated clients: it only ever extends, and by fifteen seconds at least.
#[tokio::test]
async fn refreshes_of_generated_clients() {
    let server = Server::start().await;
    // Each finds the end of the one before: as long as it lasts, unless the refresh is for longer.
    let made =
        ask(&server, "POST", "/sandboxes", json!({ "templateID": "base", "timeout": 400 }), None).await;
    let path = format!("/sandboxes/{}-6532622b", made.json()["sandboxID"].as_str().unwrap());
    let detail = async || ask(&server, "GET", &path, Value::Null, None).await.json();
    for (body, extended) in [
        (json!({ "duration": 15 }), None),
        (json!({ "duration": 0 }), None),
        (json!({}), None),
        (Value::Null, None),
        (json!({ "duration": 1000 }), Some(1000.0)),
        (json!({ "duration": 20 }), None),
    ] {
        let (before, start) = (detail().await, jiff::Timestamp::now());
        let refreshed = ask(&server, "POST", &format!("{path}/refreshes"), body.clone(), None).await;
        assert_eq!(refreshed.code(), 204, "{body}");
        let after = detail().await;
        match extended {
            Some(seconds) => assert!(is_extended(&after, start, seconds), "{body}, {start}: {after}"),
            None => assert_eq!(after["endAt"], before["endAt"], "{body}"),
        }
    }
    // By fifteen seconds at least: the session ends in fourteen, or sooner on a busy machine.
    for body in [json!({ "duration": 0 }), Value::Null] {
        let short = ask(&server, "POST", &format!("{path}/timeout"), json!({ "timeout": 14 }), None).await;
        assert_eq!(short.code(), 204);
        let start = jiff::Timestamp::now();
        let refreshed = ask(&server, "POST", &format!("{path}/refreshes"), body.clone(), None).await;
        assert_eq!(refreshed.code(), 204, "{body}");
        let after = detail().await;
        assert!(is_extended(&after, start, 15.0), "{body}, {start}: {after}");
    }
    for body in [json!({ "duration": -1 }), json!({ "duration": 3601 }), json!({ "duration": "15" })] {
        assert_eq!(
            ask(&server, "POST", &format!("{path}/refreshes"), body.clone(), None).await.code(),
            400,
            "{body}"
        );
    }
    let gone = ask(&server, "POST", "/sandboxes/inothere-6532622b/refreshes", json!({}), None).await;
    assert_eq!(gone.code(), 404);
}

/// One dash is the client's id, more are nobody's sandbox.
#[tokio::test]
async fn composite_ids_on_every_path() {
    let server = Server::start().await;
    let id = server.id(json!({})).await;
    for (method, verb, body, expected) in [
        ("GET", "", Value::Null, 200),
        ("GET", "/metrics", Value::Null, 200),
        ("GET", "/logs", Value::Null, 200),
        ("POST", "/timeout", json!({ "timeout": 60 }), 204),
        ("POST", "/refreshes", json!({}), 204),
        ("POST", "/connect", json!({ "timeout": 60 }), 200),
        ("PUT", "/network", json!({}), 204),
        ("POST", "/pause", Value::Null, 204),
        ("POST", "/resume", Value::Null, 201),
        ("DELETE", "", Value::Null, 204),
    ] {
        let refused = ask(&server, method, &format!("/sandboxes/{id}-a-b{verb}"), body.clone(), None).await;
        assert_eq!(
            (refused.code(), refused.message().as_str()),
            (400, "Invalid sandbox ID"),
            "{method} {verb}"
        );
        let done = ask(&server, method, &format!("/sandboxes/{id}-6532622b{verb}"), body, None).await;
        assert_eq!(done.code(), expected, "{method} {verb}");
    }
}
