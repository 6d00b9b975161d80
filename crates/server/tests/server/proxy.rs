use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::routing::{any, get};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use futures_util::stream;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{KEY, Reply, Server};

const AGENT: u16 = 49983;
const CHROME: (&str, &str) = ("user-agent", "Mozilla/5.0 Chrome/130");

/// A service that tells what it sees.
pub async fn echo() -> SocketAddr {
    let app = Router::new()
        .route("/flood", get(|| async { axum::body::Body::from(vec![7u8; 8 << 20]) }))
        .route(
            "/endless",
            get(|| async {
                let ticks = stream::unfold((), |()| async {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    Some((Ok::<_, std::io::Error>(Bytes::from_static(b"tick\n")), ()))
                });
                axum::body::Body::from_stream(ticks)
            }),
        )
        .fallback(any(|request: Request| async move {
            let (parts, body) = request.into_parts();
            let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
            let headers: Vec<_> =
                parts.headers.iter().map(|(k, v)| format!("{k}: {}", v.to_str().unwrap())).collect();
            axum::Json(json!({
                "method": parts.method.as_str(), "uri": parts.uri.to_string(), "headers": headers,
                "bytes": bytes.len(), "body": String::from_utf8_lossy(&bytes[..bytes.len().min(100)]),
            }))
        }));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}

async fn with_services() -> Server {
    let server = Server::start().await;
    let address = echo().await;
    server.fake.listen(AGENT, address);
    server.fake.listen(8080, address);
    server
}

fn header(reply: &Reply, name: &str) -> Option<String> {
    let prefix = format!("{name}: ");
    let headers = reply.json()["headers"].as_array().unwrap().clone();
    headers.iter().find_map(|h| h.as_str().unwrap().strip_prefix(&prefix).map(str::to_owned))
}

#[tokio::test]
async fn both_forms_of_address_reach_the_service() {
    let server = with_services().await;
    let id = server.id(json!({})).await;
    let host = format!("8080-{id}.localhost:3000");
    let by_host = server
        .send(
            "POST",
            "/a%20b?x=%2F&y",
            &[("host", &host), ("connection", "keep-alive, x-hop"), ("x-hop", "1"), ("x-other", "2")],
            "hello",
        )
        .await;
    assert_eq!(by_host.status, 200);
    let seen = by_host.json();
    assert_eq!(
        (&seen["method"], &seen["uri"], &seen["body"]),
        (&json!("POST"), &json!("/a%20b?x=%2F&y"), &json!("hello"))
    );
    assert_eq!(header(&by_host, "host").unwrap(), host);
    assert_eq!(header(&by_host, "x-other").as_deref(), Some("2"));
    for gone in ["x-hop", "connection", "x-forwarded-host"] {
        assert_eq!(header(&by_host, gone), None, "{gone}");
    }
    let headers =
        [("e2b-sandbox-id", id.as_str()), ("e2b-sandbox-port", "8080"), ("x-api-key", "of the service")];
    let by_header = server.send("GET", "/", &headers, "").await;
    assert_eq!(by_header.status, 200);
    assert_eq!(header(&by_header, "x-api-key").as_deref(), Some("of the service"));
    let composite = server.send("GET", "/", &[("host", &format!("8080-{id}-6532622b.e2b.app"))], "").await;
    assert_eq!(composite.status, 200);
}

