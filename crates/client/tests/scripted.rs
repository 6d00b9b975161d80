//! The client, against a server that answers with prepared bytes in inconvenient pieces.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::sync::{Arc, Mutex};

use sandcove_client::{Client, ClientBuilder, Command, CommandEvent, Error, NewSandbox, Sandbox};
use sandcove_wire::interpreter::{Event, ExecutionRequest};
use sandcove_wire::secret::Secret;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

type Requests = Arc<Mutex<Vec<String>>>;

/// Answers each connection's first request with the next of `answers`, written a few bytes at a time.
async fn server(answers: Vec<Vec<u8>>) -> (Client, Requests) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = Requests::default();
    let seen = Arc::clone(&requests);
    tokio::spawn(async move {
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let request = read_request(&mut stream).await;
            seen.lock().unwrap().push(request);
            for piece in answer.chunks(7) {
                stream.write_all(piece).await.unwrap();
                stream.flush().await.unwrap();
                tokio::task::yield_now().await;
            }
        }
    });
    (Client::new(&url, &Secret::new("e2b_00")).unwrap(), requests)
}

/// A whole request, which may come in pieces.
async fn read_request(stream: &mut TcpStream) -> String {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let header =
                |name: &str| head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            let is_whole = match (header("content-length"), header("transfer-encoding")) {
                (Some(length), _) => body.len() >= length.parse::<usize>().unwrap(),
                (None, Some(_)) => body.ends_with("0\r\n\r\n"),
                (None, None) => true,
            };
            if is_whole {
                return text;
            }
        }
        assert!(stream.read_buf(&mut request).await.unwrap() > 0, "closed after {text:?}");
    }
}

fn answer(status: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn frame(flags: u8, json: &str) -> Vec<u8> {
    let length = u32::try_from(json.len()).unwrap().to_be_bytes();
    [&[flags][..], &length, json.as_bytes()].concat()
}

const CREATED: &[u8] = br#"{"templateID":"t","sandboxID":"iabc","clientID":"c","envdVersion":"0.6.13",
    "envdAccessToken":"token","domain":null}"#;

async fn sandbox(answers: Vec<Vec<u8>>) -> (Sandbox, Requests) {
    let mut all = vec![answer("201 Created", CREATED)];
    all.extend(answers);
    let (client, requests) = server(all).await;
    (client.create(&NewSandbox::default()).await.unwrap(), requests)
}

