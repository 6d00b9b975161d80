//! The process service as a client sees it, without sockets: requests go straight into the pipeline.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use sandcove_agent::account::Accounts;
use sandcove_agent::process::Processes;
use sandcove_agent::rpc::envelope::{Decoder, Encoding};
use sandcove_agent::server::{self, Entrance, Pipeline};
use sandcove_agent::spawn::{Children, Reaping};
use sandcove_agent::state::State;
use sandcove_wire::boot::Settings;
use serde_json::{Value, json};

/// A daemon whose processes run as the user that runs the tests.
fn daemon(settings: Settings) -> Arc<Pipeline> {
    let own = rustix::process::geteuid().as_raw();
    let user = Accounts::load().unwrap().user_name(own);
    let state = State::new(Settings { default_user: Some(user), ..settings });
    let children = Children::start(Reaping::OwnChildren).unwrap();
    server::build(state, &Processes::new(children))
}

fn envelope(message: &Value) -> Vec<u8> {
    let text = message.to_string();
    let mut bytes = vec![0];
    bytes.extend_from_slice(&u32::try_from(text.len()).unwrap().to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

/// The answer to a streaming RPC, message by message.
struct Messages {
    body: Body,
    decoder: Decoder,
    raw: Vec<u8>,
}

impl Messages {
    async fn of(daemon: &Pipeline, method: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Self {
        let request = Request::post(format!("/process.Process/{method}"))
            .header("content-type", "application/connect+json");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let response = daemon.handle(Entrance::Public, request.body(Body::from(body)).unwrap()).await;
        assert_eq!(response.status(), StatusCode::OK);
        Self { body: response.into_body(), decoder: Decoder::new(Encoding::Identity), raw: Vec::new() }
    }

    /// The next event; `None` at the end of the stream.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(payload) = self.decoder.next_payload().unwrap() {
                let message: Value = serde_json::from_slice(&payload).unwrap();
                return Some(message["event"].clone());
            }
            let frame = self.body.frame().await?.unwrap();
            self.raw.extend_from_slice(frame.data_ref().unwrap());
            self.decoder.push(frame.data_ref().unwrap());
        }
    }

    async fn pid(&mut self) -> u64 {
        self.next().await.unwrap()["start"]["pid"].as_u64().unwrap()
    }

    /// Reads to the end: output and errors joined, the end event, and the end of the stream.
    async fn rest(mut self) -> (String, Value, Value) {
        let (mut text, mut end) = (String::new(), Value::Null);
        while let Some(event) = self.next().await {
            for channel in ["stdout", "stderr", "pty"] {
                if let Some(bytes) = event["data"][channel].as_str() {
                    text.push_str(&decoded(bytes));
                }
            }
            if event["end"].is_object() {
                assert!(end.is_null(), "two ends");
                end = event["end"].clone();
            }
        }
        let start = self.raw.windows(3).rposition(|flag| flag == [2, 0, 0]).unwrap();
        (text, end, serde_json::from_slice(&self.raw[start + 5..]).unwrap())
    }
}

fn decoded(base64: &str) -> String {
    use base64::Engine;
    String::from_utf8_lossy(&base64::engine::general_purpose::STANDARD.decode(base64).unwrap()).into_owned()
}

fn shell(script: &str) -> Value {
    json!({ "process": { "cmd": "/bin/sh", "args": ["-c", script], "cwd": "/" }, "stdin": false })
}

async fn start(daemon: &Pipeline, request: &Value) -> Messages {
    Messages::of(daemon, "Start", &[], envelope(request)).await
}

async fn connect(daemon: &Pipeline, selector: Value) -> Messages {
    Messages::of(daemon, "Connect", &[], envelope(&json!({ "process": selector }))).await
}

async fn unary(daemon: &Pipeline, method: &str, message: Value) -> (StatusCode, Value) {
    let request =
        Request::post(format!("/process.Process/{method}")).header("content-type", "application/json");
    let response =
        daemon.handle(Entrance::Public, request.body(Body::from(message.to_string())).unwrap()).await;
    let status = response.status();
    (status, serde_json::from_slice(&bytes(response).await).unwrap())
}

