//! Sandboxes of first-generation clients: who gets one, and which requests reach the adapter of their protocol.

use futures_util::future::join_all;
use sandcove_server::InterpreterToken;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::proxy::echo;
use crate::support::{KEY, Reply, Server, WAIT, base};

const DAEMON: u16 = 49982;
const KERNELS: u16 = 8888;
const RELEASE: [(&str, &str); 4] =
    [("x-api-key", KEY), ("publisher", "e2b"), ("package_version", "0.17.1"), ("lang", "python")];

/// A sandbox as first-generation clients create it.
async fn created(server: &Server, body: &Value) -> Reply {
    server.send("POST", "/sandboxes", &RELEASE, body.to_string()).await
}

/// The id of such a sandbox as its client shows it.
async fn glued(server: &Server) -> String {
    let made = created(server, &json!({ "templateID": "base" })).await;
    assert_eq!(made.code(), 201);
    let made = made.json();
    let id = ["sandboxID", "clientID"].map(|part| made[part].as_str().unwrap().to_owned());
    assert!(id.iter().all(|part| !part.is_empty() && !part.contains('-')), "{id:?}");
    id.join("-")
}

async fn ask(server: &Server, id: &str, port: u16, path: &str, token: Option<&str>) -> Reply {
    let host = format!("{port}-{id}.sbx.localhost");
    let mut headers = vec![("host", host.as_str())];
    headers.extend(token.map(|token| ("x-access-token", token)));
    server.send("GET", path, &headers, "").await
}

/// Opens the daemon's websocket.
async fn socket(server: &Server, id: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!(
        "GET /ws HTTP/1.1\r\nhost: {DAEMON}-{id}.sbx.localhost:3443\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         sec-websocket-extensions: permessage-deflate\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(timeout(WAIT, stream.read_u8()).await.unwrap().unwrap());
    }
    let answer = String::from_utf8(answer).unwrap().to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 101 "), "{answer}");
    assert!(answer.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"), "{answer}");
    assert!(!answer.contains("extensions"), "{answer}");
    stream
}

/// A frame with a mask of zeros.
fn frame(head: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![head];
    match payload.len() {
        short @ 0..126 => frame.push(0x80 | short as u8),
        long => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&u16::try_from(long).unwrap().to_be_bytes());
        }
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(payload);
    frame
}

/// The next frame, which is short: its first byte and its payload.
async fn read_frame(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut head = [0; 2];
    timeout(WAIT, stream.read_exact(&mut head)).await.unwrap().unwrap();
    let length = match head[1] {
        126 => stream.read_u16().await.unwrap().into(),
        short => usize::from(short),
    };
    let mut payload = vec![0; length];
    timeout(WAIT, stream.read_exact(&mut payload)).await.unwrap().unwrap();
    (head[0], payload)
}

async fn answer(stream: &mut TcpStream, request: &str) -> Value {
    stream.write_all(&frame(0x81, request.as_bytes())).await.unwrap();
    let (head, payload) = read_frame(stream).await;
    assert_eq!(head, 0x81);
    serde_json::from_slice(&payload).unwrap()
}

async fn is_over(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    // A connection that is reset has ended too.
    let _ = timeout(WAIT, stream.read_to_end(&mut rest)).await.expect("the connection is still open");
}

