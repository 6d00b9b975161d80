//! The whole server, over HTTP. Needs a Python with IPython: `SANDCOVE_TEST_PYTHON`, or `python3` from the search path. Tests that
//! cannot run print the reason and pass; with `SANDCOVE_TEST_STRICT=1` they fail.
#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use sandcove_interpreter::Config;
use sandcove_interpreter::contexts::Contexts;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// How long a test waits for something that should happen.
const DEADLINE: Duration = Duration::from_secs(120);

/// A server on a port of its own, which ends with the test's runtime.
struct Server {
    address: SocketAddr,
    /// The address of an agent that is not there, held so that no other test listens on it.
    no_agent: Option<TcpSocket>,
}

impl Server {
    /// Starts a server; prints why and returns `None` when this machine cannot run it.
    async fn start() -> Option<Self> {
        let closed = TcpSocket::new_v4().unwrap();
        closed.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let mut server = Self::start_with_agent(closed.local_addr().unwrap()).await?;
        server.no_agent = Some(closed);
        Some(server)
    }

    async fn start_with_agent(agent: SocketAddr) -> Option<Self> {
        let python = std::env::var_os("SANDCOVE_TEST_PYTHON").unwrap_or_else(|| "python3".into());
        let probe = Command::new(&python).args(["-c", "import IPython.core.tbtools"]).output();
        if !probe.is_ok_and(|output| output.status.success()) {
            skip(&format!("{} has no IPython 9: set SANDCOVE_TEST_PYTHON", python.display()));
            return None;
        }
        let config = Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            python,
            python_dir: PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("python"),
            agent,
            zygote_on_stdin: false,
            warm_up: true,
            warm_modules: None,
            languages_building: false,
            environment: std::env::vars_os().collect::<BTreeMap<_, _>>(),
        };
        let contexts = Arc::new(Contexts::new(config));
        contexts.create_defaults().await.unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { sandcove_interpreter::serve(listener, contexts).await });
        Some(Self { address, no_agent: None })
    }

    async fn send(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Response<Incoming> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        sender.send_request(request.body(Full::new(body.into())).unwrap()).await.unwrap()
    }

    async fn ask(&self, method: Method, path: &str, body: Value) -> (StatusCode, String) {
        let response = self.send(method, path, body.to_string()).await;
        let status = response.status();
        let body = tokio::time::timeout(DEADLINE, response.into_body().collect()).await;
        let bytes = body.unwrap().unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    /// The lines of an execution, without those that keep it alive.
    async fn lines(&self, request: Value) -> Vec<Value> {
        let (status, body) = self.ask(Method::POST, "/execute", request).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        let lines = body.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["type"] != "keepalive").collect()
    }

    /// The lines of an execution, with output that came in pieces joined: a busy machine writes as much as it has after a
    /// while.
    async fn execute(&self, request: Value) -> Vec<Value> {
        let mut joined: Vec<Value> = Vec::new();
        for line in self.lines(request).await {
            match joined.last_mut() {
                Some(last) if line["type"] == last["type"] && is_output(&line) => {
                    let text =
                        format!("{}{}", last["text"].as_str().unwrap(), line["text"].as_str().unwrap());
                    last["text"] = text.into();
                }
                _ => joined.push(line),
            }
        }
        joined
    }

    async fn python(&self, code: &str) -> Vec<Value> {
        self.execute(json!({ "code": code })).await
    }

    /// Starts an execution whose lines are read one by one.
    async fn begin(&self, request: Value) -> Lines {
        let response = self.send(Method::POST, "/execute", request.to_string()).await;
        assert_eq!(response.status(), StatusCode::OK);
        Lines { body: response.into_body(), received: Vec::new() }
    }
}

/// The lines of a running execution.
struct Lines {
    body: Incoming,
    received: Vec<u8>,
}