#[tokio::test]
async fn an_api_key_goes_to_the_api_and_bad_addresses_nowhere() {
    let server = with_services().await;
    let id = server.id(json!({})).await;
    let agent = [("e2b-sandbox-id", id.as_str()), ("e2b-sandbox-port", "49983")];
    let mut with_key = agent.to_vec();
    with_key.push(("x-api-key", KEY));
    let connect =
        server.send("POST", &format!("/sandboxes/{id}/connect"), &with_key, r#"{"timeout":60}"#).await;
    assert_eq!(connect.json()["sandboxID"], id);
    assert_eq!(server.send("GET", "/health", &agent, "").await.json()["uri"], "/health");
    for headers in [
        vec![("e2b-sandbox-id", id.as_str())],
        vec![("e2b-sandbox-port", "8080")],
        vec![("host", "x-y.localhost"), ("e2b-sandbox-port", "0"), ("e2b-sandbox-id", "ia")],
    ] {
        let reply = server.send("GET", "/", &headers, "").await;
        assert_eq!(reply.status, 400);
        assert!(reply.headers["content-type"].to_str().unwrap().starts_with("text/plain"));
    }
}

#[tokio::test]
async fn tokens_and_signatures_find_the_sandbox() {
    let server = with_services().await;
    server.id(json!({})).await;
    let made = server.create(json!({ "secure": true })).await;
    let token = made["envdAccessToken"].as_str().unwrap();
    let by_token = server.send("GET", "/health", &[("x-access-token", token)], "").await;
    assert_eq!(by_token.json()["uri"], "/health");
    assert_eq!(server.send("GET", "/health", &[("x-access-token", "unknown")], "").await.code(), 502);
    let signature = |text: &str| STANDARD_NO_PAD.encode(Sha256::digest(text)).replace('+', "%2B");
    let read = signature(&format!("/a:read:user:{token}"));
    let path = format!("/files?path=%2Fa&username=user&signature=v1_{read}");
    assert_eq!(server.send("GET", &path, &[], "").await.json()["uri"], path);
    assert_eq!(server.send("POST", &path, &[], "x").await.code(), 502);
    let expiring = signature(&format!("/a:write::{token}:1700000000"));
    let path = format!("/files?path=/a&signature=v1_{expiring}&signature_expiration=1700000000");
    assert_eq!(server.send("POST", &path, &[], "x").await.status, 200);
    let preflight = server.send("OPTIONS", "/files?path=a", &[("origin", "http://a.b"), CHROME], "").await;
    assert_eq!(preflight.status, 204);
}

#[tokio::test]
async fn control_routes_are_refused_in_any_spelling() {
    let server = with_services().await;
    let id = server.id(json!({})).await;
    let agent = [("e2b-sandbox-id", id.as_str()), ("e2b-sandbox-port", "49983")];
    for path in ["/init", "/%69nit", "//freeze", "/a/../upgrade", "/init/?x=1"] {
        let reply = server.send("POST", path, &agent, "{}").await;
        assert_eq!(reply.code(), 404, "{path}");
        assert!(reply.message().contains("reserved for the E2B control plane"));
        assert!(reply.json()["path"].is_string());
    }
    let service = [("e2b-sandbox-id", id.as_str()), ("e2b-sandbox-port", "8080")];
    assert_eq!(server.send("POST", "/init", &service, "{}").await.status, 200);
}

#[tokio::test]
async fn dead_sandboxes_and_closed_ports_are_told_apart() {
    let server = with_services().await;
    let id = server.id(json!({})).await;
    let ask = async |id: &str, port: &str, more: (&str, &str)| {
        server.send("GET", "/", &[("e2b-sandbox-id", id), ("e2b-sandbox-port", port), more], "").await
    };
    let none = ("accept", "*/*");
    let closed = ask(&id, "9", none).await;
    assert_eq!(closed.code(), 502);
    assert_eq!(
        closed.json(),
        json!({ "sandboxId": id, "message": "The sandbox is running but port is not open", "port": 9, "code": 502 })
    );
    let unknown = ask("inothere", "9", none).await;
    assert_eq!(unknown.code(), 502);
    assert_eq!(
        unknown.json(),
        json!({ "sandboxId": "inothere", "message": "The sandbox was not found", "code": 502 })
    );
    // The SDKs' URLs for files name a sandbox by their signature only.
    let changed = server.send("GET", "/files?path=a&signature=v1_changed", &[], "").await;
    assert_eq!((changed.code(), changed.message()), (502, "The sandbox was not found".into()));
    assert!(changed.json()["hint"].as_str().unwrap().contains("a URL that was changed"));
    let page = ask(&id, "9", CHROME).await;
    assert_eq!(
        (page.status.as_u16(), page.headers["content-type"].to_str().unwrap()),
        (502, "text/html; charset=utf-8")
    );
    assert!(page.text.starts_with("<html") && page.text.ends_with("</html>"));
    assert!(
        page.text.contains("no service running on port")
            && page.text.contains(&id)
            && page.text.contains('9')
    );
    let page = ask("inothere", "9", CHROME).await;
    assert!(page.text.contains("Sandbox Not Found") && page.text.contains("inothere"));
    assert_eq!(server.call("POST", &format!("/sandboxes/{id}/pause"), Value::Null).await.code(), 204);
    let paused = ask(&id, "8080", none).await;
    assert_eq!((paused.code(), paused.message().as_str()), (502, "The sandbox was not found"));
    assert_eq!(server.state(&id).await.as_deref(), Some("paused"));
}

#[tokio::test]
async fn private_sandboxes_demand_their_token_on_all_ports_but_the_agents() {
    let server = with_services().await;
    let made = server.create(json!({ "secure": true, "network": { "allowPublicTraffic": false } })).await;
    let id = made["sandboxID"].as_str().unwrap();
    let token = made["trafficAccessToken"].as_str().unwrap();
    let ask = async |port: &str, token: Option<&str>, more: (&str, &str)| {
        let mut headers = vec![("e2b-sandbox-id", id), ("e2b-sandbox-port", port), more];
        headers.extend(token.map(|t| ("e2b-traffic-access-token", t)));
        server.send("GET", "/", &headers, "").await
    };
    let none = ("accept", "*/*");
    let missing = ask("8080", None, none).await;
    assert_eq!(missing.code(), 403);
    assert_eq!(
        missing.message(),
        "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing"
    );
    let wrong = ask("8080", Some("x"), none).await;
    assert_eq!(wrong.code(), 403);
    assert_eq!(
        wrong.message(),
        "Sandbox is secured with traffic access token. Provided token in header 'e2b-traffic-access-token' is invalid"
    );
    assert!(ask("8080", None, CHROME).await.text.contains("Missing Traffic Access Token"));
    assert!(ask("8080", Some("x"), CHROME).await.text.contains("Invalid Traffic Access Token"));
    assert_eq!(ask("8080", Some(token), none).await.status, 200);
    assert_eq!(ask("9", Some(token), none).await.code(), 502);
    assert_eq!(ask("49983", None, none).await.status, 200);
}

#[tokio::test]
async fn hosts_are_masked_for_services_only() {
    let server = with_services().await;
    let id = server.id(json!({ "network": { "maskRequestHost": "localhost:${PORT}" } })).await;
    let host = format!("8080-{id}.localhost:3000");
    let masked = server.send("GET", "/", &[("host", &host)], "").await;
    assert_eq!(header(&masked, "host").as_deref(), Some("localhost:8080"));
    assert_eq!(header(&masked, "x-forwarded-host"), Some(host));
    let host = format!("49983-{id}.localhost:3000");
    let agent = server.send("GET", "/", &[("host", &host)], "").await;
    assert_eq!(header(&agent, "host"), Some(host));
}

#[tokio::test]
async fn a_request_with_two_hosts_goes_nowhere() {
    let server = with_services().await;
    let id = server.id(json!({})).await;
    let service = format!("8080-{id}.localhost");
    for hosts in [["localhost", &service], [&service, "localhost"], [&service, &service], ["localhost"; 2]] {
        let [first, second] = hosts;
        let head = format!("GET / HTTP/1.1\r\nhost: {first}\r\nhost: {second}\r\nconnection: close\r\n\r\n");
        let answer = read_to_end(&mut raw(&server, &head).await).await;
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{hosts:?}: {answer}");
        assert!(answer.ends_with("more than one Host header"), "{hosts:?}: {answer}");
    }
    let mut garbled = raw(&server, "").await;
    garbled
        .write_all(b"GET / HTTP/1.1\r\nhost: 8080-\xff.localhost\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    assert!(read_to_end(&mut garbled).await.starts_with(b"HTTP/1.1 400 "));
}

#[tokio::test]
async fn credentials_of_the_server_are_withheld_from_sandboxes() {
    let server = with_services().await;
    let id = server.id(json!({})).await;
    let other = server.other_team().await;
    for port in ["8080", "49983"] {
        let host = format!("{port}-{id}.localhost");
        let ask = async |name: &str, value: &str| {
            let reply = server.send("GET", "/", &[("host", &host), (name, value)], "").await;
            assert_eq!(reply.status, 200);
            header(&reply, name)
        };
        for (name, ours, theirs) in [
            ("x-api-key", KEY, "e2b_of_the_service"),
            ("x-api-key", other, ""),
            ("authorization", "Bearer sk_e2b_person", "Bearer sk_e2b_of_the_service"),
            ("authorization", "Bearer admin", "Basic dXNlcjo="),
            ("x-admin-token", "admin", "of the service"),
        ] {
            assert_eq!(ask(name, ours).await, None, "{name}: {ours}");
            assert_eq!(ask(name, theirs).await.as_deref(), Some(theirs), "{name}");
        }
    }
    let to = [("e2b-sandbox-id", id.as_str()), ("e2b-sandbox-port", "8080"), ("x-api-key", KEY)];
    assert_eq!(header(&server.send("GET", "/", &to, "").await, "x-api-key"), None);
}

#[tokio::test]
async fn large_bodies_go_both_ways() {
    let server = with_services().await;
    let id = server.id(json!({})).await;
    let to = [("e2b-sandbox-id", id.as_str()), ("e2b-sandbox-port", "8080")];
    let up = server.send("PUT", "/", &to, vec![b'x'; 8 << 20]).await;
    assert_eq!(up.json()["bytes"], 8 << 20);
    let down = server.send("GET", "/flood", &to, "").await;
    assert_eq!(down.text.len(), 8 << 20);
}

/// Sends a request by hand and gives back the connection.
pub async fn raw(server: &Server, head: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

pub async fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&seen).contains(text) {
        let read =
            tokio::time::timeout(crate::support::WAIT, stream.read(&mut buffer)).await.unwrap().unwrap();
        assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&buffer[..read]);
    }
    String::from_utf8_lossy(&seen).into_owned()
}