#[tokio::test]
async fn only_sandboxes_of_the_first_generation_have_the_adapter() {
    let server = Server::start().await;
    let id = glued(&server).await;
    let pong = ask(&server, &id, DAEMON, "/ping", None).await;
    assert_eq!((pong.status.as_u16(), pong.text.as_str()), (200, "pong"));
    assert_eq!(pong.headers["access-control-allow-origin"], "*");
    assert_eq!(ask(&server, &id, DAEMON, "/", None).await.status, 404);
    assert_eq!(ask(&server, &id, DAEMON, "/ws", None).await.status, 400, "it is no websocket");
    // Later clients, and one that asks for a token.
    let mut closed = vec![(id, 49981, None)];
    for extra in [json!({}), json!({ "secure": false }), json!({ "secure": true })] {
        let made = server.create(extra).await;
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        for (port, token) in [(DAEMON, None), (DAEMON, Some(text("envdAccessToken"))), (KERNELS, None)] {
            closed.push((text("sandboxID"), port, token));
        }
    }
    let secure = created(&server, &json!({ "templateID": "base", "secure": true })).await.json();
    closed.push((secure["sandboxID"].as_str().unwrap().to_owned(), DAEMON, None));
    let replies = closed.iter().map(|(id, port, token)| ask(&server, id, *port, "/ping", token.as_deref()));
    for reply in join_all(replies).await {
        assert_eq!(reply.json()["message"], "The sandbox is running but port is not open");
    }
}

#[tokio::test]
async fn a_service_inside_comes_before_the_adapter() {
    let server = Server::start().await;
    let id = glued(&server).await;
    server.fake.listen(KERNELS, echo().await);
    assert_eq!(ask(&server, &id, KERNELS, "/api/x", None).await.json()["uri"], "/api/x");
    server.fake.listen(DAEMON, echo().await);
    assert_eq!(ask(&server, &id, DAEMON, "/ping", None).await.json()["uri"], "/ping");
}

#[tokio::test]
async fn sandboxes_from_before_the_adapter_was_switched_off_lose_it() {
    let server = Server::start().await;
    let id = glued(&server).await;
    let server = server.restart().await;
    assert_eq!(ask(&server, &id, DAEMON, "/ping", None).await.status, 200);
    let server = server.restart_as(|config| config.legacy = false).await;
    assert_eq!(ask(&server, &id, DAEMON, "/ping", None).await.status, 502);
    assert_eq!(created(&server, &json!({ "templateID": "base" })).await.code(), 400);
}

#[tokio::test]
async fn code_needs_the_token_where_all_code_does() {
    let server = Server::with(|config| config.interpreter_token = InterpreterToken::Always).await;
    let made = created(&server, &json!({ "templateID": "base" })).await.json();
    let (id, token) = (made["sandboxID"].as_str().unwrap(), made["envdAccessToken"].as_str());
    assert_eq!(ask(&server, id, KERNELS, "/api/kernels", None).await.status, 403);
    assert_eq!(ask(&server, id, KERNELS, "/api/kernels", Some("wrong")).await.status, 403);
    // There is no interpreter here.
    assert_eq!(ask(&server, id, KERNELS, "/api/kernels", token).await.status, 502);
    assert_eq!(ask(&server, id, KERNELS, "/api/unknown", token).await.status, 404);
}

#[tokio::test]
async fn the_code_interpreter_has_another_name_now() {
    let server = Server::start().await;
    let wanted = json!({ "templateID": "code-interpreter-stateful" });
    assert_eq!(created(&server, &wanted).await.code(), 404);
    let mut template = base();
    template.template_id = "code0000000000000000".parse().unwrap();
    template.build_id = uuid::Uuid::from_u128(2);
    template.name = "code-interpreter-v1".into();
    server.app.templates().upsert_builtin(template).await.unwrap();
    let made = created(&server, &wanted).await;
    assert_eq!((made.code(), &made.json()["alias"]), (201, &json!("code-interpreter-v1")));
    assert_eq!(server.call("POST", "/sandboxes", wanted).await.code(), 404, "later clients know the name");
    assert_eq!(created(&server, &json!({ "templateID": "nothing" })).await.code(), 404);
}