impl Lines {
    /// The next line; `None` after the last.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = tokio::time::timeout(DEADLINE, self.body.frame()).await.unwrap();
            if let Ok(data) = frame?.unwrap().into_data() {
                self.received.extend_from_slice(&data);
            }
        }
    }

    /// Reads on until a line of this type, which is returned.
    async fn until(&mut self, kind: &str) -> Value {
        while let Some(line) = self.next().await {
            if line["type"] == kind {
                return line;
            }
        }
        panic!("no {kind}");
    }

    /// All further lines.
    async fn rest(mut self) -> Vec<Value> {
        let mut lines = Vec::new();
        while let Some(line) = self.next().await {
            lines.push(line);
        }
        lines
    }
}

/// Prints why a test does not run here, or fails it where all tests have to run.
fn skip(reason: &str) {
    let strict = std::env::var_os("SANDCOVE_TEST_STRICT").is_some_and(|value| value == "1");
    assert!(!strict, "{reason}");
    eprintln!("skipped: {reason}");
}

fn is_output(line: &Value) -> bool {
    line["type"] == "stdout" || line["type"] == "stderr"
}

fn types(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["type"].as_str().unwrap()).collect()
}

fn find<'a>(lines: &'a [Value], kind: &str) -> &'a Value {
    lines.iter().find(|line| line["type"] == kind).unwrap_or_else(|| panic!("no {kind} in {lines:?}"))
}

#[tokio::test]
async fn a_cell_has_its_lines_in_order() {
    let Some(server) = Server::start().await else { return };
    let lines = server.python("print('a'); import sys; print('b', file=sys.stderr)\n'x'").await;
    assert_eq!(types(&lines), ["number_of_executions", "stdout", "stderr", "result", "end_of_execution"]);
    assert_eq!(lines[0]["execution_count"], 1);
    assert_eq!(lines[1]["text"], "a\n");
    assert_eq!(lines[3]["text"], "x");
    assert_eq!(lines[3]["is_main_result"], true);
    let lines = server.python("").await;
    assert_eq!(types(&lines), ["number_of_executions", "end_of_execution"]);
    assert_eq!(server.python("1").await[0]["execution_count"], 2);
}

#[tokio::test]
async fn output_of_child_processes_and_flushes_arrive() {
    let Some(server) = Server::start().await else { return };
    let lines = server.python("import os\nos.system('echo child')\n1").await;
    assert_eq!(find(&lines, "stdout")["text"], "child\n");
    assert!(types(&lines).iter().position(|kind| *kind == "stdout") < Some(2), "{lines:?}");
    let lines = server.lines(json!({ "code": "for i in range(3): print(i, flush=True)" })).await;
    assert_eq!(types(&lines)[1..4], ["stdout", "stdout", "stdout"]);
    // What is not flushed comes together, unless the machine is so busy that the cell lasts too long for that.
    let mut seen = Vec::new();
    while !seen.contains(&json!("0\n1\n2\n")) {
        assert!(seen.len() < 100, "never together: {seen:?}");
        let lines = server.lines(json!({ "code": "for i in range(3): print(i)" })).await;
        seen.push(find(&lines, "stdout")["text"].clone());
    }
}

#[tokio::test]
async fn failures_are_errors() {
    let Some(server) = Server::start().await else { return };
    let lines = server.python("1/0").await;
    assert_eq!(find(&lines, "error")["name"], "ZeroDivisionError");
    assert_eq!(find(&lines, "error")["value"], "division by zero");
    assert!(!find(&lines, "error")["traceback"].as_str().unwrap().contains('\u{1b}'));
    assert_eq!(find(&server.python("input()").await, "error")["name"], "StdinNotImplementedError");
    let lines = server.python("import os; os._exit(1)").await;
    assert_eq!(find(&lines, "error")["name"], "ContextRestarting");
    assert_eq!(find(&lines, "error")["traceback"], "");
    assert_eq!(types(&lines).last(), Some(&"end_of_execution"));
    // As the system does when memory runs out.
    let lines = server.python("import os; os.kill(os.getpid(), 9)").await;
    assert_eq!(find(&lines, "error")["value"], "Context was restarted");
    assert!(find(&lines, "error")["traceback"].as_str().unwrap().contains("out of memory"));
    assert_eq!(server.python("1").await[0]["execution_count"], 1);
}