/// Reads up to the end of the connection, which has to be a reset.
async fn read_to_reset(stream: &mut TcpStream) -> Vec<u8> {
    let mut seen = Vec::new();
    let end = tokio::time::timeout(crate::support::WAIT, stream.read_to_end(&mut seen)).await;
    let error = end.expect("still open").expect_err("closed, not reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    seen
}

/// Everything up to the end of the connection; a reset is an end too.
pub async fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut seen = Vec::new();
    let _ =
        tokio::time::timeout(crate::support::WAIT, stream.read_to_end(&mut seen)).await.expect("still open");
    seen
}

#[tokio::test]
async fn streams_flow_unbuffered_and_are_reset_when_the_sandbox_ends() {
    let server = with_services().await;
    for end in ["kill", "pause"] {
        let id = server.id(json!({})).await;
        let head = format!("GET /endless HTTP/1.1\r\nhost: 8080-{id}.localhost\r\n\r\n");
        let mut stream = raw(&server, &head).await;
        assert!(read_until(&mut stream, "tick").await.starts_with("HTTP/1.1 200"));
        let code = match end {
            "kill" => server.call("DELETE", &format!("/sandboxes/{id}"), Value::Null).await.code(),
            _ => server.call("POST", &format!("/sandboxes/{id}/pause"), Value::Null).await.code(),
        };
        assert_eq!(code, 204);
        let rest = read_to_reset(&mut stream).await;
        assert!(!rest.ends_with(b"0\r\n\r\n"), "the body must stay unfinished after {end}");
        let health = [("e2b-sandbox-id", id.as_str()), ("e2b-sandbox-port", "49983")];
        assert!(server.send("GET", "/health", &health, "").await.message().contains("was not found"));
    }
}

