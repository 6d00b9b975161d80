//! Forwarded ports, against a server that records its requests.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::net::SocketAddr;
use std::time::Duration;

use sandcove_client::Client;
use sandcove_wire::secret::Secret;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

const INFO: &str =
    r#"{"envdAccessToken":"agent-token","state":"running","network":{"allowPublicTraffic":false}}"#;
const CONNECTED: &str = r#"{"templateID":"t","sandboxID":"iabc","clientID":"c","envdVersion":"0.6.13","trafficAccessToken":"traffic-token"}"#;

async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap().to_ascii_lowercase()
}

/// Forwards `port`. The receiver gets the connections of the server after the sandbox was looked up.
async fn forwarded(port: u16) -> (SocketAddr, mpsc::UnboundedReceiver<TcpStream>) {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", server.local_addr().unwrap());
    let (sender, connections) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for body in [INFO, CONNECTED] {
            let (mut stream, _) = server.accept().await.unwrap();
            // What is left unread when the stream is closed would reset it, and the answer could be lost.
            if read_head(&mut stream).await.starts_with("post ") {
                stream.read_exact(&mut [0; r#"{"timeout":0}"#.len()]).await.unwrap();
            }
            let length = body.len();
            let answer =
                format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        while let Ok((stream, _)) = server.accept().await {
            sender.send(stream).unwrap();
        }
    });
    let client = Client::new(&url, &Secret::new("e2b_00")).unwrap();
    let sandbox = client.attach(&"iabc".parse().unwrap()).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { sandbox.forward(port, listener).await });
    (address, connections)
}

#[tokio::test]
async fn requests_get_the_sandbox_and_its_tokens_but_keep_their_own() {
    let cases: [(u16, &str, &[&str], &[&str]); 4] = [
        (49983, "", &["x-access-token: agent-token"], &["traffic-token"]),
        (
            49983,
            "X-Access-Token: mine\r\nX-API-Key: k\r\n",
            &["x-access-token: mine"],
            &["agent-token", "x-api-key"],
        ),
        (49999, "", &["x-access-token: agent-token", "e2b-traffic-access-token: traffic-token"], &[]),
        (
            8080,
            "X-API-Key: k\r\nE2b-Sandbox-Id: other\r\n",
            &["x-api-key: k", "traffic-token"],
            &["agent-token", "other"],
        ),
    ];
    for (port, sent, present, absent) in cases {
        let (address, mut connections) = forwarded(port).await;
        let mut caller = TcpStream::connect(address).await.unwrap();
        let request = format!("GET /a/b?c=%20d HTTP/1.1\r\nHost: localhost:1\r\n{sent}\r\n");
        caller.write_all(request.as_bytes()).await.unwrap();
        let head = read_head(&mut connections.recv().await.unwrap()).await;
        assert!(head.starts_with("get /a/b?c=%20d http/1.1\r\n"), "{head}");
        let always = [
            "host: localhost:1".to_owned(),
            "e2b-sandbox-id: iabc".to_owned(),
            format!("e2b-sandbox-port: {port}"),
        ];
        for line in always.iter().map(String::as_str).chain(present.iter().copied()) {
            assert!(head.contains(line), "{line} is missing in {head}");
        }
        for line in absent {
            assert!(!head.contains(line), "{line} is in {head}");
        }
    }
}

#[tokio::test]
async fn bodies_pass_both_ways_before_they_end() {
    let (address, mut connections) = forwarded(8080).await;
    let mut caller = TcpStream::connect(address).await.unwrap();
    caller
        .write_all(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        .await
        .unwrap();
    let mut server = connections.recv().await.unwrap();
    read_head(&mut server).await;
    let mut chunk = [0; 8];
    server.read_exact(&mut chunk).await.unwrap();
    assert_eq!(&chunk, b"3\r\none\r\n");
    server.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ntwo\r\n").await.unwrap();
    read_head(&mut caller).await;
    caller.read_exact(&mut chunk).await.unwrap();
    assert_eq!(&chunk, b"3\r\ntwo\r\n");
    caller.write_all(b"5\r\nthree\r\n0\r\n\r\n").await.unwrap();
    let mut rest = [0; 15];
    server.read_exact(&mut rest).await.unwrap();
    assert_eq!(&rest, b"5\r\nthree\r\n0\r\n\r\n");
}

#[tokio::test]
async fn upgraded_connections_pass_any_bytes() {
    let (address, mut connections) = forwarded(8080).await;
    let mut caller = TcpStream::connect(address).await.unwrap();
    caller
        .write_all(b"GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .await
        .unwrap();
    let mut server = connections.recv().await.unwrap();
    assert!(read_head(&mut server).await.contains("upgrade: websocket"));
    server
        .write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhi")
        .await
        .unwrap();
    let head = read_head(&mut caller).await;
    assert!(head.starts_with("http/1.1 101") && head.contains("connection: upgrade"), "{head}");
    let mut two = [0; 2];
    caller.read_exact(&mut two).await.unwrap();
    assert_eq!(&two, b"hi");
    caller.write_all(b"\x00\xff").await.unwrap();
    server.read_exact(&mut two).await.unwrap();
    assert_eq!(&two, b"\x00\xff");
    drop(server);
    assert_eq!(caller.read(&mut two).await.unwrap(), 0, "the end is passed on");
}

#[tokio::test]
async fn a_caller_that_leaves_ends_the_request() {
    let (address, mut connections) = forwarded(8080).await;
    let mut caller = TcpStream::connect(address).await.unwrap();
    caller.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
    let mut server = connections.recv().await.unwrap();
    read_head(&mut server).await;
    drop(caller);
    let end = tokio::time::timeout(Duration::from_secs(60), server.read_u8()).await.unwrap();
    assert!(end.is_err(), "nothing more was to come");
}
