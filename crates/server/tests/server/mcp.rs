//! The Model Context Protocol over HTTP, by hand: what official clients do not send, and what must not go through.

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{KEY, Reply, Server};

const BOTH: &str = "application/json, text/event-stream";

fn message(id: u32, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn call(id: u32, tool: &str, arguments: &Value) -> Value {
    message(id, "tools/call", &json!({ "name": tool, "arguments": arguments }))
}

async fn post(server: &Server, more: &[(&str, &str)], body: &Value) -> Reply {
    let mut headers = vec![("x-api-key", KEY), ("accept", BOTH), ("content-type", "application/json")];
    headers.retain(|(name, _)| more.iter().all(|(other, _)| other != name));
    headers.extend(more.iter().filter(|(_, value)| !value.is_empty()));
    server.send("POST", "/mcp", &headers, body.to_string()).await
}

/// The name of a new session.
async fn session(server: &Server, key: &str) -> String {
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let reply = post(server, &[("x-api-key", key)], &message(1, "initialize", &params)).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert_eq!(reply.json()["result"]["protocolVersion"], "2025-06-18");
    reply.headers["mcp-session-id"].to_str().unwrap().to_owned()
}

/// The messages of a stream of events.
fn events(reply: &Reply) -> Vec<(String, Value)> {
    let field = |event: &str, name: &str| {
        event.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned()
    };
    let events = reply.text.split("\n\n").filter(|event| event.contains("data:"));
    events.map(|event| (field(event, "id:"), field(event, "data:").parse().unwrap())).collect()
}

#[tokio::test]
async fn tools_are_called_in_a_session() {
    let server = Server::start().await;
    let id = session(&server, KEY).await;
    let of = [("mcp-session-id", id.as_str()), ("mcp-protocol-version", "2025-06-18")];
    let notified = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let reply = post(&server, &of, &notified).await;
    assert_eq!((reply.status.as_u16(), reply.text.as_str()), (202, ""));
    let reply = post(&server, &of, &message(2, "tools/list", &Value::Null)).await;
    assert_eq!(reply.headers["content-type"], "application/json");
    assert!(reply.json()["result"]["tools"].as_array().unwrap().len() >= 13);
    let reply = post(&server, &of, &call(3, "sandbox_create", &json!({ "template": "base" }))).await;
    assert_eq!(reply.headers["content-type"], "text/event-stream");
    let (event, answer) = events(&reply).pop().unwrap();
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    let sandbox = text.parse::<Value>().unwrap()["sandbox_id"].as_str().unwrap().to_owned();
    assert_eq!(server.state(&sandbox).await.as_deref(), Some("running"));
    // What was read is not kept.
    let resume = [("x-api-key", KEY), ("accept", BOTH), of[0], ("last-event-id", event.as_str())];
    post(&server, &of, &message(4, "ping", &Value::Null)).await;
    assert_eq!(server.send("GET", "/mcp", &resume, "").await.status, 400);
    // A client that accepts nothing else gets JSON, and one with a bearer token is as welcome.
    let bearer = format!("Bearer {KEY}");
    let plain =
        [of[0], ("accept", "application/json"), ("x-api-key", ""), ("authorization", bearer.as_str())];
    let reply = post(&server, &plain, &call(5, "sandbox_kill", &json!({ "sandbox_id": sandbox }))).await;
    assert_eq!(reply.json()["result"]["isError"], false, "{}", reply.text);
    assert_eq!(server.state(&sandbox).await, None);
}

#[tokio::test]
async fn requests_that_are_none_of_the_protocol_are_refused() {
    let server = Server::start().await;
    let id = session(&server, KEY).await;
    let ping = message(2, "ping", &Value::Null);
    let of = ("mcp-session-id", id.as_str());
    for (status, more, body) in [
        (401, vec![of, ("x-api-key", "e2b_wrong")], &ping),
        (401, vec![of, ("x-api-key", "")], &ping),
        (401, vec![of, ("x-api-key", ""), ("authorization", "Bearer sk_e2b_person")], &ping),
        (403, vec![of, ("origin", "https://evil.example")], &ping),
        (403, vec![of, ("origin", "http://3000-iabc.localhost:3000")], &ping),
        (200, vec![of, ("origin", "http://localhost:6274")], &ping),
        (400, vec![], &ping),
        (404, vec![("mcp-session-id", "unknown")], &ping),
        (400, vec![of, ("mcp-protocol-version", "1999-01-01")], &ping),
        (200, vec![of, ("mcp-protocol-version", "2025-11-25")], &ping),
        (406, vec![of, ("accept", "text/html")], &ping),
        (415, vec![of, ("content-type", "text/plain")], &ping),
        (400, vec![of], &json!([ping])),
        (400, vec![of], &json!({ "id": 1 })),
    ] {
        let reply = post(&server, &more, body).await;
        assert_eq!(reply.status, status, "{more:?} {body} {}", reply.text);
    }
    let reply = post(&server, &[("x-api-key", "")], &ping).await;
    assert_eq!(reply.headers["www-authenticate"], "Bearer");
    let key = ("x-api-key", KEY);
    let reply = server.send("PUT", "/mcp", &[key, of], "").await;
    assert_eq!(
        (reply.status.as_u16(), &reply.headers["allow"]),
        (405, &"GET, POST, DELETE".parse().unwrap())
    );
    assert_eq!(server.send("GET", "/mcp", &[key, of, ("accept", "application/json")], "").await.status, 406);
    assert_eq!(server.send("GET", "/mcp/x", &[key], "").await.status, 404);
}

#[tokio::test]
async fn a_team_knows_nothing_of_anothers_sessions_and_sandboxes() {
    let server = Server::start().await;
    let other = server.other_team().await;
    let (own, strange) = (session(&server, KEY).await, session(&server, other).await);
    let sandbox = server.id(json!({})).await;
    for body in [message(2, "ping", &Value::Null), call(3, "sandbox_list", &json!({}))] {
        let reply = post(&server, &[("x-api-key", other), ("mcp-session-id", &own)], &body).await;
        assert_eq!(reply.status, 404, "{}", reply.text);
    }
    for method in ["GET", "DELETE"] {
        let headers = [("x-api-key", other), ("mcp-session-id", own.as_str()), ("accept", BOTH)];
        assert_eq!(server.send(method, "/mcp", &headers, "").await.status, 404);
    }
    let of = [("x-api-key", other), ("mcp-session-id", strange.as_str()), ("accept", "application/json")];
    let reply = post(&server, &of, &call(4, "sandbox_list", &json!({}))).await;
    assert_eq!(reply.json()["result"]["content"][0]["text"], "[]");
    let reply = post(&server, &of, &call(5, "sandbox_kill", &json!({ "sandbox_id": sandbox }))).await;
    assert_eq!(reply.json()["result"]["isError"], true);
    assert_eq!(server.state(&sandbox).await.as_deref(), Some("running"));
}

#[tokio::test]
async fn a_stream_without_messages_lasts_as_long_as_its_session() {
    let server = Server::start().await;
    let id = session(&server, KEY).await;
    let headers = [("x-api-key", KEY), ("mcp-session-id", id.as_str()), ("accept", BOTH)];
    let ended = CancellationToken::new();
    let listen = async {
        let reply = server.send("GET", "/mcp", &headers, "").await;
        assert!(ended.is_cancelled(), "the stream ended by itself");
        reply
    };
    let end = async {
        // The session is not at its end while its stream begins, whichever of both comes first.
        tokio::task::yield_now().await;
        ended.cancel();
        let reply = server.send("DELETE", "/mcp", &headers, "").await;
        assert_eq!((reply.status.as_u16(), reply.text.as_str()), (204, ""));
    };
    let (reply, ()) = tokio::join!(listen, end);
    assert!([200, 404].contains(&reply.status.as_u16()), "{}", reply.text);
    assert_eq!(server.send("DELETE", "/mcp", &headers, "").await.status, 404);
    assert_eq!(post(&server, &[headers[1]], &message(2, "ping", &Value::Null)).await.status, 404);
}

#[tokio::test]
async fn a_team_that_begins_too_many_sessions_learns_when_to_come_back() {
    let server = Server::with(|config| config.rate_limit = Some(2)).await;
    let other = server.other_team().await;
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let initialize = message(1, "initialize", &params);
    let mut id = String::new();
    for remaining in ["1", "0"] {
        let reply = post(&server, &[], &initialize).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        assert_eq!(reply.headers["ratelimit-limit"], "2");
        assert_eq!(reply.headers["ratelimit-remaining"], remaining);
        reply.headers["mcp-session-id"].to_str().unwrap().clone_into(&mut id);
    }
    let reply = post(&server, &[], &initialize).await;
    assert_eq!(reply.status, 429);
    assert!(reply.headers.get("mcp-session-id").is_none());
    assert!(
        reply.json()["error"]["message"].as_str().unwrap().contains("too many requests"),
        "{}",
        reply.text
    );
    let seconds = |name: &str| reply.headers[name].to_str().unwrap().parse::<u64>().unwrap();
    assert!((1..=60).contains(&seconds("retry-after")));
    assert_eq!(seconds("retry-after"), seconds("ratelimit-reset"));
    // The sessions that there are go on, and another team has a limit of its own.
    let reply = post(&server, &[("mcp-session-id", &id)], &message(2, "tools/list", &Value::Null)).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    session(&server, other).await;
}