#[tokio::test]
async fn silent_streams_are_reset_too() {
    let server = Server::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    server.fake.listen(8080, listener.local_addr().unwrap());
    let id = server.id(json!({})).await;
    let mut stream = raw(&server, &format!("GET / HTTP/1.1\r\nhost: 8080-{id}.localhost\r\n\r\n")).await;
    let (mut service, _) = listener.accept().await.unwrap();
    service.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n").await.unwrap();
    read_until(&mut stream, "hello").await;
    // Another request has not even a head yet.
    let mut waiting = raw(&server, &format!("GET / HTTP/1.1\r\nhost: 8080-{id}.localhost\r\n\r\n")).await;
    let (_silent, _) = listener.accept().await.unwrap();
    assert_eq!(server.call("DELETE", &format!("/sandboxes/{id}"), Value::Null).await.code(), 204);
    assert_eq!(read_to_reset(&mut stream).await, b"");
    assert!(read_until(&mut waiting, "was not found").await.starts_with("HTTP/1.1 502"));
}

#[tokio::test]
async fn a_request_without_an_answer_hears_that_the_server_stops() {
    let server = Server::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    server.fake.listen(8080, listener.local_addr().unwrap());
    let id = server.id(json!({})).await;
    let mut waiting = raw(&server, &format!("GET / HTTP/1.1\r\nhost: 8080-{id}.localhost\r\n\r\n")).await;
    let (_silent, _) = listener.accept().await.unwrap();
    let server = server.restart().await;
    let answer = read_until(&mut waiting, "try again").await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("The server is stopping"), "{answer}");
    assert_eq!(server.call("GET", &format!("/sandboxes/{id}"), Value::Null).await.code(), 200);
}