#[tokio::test]
async fn a_vanished_client_interrupts_its_code_and_keeps_the_state() {
    let Some(server) = Server::start().await else { return };
    server.python("x = 41").await;
    // The code never ends by itself: an answer afterwards proves that it was interrupted.
    let mut lines = server.begin(json!({ "code": "print('on', flush=True)\nwhile True: pass" })).await;
    lines.until("stdout").await;
    drop(lines);
    assert_eq!(find(&server.python("x + 1").await, "result")["text"], "42");
}

#[tokio::test]
async fn contexts_are_apart_and_can_be_restarted_and_removed() {
    let Some(server) = Server::start().await else { return };
    let (status, body) = server.ask(Method::POST, "/contexts", json!({ "cwd": "/tmp" })).await;
    assert_eq!(status, StatusCode::OK);
    let context: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&context["language"], &context["cwd"]), (&json!("python"), &json!("/tmp")));
    let id = context["id"].as_str().unwrap();
    let run = |code: &'static str| server.execute(json!({ "code": code, "context_id": id }));

    server.python("x = 1").await;
    assert_eq!(find(&run("x").await, "error")["name"], "NameError");
    assert_eq!(find(&run("y = 2; import os; os.getcwd()").await, "result")["text"], "/tmp");
    let (_, listed) = server.ask(Method::GET, "/contexts", Value::Null).await;
    let listed: Vec<Value> = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed.last(), Some(&context));

    let restart = format!("/contexts/{id}/restart");
    let forever = "print('on', flush=True)\nwhile True: pass";
    let mut running = server.begin(json!({ "code": forever, "context_id": id })).await;
    running.until("stdout").await;
    assert_eq!(server.ask(Method::POST, &restart, Value::Null).await, (StatusCode::OK, "null".into()));
    assert_eq!(find(&running.rest().await, "error")["name"], "UnexpectedEndOfExecution");
    assert_eq!(find(&run("y").await, "error")["name"], "NameError");

    let remove = format!("/contexts/{id}");
    assert_eq!(server.ask(Method::DELETE, &remove, Value::Null).await.0, StatusCode::OK);
    let gone = server.ask(Method::POST, "/execute", json!({ "code": "1", "context_id": id })).await;
    assert_eq!(gone.0, StatusCode::NOT_FOUND);
    assert_eq!(server.ask(Method::DELETE, &remove, Value::Null).await.0, StatusCode::NOT_FOUND);

    // The id that stands for the default context, wherever an id may be.
    assert_eq!(find(&server.python("x").await, "result")["text"], "1");
    let restarted = server.ask(Method::POST, "/contexts/default/restart", Value::Null).await;
    assert_eq!(restarted, (StatusCode::OK, "null".into()));
    assert_eq!(find(&server.python("x").await, "error")["name"], "NameError");
    let removed = server.ask(Method::DELETE, "/contexts/default", Value::Null).await;
    assert_eq!(removed, (StatusCode::OK, "null".into()));
}

#[tokio::test]
async fn executions_of_a_context_queue_and_others_do_not() {
    let Some(server) = Server::start().await else { return };
    let (_, body) = server.ask(Method::POST, "/contexts", json!({})).await;
    let other = serde_json::from_str::<Value>(&body).unwrap()["id"].clone();
    let meeting = tempfile::tempdir().unwrap();
    let place = meeting.path().to_str().unwrap();
    // Executions of one context find each other if they run at once; those of two contexts can only end if both run.
    let alone = format!(
        "import os, time\nmine = os.path.join({place:?}, 'alone')\nassert not os.path.exists(mine)\nopen(mine, 'x').close()\n\
         met = os.path.join({place:?}, 'met')\nopen(met, 'a').close()\n\
         while not os.path.exists(os.path.join({place:?}, 'other')): time.sleep(0.01)\nos.remove(mine)"
    );
    let apart = format!(
        "import os, time\nwhile not os.path.exists(os.path.join({place:?}, 'met')): time.sleep(0.01)\nopen(os.path.join({place:?}, 'other'), 'w').close()"
    );
    let (first, second, third) = tokio::join!(
        server.execute(json!({ "code": alone })),
        server.execute(json!({ "code": alone })),
        server.execute(json!({ "code": apart, "context_id": other })),
    );
    for lines in [&first, &second, &third] {
        assert_eq!(types(lines), ["number_of_executions", "end_of_execution"], "{lines:?}");
    }
    let counts = [&first[0]["execution_count"], &second[0]["execution_count"]];
    assert!(counts.contains(&&json!(1)) && counts.contains(&&json!(2)));
}