async fn bytes(response: Response<Body>) -> Vec<u8> {
    response.into_body().collect().await.unwrap().to_bytes().to_vec()
}

#[tokio::test]
async fn a_command_has_a_start_its_output_and_an_end() {
    let daemon = daemon(Settings::default());
    let mut messages = start(&daemon, &shell("echo out; echo err >&2; exit 3")).await;
    assert!(messages.pid().await > 0);
    let (text, end, last) = messages.rest().await;
    assert!(text.contains("out\n") && text.contains("err\n"));
    assert_eq!(
        end,
        json!({ "exitCode": 3, "exited": true, "status": "exit status 3", "error": "exit status 3" })
    );
    assert_eq!(last, json!({}));
}

#[tokio::test]
async fn a_missing_command_is_a_process_that_says_so() {
    let daemon = daemon(Settings::default());
    for (cmd, code) in [("no-such-command", 127), ("", 127), ("/no/such", 127), ("/etc/passwd", 126)] {
        let request = json!({ "process": { "cmd": cmd, "cwd": "/" }, "stdin": false });
        let mut messages = start(&daemon, &request).await;
        messages.pid().await;
        let (text, end, _) = messages.rest().await;
        assert_eq!(end["exitCode"], code, "{cmd}");
        assert!(text.starts_with(&format!("exec: {cmd}: ")), "{text}");
    }
}

#[tokio::test]
async fn a_directory_that_cannot_be_entered_is_an_error_without_start() {
    let daemon = daemon(Settings::default());
    for cwd in ["/no/such", "/etc/passwd", "~other"] {
        let messages = start(&daemon, &json!({ "process": { "cmd": "true", "cwd": cwd } })).await;
        let (_, end, last) = messages.rest().await;
        assert!(end.is_null());
        assert_eq!(last["error"]["code"], "invalid_argument", "{last}");
    }
}

#[tokio::test]
async fn variables_of_the_request_win_and_nothing_else_is_inherited() {
    let settings = Settings {
        env_vars: Some([("A".into(), "1".into()), ("B".into(), "1".into())].into()),
        ..Settings::default()
    };
    let daemon = daemon(settings);
    let mut request = shell("/usr/bin/env");
    request["process"]["envs"] = json!({ "B": "2", "EMPTY": "" });
    let (text, _, _) = start(&daemon, &request).await.rest().await;
    let mut names: Vec<&str> = text
        .lines()
        .filter(|line| !["PWD", "_", "OLDPWD", "SHLVL"].contains(&line.split('=').next().unwrap()))
        .collect();
    names.retain(|line| {
        !["PATH=", "HOME=", "USER=", "LOGNAME="].iter().any(|prefix| line.starts_with(prefix))
    });
    names.sort_unstable();
    assert_eq!(names, ["A=1", "B=2", "E2B_SANDBOX=true", "EMPTY="]);
}

#[tokio::test]
async fn no_descriptor_of_the_daemon_leaks() {
    let daemon = daemon(Settings::default());
    let (text, _, _) = start(&daemon, &shell("ls /proc/self/fd | tr '\\n' ' '")).await.rest().await;
    // The fourth is the directory that `ls` itself reads.
    assert_eq!(text, "0 1 2 3 ");
}

