//! The client over connections into a sandbox, against an agent that answers with prepared bytes.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::sync::{Arc, Mutex};

use sandcove_client::{Command, CommandEvent, Program, Sandbox};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

type Seen = Arc<Mutex<Vec<String>>>;
type Ports = Arc<Mutex<Vec<u16>>>;

/// A sandbox whose agent answers each request with the next of `answers`, once it ends with `end`.
async fn sandbox(answers: Vec<(&'static str, Vec<u8>)>) -> (Sandbox, Seen, Ports) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (seen, ports) = (Seen::default(), Ports::default());
    let requests = Arc::clone(&seen);
    tokio::spawn(async move {
        for (end, answer) in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !String::from_utf8_lossy(&request).ends_with(end) {
                assert!(stream.read_buf(&mut request).await.unwrap() > 0, "the request has ended");
            }
            requests.lock().unwrap().push(String::from_utf8_lossy(&request).into_owned());
            stream.write_all(&answer).await.unwrap();
        }
    });
    let opened = Arc::clone(&ports);
    let sandbox = Sandbox::over("iabc".parse().unwrap(), move |port| {
        opened.lock().unwrap().push(port);
        TcpStream::connect(address)
    });
    (sandbox, seen, ports)
}

fn answer(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn frame(flags: u8, json: &str) -> Vec<u8> {
    let length = u32::try_from(json.len()).unwrap().to_be_bytes();
    [&[flags][..], &length, json.as_bytes()].concat()
}

#[tokio::test]
async fn a_program_runs_without_a_shell() {
    let stream = [
        frame(0, r#"{"event":{"start":{"pid":7}}}"#),
        frame(0, r#"{"event":{"data":{"stdout":"aGVsbG8="}}}"#),
        frame(0, r#"{"event":{"end":{"exitCode":0,"exited":true,"status":"exit status 0"}}}"#),
        frame(2, "{}"),
    ]
    .concat();
    let (sandbox, seen, ports) = sandbox(vec![("}", answer(&stream))]).await;
    let program = Program {
        program: "/run/tool".to_owned(),
        arguments: vec!["--step".to_owned()],
        user: Some("root".to_owned()),
        ..Program::default()
    };
    let mut output = Vec::new();
    let exit = sandbox.run_program(&program, |event| output.push(event)).await.unwrap();
    assert_eq!((exit.code, output), (0, vec![CommandEvent::Stdout("hello".into())]));
    let request = seen.lock().unwrap()[0].clone();
    assert!(request.contains(r#""cmd":"/run/tool","args":["--step"]"#), "{request}");
    assert!(request.contains("authorization: Basic cm9vdDo="), "{request}");
    assert!(!request.contains("e2b-sandbox-id"), "{request}");
    assert_eq!(*ports.lock().unwrap(), [49983]);
}

#[tokio::test]
async fn an_upload_is_streamed_as_the_user() {
    let (sandbox, seen, _) = sandbox(vec![("0\r\n\r\n", answer(b"[]"))]).await;
    let (mut writer, reader) = tokio::io::duplex(4);
    let writing = tokio::spawn(async move {
        writer.write_all(b"a streamed content").await.unwrap();
    });
    sandbox.upload("/tmp/a b", Some("root"), reader, None).await.unwrap();
    writing.await.unwrap();
    let request = seen.lock().unwrap()[0].clone();
    assert!(request.starts_with("POST /files?path=/tmp/a%20b&username=root HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("content-type: application/octet-stream"), "{request}");
    let body = request.split_once("\r\n\r\n").unwrap().1;
    let pieces: String = body.split("\r\n").skip(1).step_by(2).collect();
    assert_eq!(pieces, "a streamed content");
}

#[tokio::test]
async fn a_sandbox_that_is_gone_is_reported() {
    let refuse = |_| async { Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)) };
    let sandbox = Sandbox::over("iabc".parse().unwrap(), refuse);
    let error = sandbox.run(&Command::default(), |_| {}).await.unwrap_err();
    assert!(error.to_string().starts_with("no answer from http://127.0.0.1:49983: "), "{error}");
}