#[tokio::test]
async fn a_commands_output_and_end_arrive() {
    let stream = [
        frame(0, r#"{"event":{"start":{"pid":7}}}"#),
        frame(0, r#"{"event":{"data":{"stdout":"aGVsbG8="}}}"#),
        frame(0, r#"{"event":{"keepalive":{}}}"#),
        frame(0, r#"{"event":{"data":{"stderr":"b29wcw=="}}}"#),
        frame(0, r#"{"event":{"end":{"exitCode":3,"exited":true,"status":"exit status 3"}}}"#),
        frame(2, "{}"),
    ]
    .concat();
    let (sandbox, requests) = sandbox(vec![answer("200 OK", &stream)]).await;
    let mut events = Vec::new();
    let command = Command { line: "say hello".to_owned(), ..Command::default() };
    let exit = sandbox.run(&command, |event| events.push(event)).await.unwrap();
    assert_eq!((exit.code, exit.status.as_str()), (3, "exit status 3"));
    assert_eq!(events, [CommandEvent::Stdout("hello".into()), CommandEvent::Stderr("oops".into())]);
    let request = requests.lock().unwrap()[1].clone();
    for part in [
        "POST /process.Process/Start",
        "e2b-sandbox-id: iabc",
        "e2b-sandbox-port: 49983",
        "x-access-token: token",
    ] {
        assert!(request.contains(part), "{part} in {request}");
    }
}

#[tokio::test]
async fn a_stream_that_just_stops_is_an_error() {
    let cut = frame(0, r#"{"event":{"start":{"pid":7}}}"#);
    let (sandbox, _) = sandbox(vec![answer("200 OK", &cut)]).await;
    let outcome = sandbox.run(&Command::default(), |_| {}).await;
    assert!(matches!(outcome, Err(Error::Malformed { .. })), "{outcome:?}");
}

#[tokio::test]
async fn a_refusal_of_the_agent_has_its_message() {
    let refused = frame(2, r#"{"error":{"code":"invalid_argument","message":"cwd does not exist"}}"#);
    let (sandbox, _) = sandbox(vec![answer("200 OK", &refused)]).await;
    let error = sandbox.run(&Command::default(), |_| {}).await.unwrap_err();
    assert_eq!(error.to_string(), "cwd does not exist");
}

#[tokio::test]
async fn the_traffic_token_is_sent_to_the_interpreter_and_not_to_the_agent() {
    let info = br#"{"envdAccessToken":"token","state":"running","network":{"allowPublicTraffic":false}}"#;
    let connected = br#"{"templateID":"t","sandboxID":"iabc","clientID":"c","envdVersion":"0.6.13","trafficAccessToken":"traffic"}"#;
    let done = b"{\"type\":\"end_of_execution\"}\n";
    let answers = vec![
        answer("200 OK", info),
        answer("200 OK", connected),
        answer("200 OK", done),
        answer("204 No Content", b""),
    ];
    let (client, requests) = server(answers).await;
    let sandbox = client.attach(&"iabc".parse().unwrap()).await.unwrap();
    let request = ExecutionRequest { code: String::new(), context_id: None, language: None, env_vars: None };
    sandbox.run_code(&request, |_| {}).await.unwrap();
    sandbox.health().await.unwrap();
    let requests = requests.lock().unwrap().clone();
    assert!(requests[1].contains("POST /sandboxes/iabc/connect "), "{}", requests[1]);
    assert!(requests[1].ends_with("{\"timeout\":0}"), "{}", requests[1]);
    assert!(requests[2].contains("e2b-traffic-access-token: traffic\r\n"), "{}", requests[2]);
    assert!(!requests[3].contains("traffic-access-token"), "{}", requests[3]);
    for request in &requests[2..] {
        assert!(request.contains("x-access-token: token\r\n"), "{request}");
    }
}

#[tokio::test]
async fn code_events_arrive_in_order_and_the_end_is_required() {
    let lines = concat!(
        "{\"type\":\"number_of_executions\",\"execution_count\":1}\n",
        "{\"type\":\"keepalive\"}\n",
        "{\"type\":\"stdout\",\"text\":\"1\\n\",\"timestamp\":\"2026-01-02T03:04:05.678901+00:00\"}\n",
        "{\"type\":\"end_of_execution\"}\n",
    );
    let cut = &lines[..lines.len() - 10];
    let answers = vec![answer("200 OK", lines.as_bytes()), answer("200 OK", cut.as_bytes())];
    let (sandbox, _) = sandbox(answers).await;
    let request =
        ExecutionRequest { code: "print(1)".to_owned(), context_id: None, language: None, env_vars: None };
    let mut events = Vec::new();
    sandbox.run_code(&request, |event| events.push(event)).await.unwrap();
    assert!(
        matches!(&events[..], [Event::NumberOfExecutions { execution_count: 1 }, Event::Stdout(out)] if out.text == "1\n")
    );
    assert!(matches!(sandbox.run_code(&request, |_| {}).await, Err(Error::Malformed { .. })));
}

#[tokio::test]
async fn killing_what_is_gone_says_so() {
    let (client, _) = server(vec![answer("404 Not Found", br#"{"code":404,"message":"gone"}"#)]).await;
    assert!(!client.kill(&"iabc".parse().unwrap()).await.unwrap());
}

#[tokio::test]
async fn an_error_status_carries_the_servers_message() {
    let body = br#"{"code":404,"message":"template 'x' not found"}"#;
    let (client, _) = server(vec![answer("404 Not Found", body)]).await;
    let error = client.create(&NewSandbox::default()).await.unwrap_err();
    assert_eq!(error.status(), Some(404));
    assert!(error.to_string().ends_with("template 'x' not found"));
}

/// Answers as [`server`] does, to a client with settings of its own.
async fn patient(
    answers: Vec<Vec<u8>>,
    change: impl Fn(ClientBuilder) -> ClientBuilder,
) -> (Client, Requests) {
    let (client, requests) = server(answers).await;
    let settings = ClientBuilder::new(Secret::new("e2b_00")).server(client.url());
    (change(settings).build().unwrap(), requests)
}

#[tokio::test]
async fn a_request_that_an_overloaded_server_refuses_is_sent_again() {
    let busy = b"HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let answers = vec![busy.to_vec(), busy.to_vec(), answer("201 Created", CREATED)];
    let (client, requests) = patient(answers, |settings| settings).await;
    client.create(&NewSandbox::default().timeout(7)).await.unwrap();
    let requests = requests.lock().unwrap().clone();
    assert_eq!(requests.len(), 3);
    assert!(requests.iter().all(|request| request.contains("\"timeout\":7") && *request == requests[0]));
}

#[tokio::test]
async fn a_sandbox_is_created_once_by_a_key_that_every_attempt_has() {
    let busy = b"HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let (client, requests) =
        patient(vec![busy.to_vec(), answer("201 Created", CREATED)], |settings| settings).await;
    client.create_once(&NewSandbox::default(), "order-7").await.unwrap();
    let requests = requests.lock().unwrap().clone();
    assert_eq!(requests.len(), 2);
    assert!(
        requests.iter().all(|request| request.to_lowercase().contains("\r\nidempotency-key: order-7\r\n"))
    );
    let unfit = client.create_once(&NewSandbox::default(), "a\nb").await.unwrap_err();
    assert!(matches!(unfit, Error::IdempotencyKey(key) if key == "a\nb"));
}

#[tokio::test]
async fn a_request_is_sent_again_as_often_as_wished_and_as_the_server_lets_it() {
    let busy = b"HTTP/1.1 429 Slow\r\nRetry-After: 0\r\nContent-Length: 4\r\nConnection: close\r\n\r\nslow";
    let (client, requests) = patient(vec![busy.to_vec(); 3], |settings| settings.retries(1)).await;
    assert_eq!(client.ping().await.unwrap_err().status(), Some(429));
    assert_eq!(requests.lock().unwrap().len(), 2);
    let never = b"HTTP/1.1 503 Busy\r\nShould-Retry: false\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let (client, requests) = patient(vec![never.to_vec(); 2], |settings| settings).await;
    assert_eq!(client.ping().await.unwrap_err().status(), Some(503));
    assert_eq!(requests.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_connection_that_cannot_be_opened_is_tried_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let settings = ClientBuilder::new(Secret::new("e2b_00")).server(&format!("http://{address}"));
    let once = settings.clone().retries(0).build().unwrap();
    assert!(matches!(once.ping().await, Err(Error::Unreachable { .. })));
    let client = settings.build().unwrap();
    let asked = tokio::spawn(async move { client.ping().await });
    tokio::task::yield_now().await;
    let listener = TcpListener::bind(address).await.unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    read_request(&mut stream).await;
    stream.write_all(&answer("200 OK", b"[]")).await.unwrap();
    asked.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_answer_that_does_not_begin_in_time_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let limit = Some(std::time::Duration::from_millis(50));
    let settings = ClientBuilder::new(Secret::new("e2b_00")).server(&url).request_timeout(limit);
    let error = settings.build().unwrap().ping().await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
}

#[tokio::test]
async fn what_was_run_is_collected() {
    let lines = concat!(
        "{\"type\":\"number_of_executions\",\"execution_count\":4}\n",
        "{\"type\":\"stdout\",\"text\":\"a\\n\",\"timestamp\":\"t\"}\n",
        "{\"type\":\"stderr\",\"text\":\"w\",\"timestamp\":\"t\"}\n",
        "{\"type\":\"stdout\",\"text\":\"b\\n\",\"timestamp\":\"t\"}\n",
        "{\"type\":\"result\",\"html\":\"<b>\",\"extra\":{},\"is_main_result\":false}\n",
        "{\"type\":\"result\",\"text\":\"7\",\"extra\":{},\"is_main_result\":true}\n",
        "{\"type\":\"error\",\"name\":\"E\",\"value\":\"v\",\"traceback\":\"\"}\n",
        "{\"type\":\"end_of_execution\"}\n",
    );
    let (sandbox, requests) = sandbox(vec![answer("200 OK", lines.as_bytes())]).await;
    let request = ExecutionRequest::new("x").language("python").env("K", "v");
    let ran = sandbox.code_output(&request).await.unwrap();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str(), ran.text()), ("a\nb\n", "w", Some("7")));
    assert_eq!((ran.execution_count, ran.results.len()), (Some(4), 2));
    assert_eq!(ran.error.unwrap().name, "E");
    let sent = requests.lock().unwrap()[1].clone();
    assert!(
        sent.contains("\"language\":\"python\"") && sent.contains("\"env_vars\":{\"K\":\"v\"}"),
        "{sent}"
    );
}

#[tokio::test]
async fn a_signed_url_is_that_of_the_official_clients() {
    let (sandbox, _) = sandbox(Vec::new()).await;
    let url = sandbox.download_url("/home/user/a b.txt", "user", None);
    // printf %s '/home/user/a b.txt:read:user:token' | openssl dgst -sha256 -binary | base64 | tr -d =
    let signature = "8rGUb%2B9hyeZdt4AqnXQbDTq40oi9lJNYLxjHxc%2FvPFM";
    let (_, query) = url.split_once("/files?").unwrap();
    assert_eq!(query, format!("path=%2Fhome%2Fuser%2Fa%20b.txt&username=user&signature=v1_{signature}"));
    assert!(
        sandbox
            .upload_url("/x", "user", Some(std::time::Duration::from_secs(60)))
            .contains("&signature_expiration=")
    );
}

#[tokio::test]
async fn the_access_token_of_a_user_is_sent_beside_the_key_or_alone() {
    let settings = ClientBuilder::new(Secret::new("e2b_00")).access_token(Secret::new("sk_e2b_11"));
    for (settings, has_key) in [(settings, true), (ClientBuilder::of_user(Secret::new("sk_e2b_11")), false)] {
        let (client, requests) = server(vec![answer("200 OK", b"[]")]).await;
        settings.server(client.url()).build().unwrap().api_keys().await.unwrap();
        let sent = requests.lock().unwrap()[0].to_lowercase();
        assert!(sent.starts_with("get /api-keys "), "{sent}");
        assert!(sent.contains("\r\nauthorization: bearer sk_e2b_11\r\n"), "{sent}");
        assert_eq!(sent.contains("\r\nx-api-key: e2b_00\r\n"), has_key, "{sent}");
    }
}

#[tokio::test]
async fn directories_are_those_of_root_or_of_the_named_account() {
    let entry = r#"{"entry":{"name":"b","type":"FILE_TYPE_FILE","path":"/home/ada/x/b","size":"1"}}"#;
    let answers = vec![answer("200 OK", entry.as_bytes()), answer("200 OK", entry.as_bytes())];
    let (sandbox, requests) = sandbox(answers).await;
    let moved = sandbox.rename("/home/ada/a", "/home/ada/x/b").await.unwrap();
    assert_eq!((moved.path.as_str(), moved.r#type()), ("/home/ada/x/b", sandcove_client::FileType::File));
    sandbox.with_directory_user("ada").rename("a", "x/b").await.unwrap();
    let requests = requests.lock().unwrap().clone();
    // printf %s root: | base64, and so for `ada:`.
    for (request, account) in requests[1..].iter().zip(["cm9vdDo=", "YWRhOg=="]) {
        assert!(request.starts_with("POST /filesystem.Filesystem/Move "), "{request}");
        assert!(request.contains(&format!("authorization: Basic {account}\r\n")), "{request}");
    }
    assert!(requests[2].ends_with(r#"{"source":"a","destination":"x/b"}"#), "{}", requests[2]);
}

#[tokio::test]
async fn processes_are_listed_and_pieces_joined() {
    let list = r#"{"processes":[{"config":{"cmd":"/bin/sleep","args":["9"]},"pid":7,"tag":"t"}]}"#;
    let answers = vec![answer("200 OK", list.as_bytes()), answer("200 OK", b"{}")];
    let (sandbox, requests) = sandbox(answers).await;
    let processes = sandbox.processes().await.unwrap();
    assert_eq!((processes[0].pid, processes[0].config.as_ref().unwrap().cmd.as_str()), (7, "/bin/sleep"));
    sandbox.compose_files(&["a.0", "a.1"], "a", Some("user")).await.unwrap();
    let requests = requests.lock().unwrap().clone();
    assert!(requests[1].starts_with("POST /process.Process/List "), "{}", requests[1]);
    let (head, body) = requests[2].split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /files/compose "), "{head}");
    let joined: serde_json::Value = serde_json::from_str(body).unwrap();
    let expected =
        serde_json::json!({"destination": "a", "source_paths": ["a.0", "a.1"], "username": "user"});
    assert_eq!(joined, expected);
}

#[tokio::test]
async fn all_pages_of_the_tags_of_a_template_are_read() {
    let page = |tag: &str, next: &str| {
        answer(
            "200 OK",
            format!(r#"{{"tags":[{{"tag":"{tag}","assignments":[],"hasMore":false}}],"nextCursor":{next}}}"#)
                .as_bytes(),
        )
    };
    let (client, requests) = server(vec![page("a", "\"a=b\""), page("b", "null")]).await;
    let filter = sandcove_client::TagFilter { search: Some("x y".into()), ..Default::default() };
    let groups = client.tag_groups("team/app", &filter).await.unwrap();
    assert_eq!(groups.iter().map(|group| group.tag.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let requests = requests.lock().unwrap().clone();
    let path = "GET /templates/team%2Fapp/tags/groups?search=x%20y&sort=latest_desc&tagsLimit=100";
    assert!(requests[0].starts_with(&format!("{path} ")), "{}", requests[0]);
    assert!(requests[1].starts_with(&format!("{path}&tagsCursor=a%3Db ")), "{}", requests[1]);
}