#[tokio::test]
async fn bad_messages_are_answered_and_change_nothing() {
    let server = Server::start().await;
    let id = glued(&server).await;
    let mut stream = socket(&server, &id).await;
    for (request, id, code) in [
        ("{", Value::Null, -32700),
        ("[]", Value::Null, -32600),
        (r#"{"id":1}"#, json!(1), -32600),
        (r#"{"id":"a","method":"process_jump","params":[]}"#, json!("a"), -32601),
        (r#"{"id":2,"method":"process_start","params":[3]}"#, json!(2), -32602),
        // Nothing answers behind the adapter.
        (r#"{"id":3,"method":"filesystem_read","params":["/a"]}"#, json!(3), -32000),
        (r#"{"id":4,"method":"process_start","params":["p","true",{},""]}"#, json!(4), -32000),
        (r#"{"id":5,"method":"process_stdin","params":["p","x"]}"#, json!(5), -32000),
    ] {
        let answer = answer(&mut stream, request).await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(code)), "{request}: {answer}");
    }
    // A ping between two parts of a message, and notifications, which nobody answers.
    let request = br#"{"id":6,"method":"process_kill","params":["p"]}"#;
    stream.write_all(&frame(0x81, br#"{"method":"process_kill","params":["p"]}"#)).await.unwrap();
    stream.write_all(&frame(0x01, &request[..10])).await.unwrap();
    stream.write_all(&frame(0x89, b"ping")).await.unwrap();
    stream.write_all(&frame(0x80, &request[10..])).await.unwrap();
    assert_eq!(read_frame(&mut stream).await, (0x8A, b"ping".to_vec()));
    let (_, killed) = read_frame(&mut stream).await;
    assert_eq!(killed, br#"{"jsonrpc":"2.0","id":6,"result":null}"#);
    let subscribed =
        answer(&mut stream, r#"{"id":7,"method":"process_subscribe","params":["onExit","p"]}"#).await;
    let subscription = subscribed["result"].as_str().unwrap();
    assert!(subscription.starts_with("0x") && subscription.len() == 34, "{subscription}");
    let end = format!(r#"{{"id":8,"method":"process_unsubscribe","params":["{subscription}"]}}"#);
    assert_eq!(answer(&mut stream, &end).await["result"], true);
}

#[tokio::test]
async fn frames_that_break_the_protocol_end_the_connection() {
    let server = Server::start().await;
    let id = glued(&server).await;
    let too_large = [&[0x81, 0x80 | 127][..], &(1u64 << 40).to_be_bytes(), &[0; 4]].concat();
    for (bytes, code) in [
        (vec![0x81, 0x01, b'x'], 1002u16), // no mask
        (frame(0xC1, b"{}"), 1002),        // compressed
        (frame(0x80, b"{}"), 1002),        // continues nothing
        (frame(0x82, b"{}"), 1003),        // binary
        (frame(0x81, b"\xff"), 1007),      // not UTF-8
        (frame(0x09, b""), 1002),          // part of a ping
        (frame(0x88, &1000u16.to_be_bytes()), 1000),
        (too_large, 1009),
    ] {
        let mut stream = socket(&server, &id).await;
        stream.write_all(&bytes).await.unwrap();
        assert_eq!(read_frame(&mut stream).await, (0x88, code.to_be_bytes().to_vec()), "{bytes:?}");
        is_over(&mut stream).await;
    }
}

#[tokio::test]
async fn connections_end_with_the_sandbox() {
    let server = Server::start().await;
    for (method, verb) in [("POST", "/pause"), ("DELETE", "")] {
        let id = glued(&server).await;
        let mut stream = socket(&server, &id).await;
        let done = server.call(method, &format!("/sandboxes/{id}{verb}"), Value::Null).await;
        assert_eq!(done.code(), 204);
        is_over(&mut stream).await;
        assert_eq!(ask(&server, &id, DAEMON, "/ping", None).await.status, 502);
    }
}

#[tokio::test]
async fn a_sandbox_has_only_so_many_websockets() {
    let server = Server::start().await;
    let (id, other) = (glued(&server).await, glued(&server).await);
    let mut open = Vec::new();
    for _ in 0..64 {
        open.push(socket(&server, &id).await);
    }
    let host = format!("{DAEMON}-{id}.sbx.localhost");
    let headers = [
        ("host", host.as_str()),
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    assert_eq!(server.send("GET", "/ws", &headers, "").await.status, 503);
    drop(socket(&server, &other).await);
}