#[tokio::test]
async fn input_arrives_until_it_is_closed() {
    let daemon = daemon(Settings::default());
    let mut messages = start(&daemon, &json!({ "process": { "cmd": "/bin/cat", "cwd": "/" } })).await;
    let process = json!({ "pid": messages.pid().await });
    let input = json!({ "process": process, "input": { "stdin": "aGVsbG8K" } });
    assert_eq!(unary(&daemon, "SendInput", input.clone()).await, (StatusCode::OK, json!({})));
    assert_eq!(messages.next().await.unwrap(), json!({ "data": { "stdout": "aGVsbG8K" } }));

    let mut stream = envelope(&json!({ "start": { "process": process } }));
    stream.extend(envelope(&json!({ "keepalive": {} })));
    stream.extend(envelope(&json!({ "data": { "input": { "stdin": "eA==" } } })));
    let mut answer = Messages::of(&daemon, "StreamInput", &[], stream).await;
    assert_eq!(answer.next().await, Some(Value::Null));
    assert_eq!(answer.next().await, None);

    for _ in 0..2 {
        assert_eq!(
            unary(&daemon, "CloseStdin", json!({ "process": process })).await,
            (StatusCode::OK, json!({}))
        );
    }
    let (text, end, _) = messages.rest().await;
    assert_eq!((text.as_str(), &end["exited"]), ("x", &json!(true)));
    let (status, error) = unary(&daemon, "SendInput", input).await;
    assert_eq!((status, &error["code"]), (StatusCode::NOT_FOUND, &json!("not_found")));
}

#[tokio::test]
async fn refused_input_is_read_to_its_end_so_that_the_client_sees_why() {
    let daemon = daemon(Settings::default());
    let (pieces, arriving) = tokio::sync::mpsc::channel(1);
    let body = futures_util::stream::unfold(arriving, |mut arriving| async {
        arriving.recv().await.map(|piece: Vec<u8>| (Ok::<_, std::io::Error>(piece), arriving))
    });
    let request = Request::post("/process.Process/StreamInput")
        .header("content-type", "application/connect+json")
        .body(Body::from_stream(body))
        .unwrap();
    pieces.send(envelope(&json!({ "start": { "process": { "pid": 4_000_000 } } }))).await.unwrap();
    let answer = daemon.handle(Entrance::Public, request).await.into_body().collect().await.unwrap();
    assert!(String::from_utf8_lossy(&answer.to_bytes()).contains("not_found"));
    for _ in 0..10 {
        pieces.send(vec![0; 1 << 16]).await.unwrap();
    }
}

#[tokio::test]
async fn a_command_longer_than_the_kernel_takes_says_so() {
    let daemon = daemon(Settings::default());
    let long = json!({ "process": { "cmd": "/bin/echo", "args": ["x".repeat(1 << 20)], "cwd": "/" } });
    let (_, end, last) = start(&daemon, &long).await.rest().await;
    assert!(end.is_null());
    assert_eq!(last["error"]["code"], "invalid_argument", "{last}");
    assert_eq!(
        last["error"]["message"],
        "failed to pass the arguments and variables: Argument list too long (os error 7)"
    );
}