#[tokio::test]
async fn executions_of_a_context_run_in_the_order_they_came() {
    let Some(server) = Server::start().await else { return };
    let mut waiting = Vec::new();
    for number in 0..5 {
        let code = format!("log = globals().get('log', []) + [{number}]; log");
        // The head of the answer comes when the code is in the queue.
        waiting.push(server.begin(json!({ "code": code })).await);
    }
    for (number, lines) in waiting.into_iter().enumerate() {
        let lines = lines.rest().await;
        assert_eq!(find(&lines, "result")["json"], json!((0..=number).collect::<Vec<_>>()));
    }
}

#[tokio::test]
async fn variables_are_global_once_and_own_for_one_call() {
    let agent = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let agent_address = agent.local_addr().unwrap();
    let envs = axum::Router::new()
        .route("/envs", axum::routing::get(async || axum::Json(json!({ "G": "global", "H": "other" }))));
    tokio::spawn(async move { axum::serve(agent, envs).await });
    let Some(server) = Server::start_with_agent(agent_address).await else { return };

    let show = "import os; [os.environ.get(name) for name in 'GHO']";
    let shown = async |own: Value| {
        let lines = server.execute(json!({ "code": show, "env_vars": own })).await;
        find(&lines, "result")["json"].clone()
    };
    assert_eq!(shown(json!({ "G": "mine", "O": "'\"" })).await, json!(["mine", "other", "'\""]));
    assert_eq!(shown(json!({})).await, json!(["global", "other", null]));
    server.python("import os; os._exit(1)").await;
    assert_eq!(shown(json!({})).await, json!(["global", "other", null]));
}