#[tokio::test]
async fn upgraded_connections_are_spliced_and_cut() {
    let server = Server::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    server.fake.listen(8080, listener.local_addr().unwrap());
    let id = server.id(json!({})).await;
    let head = format!(
        "GET /ws HTTP/1.1\r\nhost: 8080-{id}.localhost\r\nconnection: keep-alive, Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: k\r\n\r\n"
    );
    let mut client = raw(&server, &head).await;
    let (mut service, _) = listener.accept().await.unwrap();
    let seen = read_until(&mut service, "\r\n\r\n").await.to_lowercase();
    assert!(
        seen.contains("upgrade: websocket")
            && seen.contains("connection: upgrade")
            && seen.contains("sec-websocket-key: k")
    );
    service.write_all(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: a\r\n\r\nfrom the service").await.unwrap();
    let answer = read_until(&mut client, "from the service").await.to_lowercase();
    assert!(
        answer.starts_with("http/1.1 101")
            && answer.contains("upgrade: websocket")
            && answer.contains("sec-websocket-accept: a")
    );
    client.write_all(b"from the client").await.unwrap();
    read_until(&mut service, "from the client").await;
    assert_eq!(server.call("DELETE", &format!("/sandboxes/{id}"), Value::Null).await.code(), 204);
    assert_eq!(read_to_end(&mut client).await, b"");
}

/// Has a service give `answer` to two requests on each connection, each of which ends with `end`; counts the second ones.
fn answer_twice(listener: TcpListener, end: &'static str, answer: &'static str) -> Arc<AtomicUsize> {
    let reused = Arc::new(AtomicUsize::new(0));
    let counter = reused.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let counter = counter.clone();
            tokio::spawn(async move {
                for requests in 0..2 {
                    read_until(&mut stream, end).await;
                    counter.fetch_add(requests, Ordering::SeqCst);
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
            });
        }
    });
    reused
}