#[tokio::test]
async fn a_write_that_waits_is_let_go_when_input_is_closed() {
    let daemon = daemon(Settings::default());
    let mut messages =
        start(&daemon, &json!({ "process": { "cmd": "/bin/sleep", "args": ["100"], "cwd": "/" } })).await;
    let process = json!({ "pid": messages.pid().await });
    let large = json!({ "process": process, "input": { "stdin": "eHh4".repeat(100_000) } });
    let (written, closed) = tokio::join!(unary(&daemon, "SendInput", large), async {
        tokio::task::yield_now().await;
        unary(&daemon, "CloseStdin", json!({ "process": process })).await
    });
    assert_eq!((written.0, closed.0), (StatusCode::INTERNAL_SERVER_ERROR, StatusCode::OK));
    let signal = json!({ "process": process, "signal": "SIGNAL_SIGKILL" });
    assert_eq!(unary(&daemon, "SendSignal", signal).await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_kill_is_not_held_up_by_descendants_that_keep_the_output_open() {
    let daemon = daemon(Settings::default());
    let mut messages = start(&daemon, &shell("echo before; sleep 600 & echo $!; wait")).await;
    let process = json!({ "pid": messages.pid().await });
    let mut seen = String::new();
    while seen.matches('\n').count() < 2 {
        seen.push_str(&decoded(messages.next().await.unwrap()["data"]["stdout"].as_str().unwrap()));
    }
    let signal = json!({ "process": process, "signal": "SIGNAL_SIGTERM" });
    assert_eq!(unary(&daemon, "SendSignal", signal.clone()).await.0, StatusCode::OK);
    let (_, end, _) = messages.rest().await;
    let expected = json!({ "exitCode": -1, "status": "signal: terminated", "error": "signal: terminated" });
    assert_eq!(end, expected);
    assert_eq!(unary(&daemon, "SendSignal", signal).await.0, StatusCode::NOT_FOUND);
    let sleeper = seen.lines().nth(1).unwrap().parse().unwrap();
    let sleeper = rustix::process::Pid::from_raw(sleeper).unwrap();
    rustix::process::kill_process(sleeper, rustix::process::Signal::KILL)
        .expect("the descendant still held the output open");
}

#[tokio::test]
async fn the_deadline_of_a_start_kills_even_after_the_client_has_left() {
    let daemon = daemon(Settings::default());
    // Long enough for the start even on a busy machine; whatever comes first afterwards, the outcome is the same.
    let timeout = [("connect-timeout-ms", "6000")];
    let request = envelope(&shell("echo on; exec sleep 60"));
    let stayed = Messages::of(&daemon, "Start", &timeout, request.clone()).await;
    let mut left = Messages::of(&daemon, "Start", &timeout, request).await;
    let pid = left.pid().await;
    drop(left);
    let watcher = connect(&daemon, json!({ "pid": pid })).await;
    let (_, end, last) = stayed.rest().await;
    assert!(end.is_null());
    assert_eq!(last["error"]["code"], "deadline_exceeded");
    let (_, end, _) = watcher.rest().await;
    assert_eq!(end["status"], "signal: killed");
}

#[tokio::test]
async fn output_nobody_saw_waits_for_the_next_client_and_so_does_the_end() {
    let daemon = daemon(Settings::default());
    let mut request = shell("read go; echo late; exit 4").take_stdin();
    request["tag"] = json!("job");
    let mut first = start(&daemon, &request).await;
    let pid = first.pid().await;
    drop(first);
    let input = json!({ "process": { "pid": pid }, "input": { "stdin": "Cg==" } });
    assert_eq!(unary(&daemon, "SendInput", input).await.0, StatusCode::OK);
    let ended = async {
        while unary(&daemon, "List", json!({})).await.1 != json!({}) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), ended).await.expect("the process ends");
    let (text, end, _) = connect(&daemon, json!({ "tag": "job" })).await.rest().await;
    assert_eq!((text.as_str(), &end["exitCode"]), ("late\n", &json!(4)));
    let (text, end, _) = connect(&daemon, json!({ "pid": pid })).await.rest().await;
    assert_eq!((text.as_str(), &end["exitCode"]), ("", &json!(4)));
    assert_eq!(unary(&daemon, "List", json!({})).await.1, json!({}));
}

#[tokio::test]
async fn every_subscriber_sees_all_output_from_its_start() {
    let daemon = daemon(Settings::default());
    let mut first =
        start(&daemon, &shell("read go; head -c 3000000 /dev/zero | tr '\\0' x").take_stdin()).await;
    let process = json!({ "pid": first.pid().await });
    let second = connect(&daemon, process.clone()).await;
    unary(&daemon, "SendInput", json!({ "process": process, "input": { "stdin": "Cg==" } })).await;
    let (first, second) = tokio::join!(first.rest(), second.rest());
    assert_eq!((first.0.len(), second.0.len()), (3_000_000, 3_000_000));
}

#[tokio::test]
async fn a_terminal_has_its_size_and_takes_input() {
    let daemon = daemon(Settings::default());
    let request = json!({
        "process": { "cmd": "/bin/sh", "args": ["-c", "stty -echo; stty size; read x; stty size; tty -s && exit 6"], "cwd": "/" },
        "pty": { "size": { "cols": 80, "rows": 24 } },
    });
    let mut messages = start(&daemon, &request).await;
    let process = json!({ "pid": messages.pid().await });
    // A line may come in pieces.
    let mut size = String::new();
    while !size.ends_with("\r\n") {
        size.push_str(&decoded(messages.next().await.unwrap()["data"]["pty"].as_str().unwrap()));
    }
    assert_eq!(size, "24 80\r\n");
    let resize = json!({ "process": process, "pty": { "size": { "cols": 100, "rows": 30 } } });
    assert_eq!(unary(&daemon, "Update", resize).await.0, StatusCode::OK);
    let wrong = json!({ "process": process, "input": { "stdin": "Cg==" } });
    assert_eq!(unary(&daemon, "SendInput", wrong).await.1["code"], "internal");
    assert_eq!(unary(&daemon, "CloseStdin", json!({ "process": process })).await.1["code"], "unknown");
    unary(&daemon, "SendInput", json!({ "process": process, "input": { "pty": "Cg==" } })).await;
    let (text, end, _) = messages.rest().await;
    assert!(text.ends_with("30 100\r\n"), "{text:?}");
    assert_eq!(end["exitCode"], 6);
}

#[tokio::test]
async fn what_is_unknown_or_unset_has_its_own_code() {
    let daemon = daemon(Settings::default());
    let (_, _, last) = connect(&daemon, json!({ "pid": 4_000_000 })).await.rest().await;
    assert_eq!(last["error"]["code"], "not_found");
    let (_, _, last) = connect(&daemon, json!({})).await.rest().await;
    assert_eq!(last["error"]["code"], "unimplemented");
    let headers = [("connect-timeout-ms", "500.0")];
    let (_, _, last) = Messages::of(&daemon, "Start", &headers, envelope(&shell("true"))).await.rest().await;
    assert_eq!(last["error"]["code"], "invalid_argument");
    let headers = [("authorization", "Basic Z2hvc3Q6")];
    let (_, _, last) = Messages::of(&daemon, "Start", &headers, envelope(&shell("true"))).await.rest().await;
    assert_eq!(last["error"]["code"], "unauthenticated");
}

#[tokio::test]
async fn the_token_is_asked_for_at_the_public_entrance_only() {
    let settings: Settings = serde_json::from_value(json!({ "accessToken": "secret" })).unwrap();
    let daemon = daemon(settings);
    let ask = async |entrance, path: &str, token: Option<&str>| {
        let request = Request::get(path);
        let request =
            token.into_iter().fold(request, |request, token| request.header("x-access-token", token));
        daemon.handle(entrance, request.body(Body::empty()).unwrap()).await
    };
    assert_eq!(ask(Entrance::Public, "/health", None).await.status(), StatusCode::NO_CONTENT);
    assert_eq!(ask(Entrance::Public, "/envs", Some("secret")).await.status(), StatusCode::OK);
    assert_eq!(ask(Entrance::Control, "/envs", None).await.status(), StatusCode::OK);
    for token in [None, Some("wrong")] {
        let refused = ask(Entrance::Public, "/envs", token).await;
        assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
        let body: Value = serde_json::from_slice(&bytes(refused).await).unwrap();
        assert_eq!(body["code"], 401);
    }
    let init = Request::post("/init").body(Body::from(r#"{"tokenRequired":false}"#)).unwrap();
    assert_eq!(daemon.handle(Entrance::Control, init).await.status(), StatusCode::NO_CONTENT);
    assert_eq!(ask(Entrance::Public, "/envs", None).await.status(), StatusCode::OK);
    assert_eq!(ask(Entrance::Public, "/envs", Some("wrong")).await.status(), StatusCode::UNAUTHORIZED);
    let reserved = ask(Entrance::Public, "/init", Some("secret")).await;
    assert_eq!(reserved.status(), StatusCode::NOT_FOUND);
    assert!(String::from_utf8(bytes(reserved).await).unwrap().contains("reserved for the E2B control plane"));
}

/// Requests are made without standard input; this adds it.
trait TakeStdin {
    fn take_stdin(self) -> Self;
}

impl TakeStdin for Value {
    fn take_stdin(mut self) -> Self {
        self["stdin"] = json!(true);
        self
    }
}