#[tokio::test]
async fn wrong_requests_are_refused_with_a_reason() {
    let Some(server) = Server::start().await else { return };
    assert_eq!(server.ask(Method::GET, "/health", Value::Null).await, (StatusCode::OK, "\"OK\"".into()));
    let nowhere = server.ask(Method::GET, "/nowhere", Value::Null).await;
    assert_eq!(nowhere, (StatusCode::NOT_FOUND, r#"{"detail":"Not Found"}"#.into()));
    let wrong = server.ask(Method::GET, "/execute", Value::Null).await;
    assert_eq!(wrong, (StatusCode::METHOD_NOT_ALLOWED, r#"{"detail":"Method Not Allowed"}"#.into()));
    assert_eq!(server.ask(Method::POST, "/execute", json!({})).await.0, StatusCode::UNPROCESSABLE_ENTITY);
    let both = json!({ "code": "1", "context_id": "x", "language": "python" });
    assert_eq!(server.ask(Method::POST, "/execute", both).await.0, StatusCode::BAD_REQUEST);
    let unknown = json!({ "code": "1", "language": "cobol" });
    let (status, text) = server.ask(Method::POST, "/execute", unknown).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(text.contains("cobol") && !text.contains("--languages"), "{text}");
}

#[tokio::test]
async fn a_silent_execution_is_kept_alive() {
    let Some(server) = Server::start().await else { return };
    let directory = tempfile::tempdir().unwrap();
    let mark = directory.path().join("mark");
    let code = format!("import os, time\nwhile not os.path.exists({mark:?}): time.sleep(0.01)");
    let mut lines = server.begin(json!({ "code": code })).await;
    lines.until("keepalive").await;
    std::fs::write(&mark, "").unwrap();
    let rest = lines.rest().await;
    let rest: Vec<&str> = types(&rest).into_iter().filter(|kind| *kind != "keepalive").collect();
    assert_eq!(rest, ["end_of_execution"]);
}

#[tokio::test]
async fn bash_keeps_its_shell_and_merges_its_streams() {
    let Some(server) = Server::start().await else { return };
    let bash = |code: &'static str| server.execute(json!({ "code": code, "language": "bash" }));
    bash("x=5").await;
    let lines = bash("echo $x; echo er >&2").await;
    assert_eq!(types(&lines), ["number_of_executions", "stdout", "end_of_execution"]);
    assert_eq!(lines[1]["text"], "5\ner\n");
    let lines = bash("exit 3").await;
    assert!(find(&lines, "stdout")["text"].as_str().unwrap().contains("Restarting"));
    let lines = bash("(exit 4)").await;
    let error = find(&lines, "error");
    assert_eq!((&error["name"], &error["value"], &error["traceback"]), (&json!(""), &json!("4"), &json!("")));
}

/// Whether a process on this machine has this command line.
fn is_running(command: &[u8]) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .map(|process| process.path().join("cmdline"))
        .any(|path| std::fs::read(path).is_ok_and(|line| line == command))
}

#[tokio::test]
async fn an_interrupt_ends_a_command_of_bash_and_not_its_shell() {
    let Some(server) = Server::start().await else { return };
    let bash = |code: &'static str| server.execute(json!({ "code": code, "language": "bash" }));
    bash("x=1; cd /tmp; f() { while true; do sleep 6123; done; echo no; }").await;
    for code in [
        "echo on; sleep 6123; x=2",
        "echo on; f; x=2",
        "echo on; while :; do :; done",
        "echo on; (f) | cat; x=2",
    ] {
        let mut lines = server.begin(json!({ "code": code, "language": "bash" })).await;
        lines.until("stdout").await;
        // Bash rarely goes on waiting for a child that an interrupt meets in its fork: it is replaced then.
        while !code.contains(':') && !is_running(b"sleep\x006123\0") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        drop(lines);
        let lines = bash("echo $x; pwd; (exit 4)").await;
        assert_eq!(find(&lines, "stdout")["text"], "1\n/tmp\n", "{code}");
        assert_eq!(find(&lines, "error")["value"], "4", "{code}");
    }
    for code in ["continue", "break"] {
        bash(code).await;
        assert_eq!(find(&bash("echo $x").await, "stdout")["text"], "1\n", "{code}");
    }
    let killed = bash("sh -c 'kill -SEGV $$'").await;
    assert_eq!(find(&killed, "stdout")["text"], "killed by SIGSEGV\n");
    assert_eq!(find(&killed, "error")["value"], "139");
    // A variable of the client's that means something to the shell.
    server
        .execute(json!({ "code": "x=1", "language": "bash", "env_vars": { "PROMPT_COMMAND": "true" } }))
        .await;
    let mut lines = server.begin(json!({ "code": "echo on; sleep 600", "language": "bash" })).await;
    lines.until("stdout").await;
    drop(lines);
    assert_eq!(find(&bash("echo $x").await, "stdout")["text"], "1\n");
    let lines = bash("echo ${unset:?is missing}; echo no").await;
    assert_eq!(find(&lines, "error")["value"], "1");
    assert_eq!(find(&bash("echo $x $-").await, "stdout")["text"], "1 hiBs\n");
}

#[tokio::test]
async fn javascript_cells_share_a_scope() {
    let Some(server) = Server::start().await else { return };
    if !Command::new("node").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return skip("there is no node");
    }
    let js = |code: &'static str| server.execute(json!({ "code": code, "language": "js" }));
    assert_eq!(js("const x = 5; let y = 'a'; y").await[0]["execution_count"], 2);
    assert_eq!(find(&js("x + y").await, "result")["text"], "5a");
    assert_eq!(find(&js("let x = 1").await, "error")["name"], "SyntaxError");
    assert_eq!(find(&js("throw 7").await, "error")["name"], "number");
    assert_eq!(find(&js("undefined").await, "result")["text"], "undefined");
    assert_eq!(find(&js("Promise.resolve({ a: 1 })").await, "result")["text"], "{ a: 1 }");
    assert_eq!(find(&js("console.log('out')").await, "stdout")["text"], "out\n");
}