#[tokio::test]
async fn connections_to_a_service_are_kept_and_a_closed_one_is_replaced() {
    let server = Server::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    server.fake.listen(8080, listener.local_addr().unwrap());
    let id = server.id(json!({})).await;
    let reused = answer_twice(listener, "\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    // Each is answered, also right after a connection was closed. When one is reused is up to the connection's own task, which sees
    // the end of an exchange.
    for _ in 0..1000 {
        let reply = server.send("GET", "/", &[("host", &format!("8080-{id}.localhost"))], "").await;
        assert_eq!((reply.status.as_u16(), reply.text.as_str()), (200, "ok"));
        if reused.load(Ordering::SeqCst) >= 2 {
            return;
        }
    }
    panic!("no connection was used twice");
}

#[tokio::test]
async fn a_connection_is_kept_when_the_client_leaves_before_the_end_of_the_answer() {
    let server = Server::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    server.fake.listen(8080, listener.local_addr().unwrap());
    let id = server.id(json!({})).await;
    // In chunks both ways, as streams of the official clients.
    let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\ndone\r\n0\r\n\r\n";
    let reused = answer_twice(listener, "0\r\n\r\n", answer);
    let head = format!(
        "POST / HTTP/1.1\r\nhost: 8080-{id}.localhost\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
    );
    // When a connection is reused is up to its own task, which sees the end of an exchange.
    for _ in 0..1000 {
        let mut client = raw(&server, &head).await;
        read_until(&mut client, "done").await;
        drop(client);
        if reused.load(Ordering::SeqCst) > 0 {
            return;
        }
    }
    panic!("no connection was used twice");
}

#[tokio::test]
async fn a_connection_is_not_kept_when_the_answer_came_before_the_request_was_through() {
    let server = Server::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    server.fake.listen(8080, listener.local_addr().unwrap());
    let id = server.id(json!({})).await;
    let service = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = [0; 4096];
        assert!(stream.read(&mut buffer).await.unwrap() > 0);
        stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno").await.unwrap();
        // The other side hangs up.
        while stream.read(&mut buffer).await.unwrap() > 0 {}
    });
    let head = format!("POST / HTTP/1.1\r\nhost: 8080-{id}.localhost\r\ntransfer-encoding: chunked\r\n\r\n");
    let mut client = raw(&server, &head).await;
    read_until(&mut client, "no").await;
    client.write_all(b"1\r\nx\r\n0\r\n\r\n").await.unwrap();
    service.await.unwrap();
}

#[tokio::test]
async fn a_port_that_opens_soon_is_waited_for() {
    let server = Server::start().await;
    let id = server.id(json!({})).await;
    let headers = [("e2b-sandbox-id", id.as_str()), ("e2b-sandbox-port", "8080")];
    let (reply, ()) = tokio::join!(server.send("GET", "/", &headers, ""), async {
        server.fake.refused().await;
        server.fake.listen(8080, echo().await);
    });
    assert_eq!(reply.status, 200);
}

#[tokio::test]
async fn answers_that_a_service_breaks_off_are_reset() {
    let server = Server::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    server.fake.listen(8080, listener.local_addr().unwrap());
    let id = server.id(json!({})).await;
    for framing in ["transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", "content-length: 9\r\n\r\nhello"] {
        let mut stream = raw(&server, &format!("GET / HTTP/1.1\r\nhost: 8080-{id}.localhost\r\n\r\n")).await;
        let (mut service, _) = listener.accept().await.unwrap();
        service.write_all(format!("HTTP/1.1 200 OK\r\n{framing}").as_bytes()).await.unwrap();
        read_until(&mut stream, "hello").await;
        drop(service);
        read_to_reset(&mut stream).await;
    }
}

