//! What clients and services can make the server keep: connections that nothing comes of, idle ones, streams without end. And
//! what it passes on between them: code for the interpreter, switches of protocol.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sandcove_server::InterpreterToken;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::proxy::{echo, raw, read_to_end, read_until};
use crate::support::{KEY, Server, WAIT, wait_until};

const AGENT: u16 = 49983;
const INTERPRETER: u16 = 49999;

#[tokio::test]
async fn half_requests_do_not_stay_and_slow_streams_do() {
    let server = Server::with(|config| config.header_timeout = Duration::from_secs(3)).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    server.fake.listen(8080, listener.local_addr().unwrap());
    let id = server.id(json!({})).await;
    let head =
        |method: &str, more: &str| format!("{method} / HTTP/1.1\r\nhost: 8080-{id}.localhost\r\n{more}\r\n");
    // A download of which no byte comes, an upload of which no byte comes, and a connection of another protocol.
    let mut download = raw(&server, &head("GET", "")).await;
    let (mut downloading, _) = listener.accept().await.unwrap();
    downloading.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
    read_until(&mut download, "\r\n\r\n").await;
    let mut upload = raw(&server, &head("PUT", "content-length: 4\r\n")).await;
    let (mut uploading, _) = listener.accept().await.unwrap();
    read_until(&mut uploading, "\r\n\r\n").await;
    let mut socket = raw(&server, &head("GET", "connection: upgrade\r\nupgrade: websocket\r\n")).await;
    let (mut talking, _) = listener.accept().await.unwrap();
    let switched = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    talking.write_all(switched.as_bytes()).await.unwrap();
    read_until(&mut socket, "\r\n\r\n").await;

    let mut half = Vec::new();
    for begun in ["", "G", "PRI * HT", "GET /health HTTP/1.1\r\nhost: localhost\r\nx-endless: "] {
        for _ in 0..100 {
            half.push(raw(&server, begun).await);
        }
    }
    let mut second = raw(&server, "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    read_until(&mut second, "HTTP/1.1 200").await;
    second.write_all(b"GET /health HT").await.unwrap();
    half.push(second);
    for mut stream in half {
        read_to_end(&mut stream).await;
    }

    downloading.write_all(b"5\r\nslow!\r\n").await.unwrap();
    read_until(&mut download, "slow!").await;
    upload.write_all(b"slow").await.unwrap();
    read_until(&mut uploading, "slow").await;
    socket.write_all(b"slow").await.unwrap();
    read_until(&mut talking, "slow").await;
}

/// A service that answers every request and leaves its connections open; with the number of those that are.
async fn keeps_connections() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let open = Arc::new(AtomicUsize::new(0));
    let counter = open.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let counter = counter.clone();
            counter.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
                }
                counter.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    (address, open)
}

