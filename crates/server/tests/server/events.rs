use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::routing::any;
use http::{HeaderMap, StatusCode};
use sandcove_server::events::signature;
use sandcove_wire::secret::Secret;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};

use crate::support::{Server, sandbox_id, wait_until};

/// A receiver that keeps what it is sent and answers as told.
#[derive(Clone)]
struct Receiver {
    url: String,
    seen: Arc<Mutex<Vec<(HeaderMap, String)>>>,
    answers: Arc<Mutex<Vec<u16>>>,
    /// No request is answered while this is locked.
    held: Arc<tokio::sync::Mutex<()>>,
}

impl Receiver {
    async fn start() -> Self {
        let seen: Arc<Mutex<Vec<(HeaderMap, String)>>> = Arc::default();
        let answers: Arc<Mutex<Vec<u16>>> = Arc::default();
        let held: Arc<tokio::sync::Mutex<()>> = Arc::default();
        let (keep, script, wait) = (seen.clone(), answers.clone(), held.clone());
        let app = Router::new().fallback(any(move |request: Request| async move {
            let (parts, body) = request.into_parts();
            let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
            keep.lock().unwrap().push((parts.headers, String::from_utf8(bytes.to_vec()).unwrap()));
            drop(wait.lock().await);
            let status = script.lock().unwrap().pop().unwrap_or(200);
            (StatusCode::from_u16(status).unwrap(), "thanks")
        }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook?a=b", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, seen, answers, held }
    }

    fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    fn labels(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        let label = |body: &str| serde_json::from_str::<Value>(body).unwrap()["event_label"].clone();
        seen.iter().map(|(_, body)| label(body).as_str().unwrap().to_owned()).collect()
    }
}

fn all() -> Vec<String> {
    sandcove_server::domain::event::EVENT_TYPES.iter().map(|&kind| kind.to_owned()).collect()
}

async fn local() -> Server {
    Server::with(|config| config.private_webhooks = true).await
}

async fn hook(server: &Server, url: &str, events: &[String]) -> String {
    let body = json!({ "name": "h", "url": url, "events": events, "signatureSecret": "topsecret" });
    let reply = server.call("POST", "/events/webhooks", body).await;
    assert_eq!(reply.code(), 201, "{}", reply.text);
    assert!(!reply.text.contains("topsecret"));
    reply.json()["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_life_is_written_down() {
    let server = Server::start().await;
    let id = server.id(json!({ "metadata": { "a": "b" } })).await;
    let post = async |path: &str, body: Value| {
        assert!(
            server.call("POST", &format!("/sandboxes/{id}/{path}"), body).await.status.is_success(),
            "{path}"
        );
    };
    post("timeout", json!({ "timeout": 100 })).await;
    let network = json!({ "denyOut": ["0.0.0.0/0"], "allowOut": ["8.8.8.8", "example.com"] });
    assert_eq!(server.call("PUT", &format!("/sandboxes/{id}/network"), network).await.code(), 204);
    post("pause", Value::Null).await;
    post("resume", Value::Null).await;
    assert_eq!(server.call("DELETE", &format!("/sandboxes/{id}"), Value::Null).await.code(), 204);
    let events = server.get("/events/sandboxes?orderAsc=true").await.json();
    let events = events.as_array().unwrap();
    let labels: Vec<_> = events.iter().map(|event| event["eventLabel"].as_str().unwrap()).collect();
    assert_eq!(labels, ["create", "update", "update", "pause", "resume", "kill"]);
    for event in events {
        assert_eq!((&event["version"], &event["eventCategory"]), (&json!("v2"), &json!("lifecycle")));
        assert_eq!(event["sandboxId"], id);
        assert_eq!(event["eventData"]["sandbox_metadata"], json!({ "a": "b" }));
    }
    assert!(events[1]["eventData"]["set_timeout"].as_str().unwrap().ends_with('Z'));
    assert_eq!(
        events[2]["eventData"]["network_egress"],
        json!({ "allowed_cidrs": ["8.8.8.8"], "denied_cidrs": ["0.0.0.0/0"], "allowed_domains": ["example.com"] })
    );
    let execution = &events[3]["eventData"]["execution"];
    assert_eq!((&execution["vcpu_count"], &execution["memory_mb"]), (&json!(2), &json!(512)));
    assert!(execution["execution_time"].is_i64());
    assert_eq!(events[5]["eventData"]["kill_reason"], "request");
    // A session is from a start or resume to its end.
    assert_eq!(events[0]["sandboxExecutionId"], events[3]["sandboxExecutionId"]);
    assert_ne!(events[3]["sandboxExecutionId"], events[4]["sandboxExecutionId"]);

    let of_one = server.get(&format!("/events/sandboxes/{id}?limit=2&offset=1")).await.json();
    let labels: Vec<_> = of_one.as_array().unwrap().iter().map(|e| e["eventLabel"].clone()).collect();
    assert_eq!(labels, ["resume", "pause"]);
    let kinds = "types=sandbox.lifecycle.killed&types=sandbox.lifecycle.created";
    assert_eq!(server.get(&format!("/events/sandboxes?{kinds}")).await.json().as_array().unwrap().len(), 2);
    assert_eq!(server.get("/events/sandboxes/inothere").await.json(), json!([]));
    for bad in ["limit=0", "limit=101", "offset=-1", "types=x", "orderAsc=1"] {
        assert_eq!(server.get(&format!("/events/sandboxes?{bad}")).await.code(), 400, "{bad}");
    }
}

#[tokio::test]
async fn a_pause_is_told_once_whatever_becomes_of_its_processes() {
    let server = Server::start().await;
    let labels = async |server: &Server, id: &str| -> Vec<String> {
        let events = server.get(&format!("/events/sandboxes/{id}?orderAsc=true")).await.json();
        let labels = events.as_array().unwrap().iter().map(|event| event["eventLabel"].as_str().unwrap());
        labels.map(str::to_owned).collect()
    };
    let (alive, dead) = (server.id(json!({})).await, server.id(json!({})).await);
    for id in [&alive, &dead] {
        let pause = server.call("POST", &format!("/sandboxes/{id}/pause"), Value::Null).await;
        assert_eq!(pause.code(), 204);
    }
    server.fake.crash(&sandbox_id(&dead));
    let mode = async |server: &Server, id: &str| {
        server.get(&format!("/sandboxes/{id}")).await.json()["pauseMode"].clone()
    };
    let deadline = tokio::time::Instant::now() + crate::support::WAIT;
    while mode(&server, &dead).await != "filesystem" {
        assert!(tokio::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let fake = server.fake.clone();
    let server = server.restart_with(|| fake.crash(&sandbox_id(&alive))).await;
    assert_eq!(mode(&server, &alive).await, "filesystem");
    for id in [&alive, &dead] {
        assert_eq!(labels(&server, id).await, ["create", "pause"]);
        assert_eq!(server.call("POST", &format!("/sandboxes/{id}/resume"), Value::Null).await.code(), 201);
        assert_eq!(labels(&server, id).await, ["create", "pause", "resume"]);
    }
}

#[tokio::test]
async fn why_a_sandbox_ended_is_told() {
    let server = Server::start().await;
    let reason = async |server: &Server, id: &str| {
        let deadline = tokio::time::Instant::now() + crate::support::WAIT;
        loop {
            let events = server.get(&format!("/events/sandboxes/{id}")).await.json();
            if events[0]["eventLabel"] == "kill" {
                return events[0]["eventData"]["kill_reason"].as_str().unwrap().to_owned();
            }
            assert!(tokio::time::Instant::now() < deadline, "{events}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let expired = server.id(json!({ "timeout": 1 })).await;
    assert_eq!(reason(&server, &expired).await, "timeout");
    let crashed = server.id(json!({})).await;
    server.fake.crash(&sandbox_id(&crashed));
    assert_eq!(reason(&server, &crashed).await, "unknown");
    let stopped = server.id(json!({})).await;
    server.app.sandboxes().kill_all().await;
    assert_eq!(reason(&server, &stopped).await, "admin");
    let lost = server.id(json!({})).await;
    let fake = server.fake.clone();
    let server = server.restart_with(|| fake.crash(&sandbox_id(&lost))).await;
    assert_eq!(reason(&server, &lost).await, "orphaned");
}

#[tokio::test]
async fn receivers_are_told_in_order_and_can_check_who_tells() {
    let server = local().await;
    let receiver = Receiver::start().await;
    let id = hook(&server, &receiver.url, &all()).await;
    let some = Receiver::start().await;
    hook(&server, &some.url, &["sandbox.lifecycle.killed".to_owned()]).await;
    let sandbox = server.id(json!({})).await;
    server.call("POST", &format!("/sandboxes/{sandbox}/pause"), Value::Null).await;
    server.call("DELETE", &format!("/sandboxes/{sandbox}"), Value::Null).await;
    wait_until("all events are delivered", || receiver.count() == 3 && some.count() == 1).await;
    assert_eq!(receiver.labels(), ["create", "pause", "kill"]);
    assert_eq!(some.labels(), ["kill"]);
    let (headers, body) = receiver.seen.lock().unwrap()[0].clone();
    assert_eq!(headers["e2b-webhook-id"], id.as_str());
    assert_eq!(headers["e2b-signature-version"], "v1");
    assert_eq!(headers["e2b-signature"], signature(&Secret::new("topsecret"), body.as_bytes()).as_str());
    assert!(headers.contains_key("e2b-delivery-id"));
    let event: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&event["version"], &event["sandbox_id"]), (&json!("v2"), &json!(sandbox)));

    let path = format!("/events/webhooks/{id}/deliveries");
    let deadline = tokio::time::Instant::now() + crate::support::WAIT;
    let deliveries = loop {
        let deliveries = server.get(&format!("{path}?limit=2&orderAsc=true")).await.json();
        if deliveries["nextCursor"].is_string() {
            break deliveries;
        }
        assert!(tokio::time::Instant::now() < deadline, "{deliveries}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let attempt = &deliveries["data"][0]["attempts"][0];
    assert_eq!((&attempt["status"], &attempt["responseHttpStatusCode"]), (&json!("success"), &json!(200)));
    assert_eq!((&attempt["responseBody"], &attempt["requestBody"]), (&json!("thanks"), &json!(body)));
    // What is kept tells nobody how to sign.
    assert!(!attempt["requestHeaders"].as_str().unwrap().contains("e2b-signature\""), "{attempt}");
    let cursor = deliveries["nextCursor"].as_str().unwrap();
    let rest = server.get(&format!("{path}?limit=2&orderAsc=true&cursor={cursor}")).await.json();
    assert_eq!((rest["data"].as_array().unwrap().len(), &rest["nextCursor"]), (1, &Value::Null));
    let killed =
        server.get(&format!("{path}?eventType=sandbox.lifecycle.killed&deliveryStatus=success")).await;
    assert_eq!(killed.json()["data"].as_array().unwrap().len(), 1);
    let stats = server.get(&format!("/events/webhooks/{id}/stats")).await.json();
    assert_eq!((&stats["total"], &stats["failed"]), (&json!(3), &json!(0)));
    assert!(server.get(&format!("{path}?cursor=x")).await.code() == 400);
}

#[tokio::test]
async fn what_was_not_told_is_told_after_a_restart() {
    let server = local().await;
    let receiver = Receiver::start().await;
    // Nobody listens, and the port stays taken so that nobody else does.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let url = format!("http://{}/", closed.local_addr().unwrap());
    let id = hook(&server, &url, &all()).await;
    server.id(json!({})).await;
    let path = format!("/events/webhooks/{id}/deliveries");
    let attempts = async |server: &Server| {
        let data = server.get(&path).await.json()["data"].clone();
        data[0]["attempts"].as_array().map_or(Vec::new(), Clone::clone)
    };
    let deadline = tokio::time::Instant::now() + crate::support::WAIT;
    while attempts(&server).await.is_empty() {
        assert!(tokio::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(attempts(&server).await[0]["errorClass"], "transport_error");
    // Another server on the same data goes on where this one stopped; the retry is 10 seconds after the first.
    let moved = json!({ "url": receiver.url });
    assert_eq!(server.call("PATCH", &format!("/events/webhooks/{id}"), moved).await.code(), 200);
    let server = server.restart_as(|config| config.private_webhooks = true).await;
    wait_until("the event is delivered", || receiver.count() > 0).await;
    assert_eq!(receiver.labels(), ["create"]);
    assert_eq!(server.get("/events/webhooks").await.json()[0]["id"], id);
}

#[tokio::test]
async fn private_networks_are_not_called_unless_the_operator_says_so() {
    let server = Server::start().await;
    let receiver = Receiver::start().await;
    let id = hook(&server, &receiver.url, &all()).await;
    server.id(json!({})).await;
    let deadline = tokio::time::Instant::now() + crate::support::WAIT;
    let attempt = loop {
        let data = server.get(&format!("/events/webhooks/{id}/deliveries")).await.json();
        if let Some(attempt) = data["data"][0]["attempts"].get(0) {
            break attempt.clone();
        }
        assert!(tokio::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!((&attempt["status"], &attempt["errorClass"]), (&json!("failed"), &json!("request_error")));
    assert!(attempt["errorMessage"].as_str().unwrap().contains("private network"));
    assert_eq!(receiver.count(), 0);
}

#[tokio::test]
async fn an_event_is_delivered_again_when_its_team_asks_for_it() {
    let server = local().await;
    let receiver = Receiver::start().await;
    let id = hook(&server, &receiver.url, &["sandbox.lifecycle.created".to_owned()]).await;
    let sandbox = server.id(json!({})).await;
    let path = format!("/events/webhooks/{id}/deliveries");
    let attempts = async |count: usize| {
        let deadline = tokio::time::Instant::now() + crate::support::WAIT;
        loop {
            let data = server.get(&path).await.json()["data"].clone();
            if data[0]["attempts"].as_array().is_some_and(|attempts| attempts.len() == count) {
                assert_eq!(data.as_array().unwrap().len(), 1, "it is one delivery");
                break data[0].clone();
            }
            assert!(tokio::time::Instant::now() < deadline, "{data}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let first = attempts(1).await;
    let named = |id: &Value| format!("{path}/{}/redeliver", id.as_str().unwrap());

    // By the id of the attempt, which the receiver has seen. The receiver refuses it, and there is no further attempt.
    receiver.answers.lock().unwrap().push(500);
    let queued = server.call("POST", &named(&first["attempts"][0]["id"]), Value::Null).await;
    assert_eq!((queued.code(), &queued.json()), (202, &first));
    let second = attempts(2).await;
    assert_eq!(second["attempts"][1]["status"], "failed");
    // By the id of the event, with the secret of now.
    let changed = json!({ "signatureSecret": "another" });
    assert_eq!(server.call("PATCH", &format!("/events/webhooks/{id}"), changed).await.code(), 200);
    let queued = server.call("POST", &named(&first["eventId"]), Value::Null).await;
    assert_eq!(queued.json()["attempts"].as_array().unwrap().len(), 2);
    assert_eq!(attempts(3).await["attempts"][2]["status"], "success");
    let seen = receiver.seen.lock().unwrap().clone();
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|(_, body)| *body == seen[0].1), "the body is the same");
    let of = |header: &str| seen.iter().map(|(headers, _)| headers[header].clone()).collect::<Vec<_>>();
    let deliveries = of("e2b-delivery-id");
    assert!(deliveries[0] != deliveries[1] && deliveries[1] != deliveries[2]);
    let signed = |secret: &str| signature(&Secret::new(secret), seen[0].1.as_bytes());
    assert_eq!(of("e2b-signature"), [signed("topsecret"), signed("topsecret"), signed("another")]);
    assert_eq!(server.get(&format!("/events/sandboxes/{sandbox}")).await.json().as_array().unwrap().len(), 1);

    let unknown = server.call("POST", &named(&json!(id)), Value::Null).await;
    assert_eq!((unknown.code(), unknown.text.contains("delivery")), (404, true), "{}", unknown.text);
    assert_eq!(server.call("POST", &named(&json!("x")), Value::Null).await.code(), 400);
    let other = hook(&server, &receiver.url, &all()).await;
    let foreign = named(&first["eventId"]).replace(&id, &other);
    assert_eq!(server.call("POST", &foreign, Value::Null).await.code(), 404, "another webhook of the team");
    let off = json!({ "enabled": false });
    assert_eq!(server.call("PATCH", &format!("/events/webhooks/{id}"), off).await.code(), 200);
    let refused = server.call("POST", &named(&first["eventId"]), Value::Null).await;
    assert_eq!((refused.code(), refused.text.contains("disabled")), (409, true), "{}", refused.text);
    assert_eq!(receiver.count(), 3);
}

#[tokio::test]
async fn a_delivery_that_is_asked_for_often_is_made_once() {
    let server = local().await;
    let receiver = Receiver::start().await;
    let id = hook(&server, &receiver.url, &["sandbox.lifecycle.created".to_owned()]).await;
    let path = format!("/events/webhooks/{id}/deliveries");
    for count in 1..=2 {
        server.id(json!({})).await;
        wait_until("the event is delivered", || receiver.count() == count).await;
    }
    let deadline = tokio::time::Instant::now() + crate::support::WAIT;
    let events = loop {
        let listed = server.get(&format!("{path}?orderAsc=true")).await.json()["data"].clone();
        if listed.as_array().unwrap().len() == 2 {
            break [0, 1].map(|n| listed[n]["eventId"].as_str().unwrap().to_owned());
        }
        assert!(tokio::time::Instant::now() < deadline, "{listed}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let again = async |event: &str| {
        let reply = server.call("POST", &format!("{path}/{event}/redeliver"), Value::Null).await;
        assert_eq!(reply.code(), 202, "{}", reply.text);
    };
    // The receiver thinks about the first; meanwhile both are asked for.
    let held = receiver.held.clone().lock_owned().await;
    again(&events[0]).await;
    wait_until("the first event is delivered again", || receiver.count() == 3).await;
    for _ in 0..20 {
        again(&events[0]).await;
        again(&events[1]).await;
    }
    drop(held);
    wait_until("the second event is delivered again", || receiver.count() == 4).await;
    server.id(json!({})).await;
    wait_until("a new event is delivered", || receiver.count() == 5).await;
    let seen = receiver.seen.lock().unwrap().clone();
    let ids: Vec<String> = seen
        .iter()
        .map(|(_, body)| serde_json::from_str::<Value>(body).unwrap()["id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(ids[..4], [&events[..], &events[..]].concat());
    assert!(!events.contains(&ids[4]));
}

#[tokio::test]
async fn the_head_of_an_answer_is_bounded() {
    let server = local().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let id = hook(&server, &url, &["sandbox.lifecycle.created".to_owned()]).await;
    let answer = async |length: usize| {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        assert!(stream.read(&mut request).await.unwrap() > 0);
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nsmall: s\r\nlarge: {}\r\n\r\n",
            "x".repeat(length)
        );
        // The server may hang up before it has read all of it.
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    };
    let attempt = async |sandbox: String| {
        let deadline = tokio::time::Instant::now() + crate::support::WAIT;
        loop {
            let data = server.get(&format!("/events/webhooks/{id}/deliveries")).await.json()["data"].clone();
            let of_sandbox = data.as_array().unwrap().iter().find(|one| one["sandboxId"] == sandbox);
            if let Some(delivery) = of_sandbox {
                break delivery["attempts"][0].clone();
            }
            assert!(tokio::time::Instant::now() < deadline, "{data}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let sandbox = server.id(json!({})).await;
    answer(10 << 10).await;
    let kept = attempt(sandbox).await;
    assert_eq!(kept["status"], "success");
    let headers: Value = serde_json::from_str(kept["responseHeaders"].as_str().unwrap()).unwrap();
    assert_eq!(headers, json!({ "content-length": "0", "small": "s" }));
    let sandbox = server.id(json!({})).await;
    answer(32 << 10).await;
    let refused = attempt(sandbox).await;
    assert_eq!((&refused["status"], &refused["errorClass"]), (&json!("failed"), &json!("transport_error")));
}

#[tokio::test]
async fn webhooks_are_made_changed_and_deleted() {
    let server = local().await;
    let receiver = Receiver::start().await;
    receiver.answers.lock().unwrap().push(500);
    let id = hook(&server, &receiver.url, &all()).await;
    let path = format!("/events/webhooks/{id}");
    assert_eq!(server.get(&path).await.json()["enabled"], true);
    server.id(json!({})).await;
    wait_until("the event is delivered", || receiver.count() == 1).await;
    let off = server.call("PATCH", &path, json!({ "enabled": false, "name": "off" })).await.json();
    assert_eq!(
        (&off["enabled"], &off["name"], &off["url"]),
        (&json!(false), &json!("off"), &json!(receiver.url))
    );
    server.id(json!({})).await;
    let deadline = tokio::time::Instant::now() + crate::support::WAIT;
    let stats = loop {
        let stats = server.get(&format!("{path}/stats")).await.json();
        if stats["total"] != 0 {
            break stats;
        }
        assert!(tokio::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(
        (&stats["total"], &stats["failed"], &stats["buckets"][0]["failed"]),
        (&json!(1), &json!(1), &json!(1))
    );
    assert_eq!(server.call("DELETE", &path, Value::Null).await.code(), 200);
    assert_eq!(server.call("DELETE", &path, Value::Null).await.code(), 404);
    assert_eq!(server.get("/events/webhooks").await.json(), json!([]));
    assert_eq!(receiver.count(), 1);
    let good = json!({ "name": "h", "url": "http://a/", "events": all(), "signatureSecret": "s" });
    for (name, value) in [
        ("name", json!("")),
        ("url", json!("ftp://a/")),
        ("url", json!("/a")),
        ("url", json!("https:///a")),
        ("events", json!([])),
        ("events", json!(["x"])),
        ("signatureSecret", json!("")),
        ("signatureSecret", json!(null)),
    ] {
        let mut bad = good.clone();
        bad[name] = value;
        assert_eq!(server.call("POST", "/events/webhooks", bad.clone()).await.code(), 400, "{bad}");
    }
}