#[tokio::test]
async fn on_http_2_only_the_stream_of_a_sandbox_that_ended_is_reset() {
    use http_body_util::{BodyExt, Empty};
    let server = with_services().await;
    let stream = TcpStream::connect(server.address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let get = |port: u16, id: &str, path: &str| {
        let uri = format!("http://{port}-{id}.localhost{path}");
        http::Request::get(uri).body(Empty::<Bytes>::new()).unwrap()
    };
    let (ended, other) = (server.id(json!({})).await, server.id(json!({})).await);
    let mut cut = sender.send_request(get(8080, &ended, "/endless")).await.unwrap();
    let mut goes_on = sender.send_request(get(8080, &other, "/endless")).await.unwrap();
    assert!(cut.frame().await.unwrap().is_ok() && goes_on.frame().await.unwrap().is_ok());
    assert_eq!(server.call("DELETE", &format!("/sandboxes/{ended}"), Value::Null).await.code(), 204);
    let error = loop {
        match cut.frame().await.expect("ended as if it were whole") {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(format!("{error:?}").contains("INTERNAL_ERROR"), "{error:?}");
    assert_eq!(sender.send_request(get(49983, &ended, "/health")).await.unwrap().status(), 502);
    assert!(goes_on.frame().await.unwrap().is_ok());
}

#[tokio::test]
async fn header_names_are_written_as_programs_that_look_at_bytes_expect_them() {
    let server = Server::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    server.fake.listen(8080, listener.local_addr().unwrap());
    let mask = json!({ "network": { "maskRequestHost": "localhost:${PORT}" } });
    let id = server.id(mask).await;
    let head = format!(
        "GET / HTTP/1.1\r\nhost: 8080-{id}.localhost\r\naccept-encoding: gzip\r\nX-aPI-name: V\r\n\r\n"
    );
    let mut client = raw(&server, &head).await;
    let (mut service, _) = listener.accept().await.unwrap();
    let seen = read_until(&mut service, "\r\n\r\n").await;
    for line in [
        "Host: localhost:8080",
        "Accept-Encoding: gzip",
        "X-Api-Name: V",
        &format!("X-Forwarded-Host: 8080-{id}.localhost"),
    ] {
        assert!(seen.contains(&format!("\r\n{line}\r\n")), "{line}: {seen}");
    }
    service.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-other: v\r\n\r\nok").await.unwrap();
    let answer = read_until(&mut client, "ok").await;
    assert!(
        answer.contains("\r\nContent-Length: 2\r\n") && answer.contains("\r\nX-Other: v\r\n"),
        "{answer}"
    );
}

#[tokio::test]
async fn interim_answers_without_end_are_cut_off() {
    let server = Server::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    server.fake.listen(8080, listener.local_addr().unwrap());
    let service = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let hints = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n".repeat(100);
        let mut sent = 0;
        while sent < 1 << 30 && stream.write_all(hints.as_bytes()).await.is_ok() {
            sent += hints.len();
        }
        sent
    });
    let id = server.id(json!({})).await;
    let host = format!("8080-{id}.localhost");
    let reply = server.send("GET", "/", &[("host", &host)], "").await;
    assert_eq!(reply.status, 502);
    assert!(service.await.unwrap() < 1 << 30);
}

#[tokio::test]
async fn an_answer_after_interim_answers_is_passed_on() {
    let server = Server::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    server.fake.listen(8080, listener.local_addr().unwrap());
    let reused = Arc::new(AtomicUsize::new(0));
    let counter = reused.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let counter = counter.clone();
            tokio::spawn(async move {
                for requests in 0..2 {
                    read_until(&mut stream, "\r\n\r\n").await;
                    counter.fetch_add(requests, Ordering::SeqCst);
                    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n".repeat(1000);
                    stream.write_all(hints.as_bytes()).await.unwrap();
                    let head = "HTTP/1.1 200 OK\r\nContent-Length: 4000000\r\n\r\n";
                    stream.write_all(head.as_bytes()).await.unwrap();
                    stream.write_all(&vec![b'a'; 4_000_000]).await.unwrap();
                }
            });
        }
    });
    let id = server.id(json!({})).await;
    let host = format!("8080-{id}.localhost");
    // When a connection is reused is up to its own task, which sees the end of an exchange.
    for _ in 0..100 {
        let reply = server.send("GET", "/", &[("host", &host)], "").await;
        assert_eq!((reply.status.as_u16(), reply.text.len()), (200, 4_000_000));
        if reused.load(Ordering::SeqCst) > 0 {
            return;
        }
    }
    panic!("no connection was used twice");
}