#[tokio::test]
async fn idle_connections_to_many_ports_are_few_and_expire() {
    let server = Server::start().await;
    let (address, open) = keeps_connections().await;
    let id = server.id(json!({ "timeout": 3600 })).await;
    for port in 10_000..10_300 {
        server.fake.listen(port, address);
        let reply = server.send("GET", "/", &[("host", &format!("{port}-{id}.localhost"))], "").await;
        assert_eq!(reply.text, "ok");
    }
    wait_until("idle connections are within the bound", || open.load(Ordering::SeqCst) <= 32).await;
    assert!(open.load(Ordering::SeqCst) > 0, "some are kept");
    wait_until("idle connections have expired", || open.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn visitors_of_a_service_leave_room_for_its_owner() {
    const MORE_THAN_ENOUGH: usize = 1100;
    let server = Server::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    server.fake.listen(8080, listener.local_addr().unwrap());
    server.fake.listen(AGENT, echo().await);
    tokio::spawn(async move {
        let mut held = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
            held.push(stream);
        }
    });
    let id = server.id(json!({ "timeout": 3600 })).await;
    let mut held: Vec<TcpStream> = Vec::new();
    let refused = loop {
        assert!(held.len() < MORE_THAN_ENOUGH, "nothing is refused");
        let mut stream = raw(&server, &format!("GET / HTTP/1.1\r\nhost: 8080-{id}.localhost\r\n\r\n")).await;
        let answer = read_until(&mut stream, "\r\n\r\n").await;
        if !answer.starts_with("HTTP/1.1 200") {
            break answer;
        }
        held.push(stream);
    };
    assert!(refused.starts_with("HTTP/1.1 429"), "{refused}");
    assert!(held.len() >= 32);
    let headers = [("host", &*format!("8080-{id}.localhost"))];
    let refused = server.send("GET", "/", &headers, "").await.json();
    assert_eq!((&refused["sandboxId"], &refused["code"]), (&json!(id), &json!(429)));
    assert_eq!(refused["connectionLimit"], json!(held.len()));
    let agent = [("e2b-sandbox-id", id.as_str()), ("e2b-sandbox-port", "49983")];
    assert_eq!(server.send("GET", "/health", &agent, "").await.status, 200);
    // What ends makes room.
    drop(held);
    let host = format!("8080-{id}.localhost");
    let deadline = tokio::time::Instant::now() + WAIT;
    loop {
        let mut stream = raw(&server, &format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n")).await;
        let answer = read_until(&mut stream, "\r\n\r\n").await;
        if answer.starts_with("HTTP/1.1 200") {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "no room is made: {answer}");
    }
}

#[tokio::test]
async fn a_switch_of_protocol_that_nobody_asked_for_is_not_passed_on() {
    let server = Server::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    server.fake.listen(8080, listener.local_addr().unwrap());
    let id = server.id(json!({})).await;
    for (asked, answered) in [
        ("", "connection: upgrade\r\nupgrade: websocket\r\n"),
        ("", ""),
        // Asked for, but the answer does not say what for.
        ("connection: upgrade\r\nupgrade: websocket\r\n", ""),
    ] {
        let head = format!("GET / HTTP/1.1\r\nhost: 8080-{id}.localhost\r\n{asked}\r\n");
        let mut client = raw(&server, &head).await;
        let (mut service, _) = listener.accept().await.unwrap();
        read_until(&mut service, "\r\n\r\n").await;
        let switched =
            format!("HTTP/1.1 101 Switching Protocols\r\n{answered}\r\nGET /tunnelled HTTP/1.1\r\n");
        service.write_all(switched.as_bytes()).await.unwrap();
        let answer = read_until(&mut client, "without being asked").await;
        assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
        assert!(!answer.contains("tunnelled"), "{answer}");
    }
}

/// The status of a request to the interpreter of a sandbox.
async fn ask(server: &Server, made: &Value, method: &str, path: &str, token: Option<&str>) -> u16 {
    let mut headers =
        vec![("e2b-sandbox-id", made["sandboxID"].as_str().unwrap()), ("e2b-sandbox-port", "49999")];
    headers.extend(token.map(|token| ("x-access-token", token)));
    server.send(method, path, &headers, "{}").await.status.as_u16()
}

async fn with_interpreter(demanded: InterpreterToken) -> Server {
    let server = Server::with(|config| config.interpreter_token = demanded).await;
    server.fake.listen(INTERPRETER, echo().await);
    server
}

/// A sandbox created by a release of the official clients.
async fn created_by(server: &Server, release: &str, body: &Value) -> Value {
    let headers = [("x-api-key", KEY), ("publisher", "e2b"), ("package_version", release)];
    let reply = server.send("POST", "/sandboxes", &headers, body.to_string()).await;
    assert_eq!(reply.status, 201, "{}", reply.text);
    reply.json()
}

#[tokio::test]
async fn code_runs_in_secure_sandboxes_only_with_the_token() {
    let server = with_interpreter(InterpreterToken::default()).await;
    let secure = json!({ "templateID": "base", "timeout": 60, "secure": true });
    let made = created_by(&server, "2.11.5", &secure).await;
    let token = made["envdAccessToken"].as_str().unwrap();
    let other = created_by(&server, "2.11.5", &secure).await;
    let others = other["envdAccessToken"].as_str().unwrap();
    for path in ["/execute", "/execute?x=/contexts", "//execute", "/unknown", "/contextsexecute"] {
        assert_eq!(ask(&server, &made, "POST", path, None).await, 403, "{path}");
        assert_eq!(ask(&server, &made, "POST", path, Some(others)).await, 403, "{path}");
        assert_eq!(ask(&server, &made, "POST", path, Some(token)).await, 200, "{path}");
    }
    // What official clients send without a token.
    for (method, path) in [
        ("GET", "/health"),
        ("OPTIONS", "/execute"),
        ("POST", "/contexts"),
        ("GET", "/contexts"),
        ("POST", "/contexts/a/restart"),
        ("DELETE", "/contexts/a"),
    ] {
        assert_eq!(ask(&server, &made, method, path, None).await, 200, "{method} {path}");
    }
    // Other ports of the sandbox are as open as before.
    server.fake.listen(8080, echo().await);
    let id = made["sandboxID"].as_str().unwrap();
    let to = [("host", format!("8080-{id}.localhost"))];
    let to = [(to[0].0, to[0].1.as_str())];
    assert_eq!(server.send("POST", "/execute", &to, "{}").await.status, 200);
}

#[tokio::test]
async fn clients_that_cannot_send_the_token_run_code_without_it() {
    let server = with_interpreter(InterpreterToken::default()).await;
    let secure = json!({ "templateID": "base", "timeout": 60, "secure": true });
    let open = json!({ "templateID": "base", "timeout": 60, "secure": false });
    for (release, body) in [
        ("1.5.2", &secure),
        ("1.13.2", &secure),
        ("1.0.6", &open),
        ("2.11.5", &open),
        ("0.17.2-beta", &secure),
    ] {
        let made = created_by(&server, release, body).await;
        assert_eq!(ask(&server, &made, "POST", "/execute", None).await, 200, "{release} {body}");
    }
    // A client that says nothing of itself, and the second version of the call, which is always secure.
    let unknown = server.create(json!({ "secure": true })).await;
    assert_eq!(ask(&server, &unknown, "POST", "/execute", None).await, 403);
    let second = server.call("POST", "/v2/sandboxes", json!({ "templateID": "base" })).await.json();
    assert_eq!(ask(&server, &second, "POST", "/execute", None).await, 403);
}

#[tokio::test]
async fn the_operator_decides_what_the_interpreter_demands() {
    let secure = json!({ "secure": true });
    let server = with_interpreter(InterpreterToken::Never).await;
    let made = server.create(secure.clone()).await;
    assert_eq!(ask(&server, &made, "POST", "/execute", None).await, 200);
    let server = with_interpreter(InterpreterToken::Always).await;
    for body in [secure, json!({})] {
        let made = server.create(body).await;
        // Also sandboxes that are not secure have a token, which the details show.
        let detail = server.get(&format!("/sandboxes/{}", made["sandboxID"].as_str().unwrap())).await.json();
        let token = detail["envdAccessToken"].as_str().unwrap();
        for path in ["/execute", "/contexts", "/contexts/a"] {
            assert_eq!(ask(&server, &made, "POST", path, None).await, 403, "{path}");
            assert_eq!(ask(&server, &made, "POST", path, Some(token)).await, 200, "{path}");
        }
        assert_eq!(ask(&server, &made, "GET", "/health", None).await, 200);
    }
}

#[tokio::test]
async fn what_the_interpreter_demands_outlives_the_server_and_is_copied_by_forks() {
    let server = with_interpreter(InterpreterToken::default()).await;
    let made = server.create(json!({ "secure": true })).await;
    let id = made["sandboxID"].as_str().unwrap();
    let server = server.restart().await;
    assert_eq!(ask(&server, &made, "POST", "/execute", None).await, 403);
    let forks = server.call("POST", &format!("/sandboxes/{id}/fork"), json!({ "count": 1 })).await.json();
    let fork = json!({ "sandboxID": forks[0]["sandbox"]["sandboxID"] });
    assert!(fork["sandboxID"].is_string(), "{forks}");
    assert_eq!(ask(&server, &fork, "POST", "/execute", None).await, 403);
}

#[tokio::test]
async fn a_request_may_have_hundreds_of_header_fields() {
    let server = Server::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    server.fake.listen(8080, listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let request = read_until(&mut stream, "\r\n\r\n").await;
        let count = request.to_lowercase().matches("x-metadata-").count();
        let status = if count == 500 { "200 OK" } else { "400 Bad Request" };
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.unwrap();
    });
    let id = server.id(json!({})).await;
    let fields: String = (0..500).map(|n| format!("x-metadata-{n}: {n}\r\n")).collect();
    for host in [server.address.to_string(), format!("8080-{id}.localhost")] {
        let request = format!("GET /health HTTP/1.1\r\nhost: {host}\r\n{fields}\r\n");
        let mut stream = raw(&server, &request).await;
        let answer = read_until(&mut stream, "\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{host}: {answer}");
    }
}
