//! Builds of templates over the backend in memory, with a double of the agent.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::routing::post;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sandcove_isolate::fake::Operation;
use sandcove_wire::boot::AGENT_PORT;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::support::{Server, wait_until};

/// Commands that the double of the agent was asked to run, in order.
#[derive(Clone)]
pub struct Agent {
    commands: Arc<Mutex<Vec<String>>>,
    /// Has a permit once `hold` may end.
    held: Arc<Semaphore>,
}

impl Agent {
    pub async fn start(server: &Server) -> Self {
        let agent = Self { commands: Arc::default(), held: Arc::new(Semaphore::new(0)) };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        server.fake.listen(AGENT_PORT, listener.local_addr().unwrap());
        let router = Router::new()
            .route("/process.Process/Start", post(run))
            .route("/files", post(|| async { "[]" }))
            .with_state(agent.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        agent
    }

    fn commands(&self) -> Vec<String> {
        self.commands.lock().unwrap().clone()
    }

    fn forget(&self) {
        self.commands.lock().unwrap().clear();
    }
}

/// Answers as a program would: `exit N` ends with N, `say X` writes X, `wait` never ends, `hold` ends when the test says so; steps of the
/// agent succeed.
async fn run(State(agent): State<Agent>, body: Bytes) -> Body {
    let request: Value = serde_json::from_slice(&body[5..]).unwrap();
    let process = &request["process"];
    let last = process["args"].as_array().unwrap().last().unwrap().as_str().unwrap().to_owned();
    agent.commands.lock().unwrap().push(last.clone());
    let is_step = process["cmd"].as_str().unwrap().ends_with("sandcove-agent");
    let output = if is_step { "{}\n" } else { last.strip_prefix("say ").unwrap_or_default() };
    let code: i32 = last.strip_prefix("exit ").map_or(0, |code| code.parse().unwrap());
    let events = [
        json!({ "event": { "start": { "pid": 7 } } }),
        json!({ "event": { "data": { "stdout": STANDARD.encode(output) } } }),
        json!({ "event": { "end": { "exitCode": code, "exited": true, "status": format!("exit status {code}") } } }),
    ];
    let mut text = Vec::new();
    for event in events {
        envelope(&mut text, 0, &event);
    }
    envelope(&mut text, 2, &json!({}));
    if last == "wait" {
        std::future::pending::<()>().await;
    }
    if last == "hold" {
        let _permit = agent.held.acquire().await.unwrap();
    }
    Body::from(text)
}

fn envelope(text: &mut Vec<u8>, flags: u8, message: &Value) {
    let payload = message.to_string();
    text.push(flags);
    text.extend((payload.len() as u32).to_be_bytes());
    text.extend(payload.into_bytes());
}

pub fn run_step(command: &str) -> Value {
    json!({ "type": "RUN", "args": [command], "force": false })
}

/// Asks for a build and starts it; the paths of its template and of itself.
async fn begin(server: &Server, name: &str, spec: Value) -> (String, String) {
    let reply = server.call("POST", "/v3/templates", json!({ "name": name })).await;
    assert_eq!(reply.status, 202, "{}", reply.text);
    let made = reply.json();
    let (template, build) = (made["templateID"].as_str().unwrap(), made["buildID"].as_str().unwrap());
    let path = format!("/v2/templates/{template}/builds/{build}");
    let reply = server.call("POST", &path, spec).await;
    assert_eq!(reply.status, 202, "{}", reply.text);
    (template.to_owned(), build.to_owned())
}

async fn status(server: &Server, template: &str, build: &str) -> Value {
    server.get(&format!("/templates/{template}/builds/{build}/status")).await.json()
}

/// Builds, and waits for the end; the final status.
pub async fn build(server: &Server, name: &str, spec: Value) -> Value {
    let (template, build) = begin(server, name, spec).await;
    ended(server, &template, &build).await
}

async fn ended(server: &Server, template: &str, build: &str) -> Value {
    let deadline = tokio::time::Instant::now() + crate::support::WAIT;
    loop {
        let status = status(server, template, build).await;
        if status["status"] == "ready" || status["status"] == "error" {
            return status;
        }
        assert!(tokio::time::Instant::now() < deadline, "the build does not end: {status}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn log(status: &Value) -> Vec<String> {
    let entries = status["logEntries"].as_array().unwrap();
    entries.iter().map(|entry| entry["message"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_runs_its_steps_and_becomes_a_template() {
    let server = Server::start().await;
    let agent = Agent::start(&server).await;
    let steps =
        json!([run_step("say hello"), { "type": "ENV", "args": ["A", "1", "B", "$A."] }, run_step("true")]);
    let status = build(&server, "mine", json!({ "fromTemplate": "base", "steps": steps })).await;
    assert_eq!(status["status"], "ready", "{status}");
    let log = log(&status);
    assert!(log[0].starts_with("Building template "), "{log:?}");
    assert!(log[1].starts_with("CACHED [base] FROM TEMPLATE base ["), "{log:?}");
    assert!(log[2].starts_with("[builder 1/3] RUN say hello ["), "{log:?}");
    assert_eq!(log[3], "[builder 1/3] [stdout]: hello");
    assert!(log.last().unwrap().starts_with("Build finished, took "), "{log:?}");
    assert!(agent.commands().contains(&"say hello".to_owned()));
    // Its sandbox is gone, and one of the template begins without files, on one more layer.
    wait_until("the sandbox of the build is gone", || server.fake.ids().is_empty()).await;
    let id = server.id(json!({ "templateID": "mine" })).await;
    let spec = server.fake.spec(&id.parse().unwrap()).unwrap();
    let layers: Vec<_> =
        spec.blueprint.layers.iter().map(|layer| layer.to_string_lossy().into_owned()).collect();
    assert_eq!(layers.len(), 3, "{layers:?}");
    assert!(layers[0].contains("/t-") && layers[0].ends_with("/upper"), "{layers:?}");
    assert!(!spec.settings.env_vars.as_ref().unwrap().contains_key("A"));
    // After the build is ready, not before.
    wait_until("its sandboxes are pooled", || server.fake.is_pooled(&spec.blueprint.layers)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_of_the_cache_do_not_run_again() {
    let server = Server::start().await;
    let agent = Agent::start(&server).await;
    let spec = |last: &str, force| {
        let steps = [run_step("say one"), json!({ "type": "RUN", "args": [last], "force": force })];
        json!({ "fromTemplate": "base", "steps": steps })
    };
    build(&server, "mine", spec("say two", false)).await;
    agent.forget();
    let again = build(&server, "mine", spec("say two", false)).await;
    assert_eq!(agent.commands(), Vec::<String>::new());
    let log = log(&again);
    assert!(log[2].starts_with("CACHED [builder 1/2] RUN say one ["), "{log:?}");
    assert!(log[4].starts_with("CACHED [finalize] "), "{log:?}");
    let changed = build(&server, "mine", spec("say three", false)).await;
    assert_eq!(changed["status"], "ready", "{changed}");
    assert!(
        !agent.commands().contains(&"say one".to_owned())
            && agent.commands().contains(&"say three".to_owned())
    );
    agent.forget();
    build(&server, "mine", spec("say two", true)).await;
    assert!(
        !agent.commands().contains(&"say one".to_owned()) && agent.commands().contains(&"say two".to_owned())
    );
    agent.forget();
    let mut all = spec("say two", false);
    all["force"] = json!(true);
    build(&server, "mine", all).await;
    assert!(agent.commands().contains(&"say one".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_fails_is_named() {
    let server = Server::start().await;
    Agent::start(&server).await;
    let steps = json!([run_step("true"), run_step("exit 3")]);
    let status = build(&server, "mine", json!({ "fromTemplate": "base", "steps": steps })).await;
    assert_eq!(status["status"], "error");
    assert_eq!(status["reason"]["message"], "failed to run command 'exit 3': exit status 3");
    assert_eq!(status["reason"]["step"], "2");
    assert_eq!(log(&status).last().unwrap(), "Build failed: failed to run command 'exit 3': exit status 3");
    let status =
        build(&server, "mine", json!({ "fromTemplate": "base", "steps": [{ "type": "HEALTHCHECK" }] })).await;
    assert_eq!(status["reason"]["message"], "command type HEALTHCHECK is not implemented");
    assert_eq!(status["reason"]["step"], "1");
    let status = build(&server, "mine", json!({ "fromTemplate": "nothing", "steps": [] })).await;
    assert_eq!(
        status["reason"],
        json!({ "message": "template 'nothing' not found", "step": "base", "logEntries": status["reason"]["logEntries"] })
    );
    wait_until("the sandboxes of the builds are gone", || server.fake.ids().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_build_cancels_an_older_one() {
    let server = Server::start().await;
    let agent = Agent::start(&server).await;
    let spec = |command: &str| json!({ "fromTemplate": "base", "steps": [run_step(command)] });
    let (template, first) = begin(&server, "mine", spec("wait")).await;
    wait_until("the command runs", || agent.commands().contains(&"wait".to_owned())).await;
    let second = build(&server, "mine", spec("true")).await;
    assert_eq!(second["status"], "ready", "{second}");
    let first = ended(&server, &template, &first).await;
    assert_eq!(first["reason"]["message"], "build was cancelled");
    wait_until("the sandboxes of the builds are gone", || server.fake.ids().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_goes_on_after_a_restart() {
    let server = Server::start().await;
    let agent = Agent::start(&server).await;
    let spec = json!({ "fromTemplate": "base", "steps": [run_step("say one"), run_step("wait")] });
    let (template, build) = begin(&server, "mine", spec).await;
    wait_until("the second command runs", || agent.commands().contains(&"wait".to_owned())).await;
    assert!(agent.commands().contains(&"say one".to_owned()));
    // In between: the new server resumes the build as soon as it runs.
    let server = server.restart_with(|| agent.forget()).await;
    wait_until("the second command runs again", || agent.commands().contains(&"wait".to_owned())).await;
    assert!(!agent.commands().contains(&"say one".to_owned()));
    let now = status(&server, &template, &build).await;
    assert_eq!(now["status"], "building", "{now}");
    let log = log(&now);
    assert!(
        log[0].starts_with("Building template ")
            && log.iter().any(|line| line.starts_with("The server was restarted"))
    );
    assert!(log.iter().any(|line| line.starts_with("CACHED [builder 1/2] RUN say one")), "{log:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_of_the_host_is_not_shown() {
    let server = Server::start().await;
    Agent::start(&server).await;
    server.fake.fail_next(Operation::Snapshot, 1);
    let spec = json!({ "fromTemplate": "base", "steps": [run_step("true")] });
    let status = build(&server, "mine", spec.clone()).await;
    let message = status["reason"]["message"].as_str().unwrap();
    assert!(message.starts_with("An internal error occurred.") && !message.contains("scripted"), "{message}");
    assert_eq!(build(&server, "mine", spec).await["status"], "ready");
}

/// Waits until a build says that it waits for `others`.
async fn waits(server: &Server, template: &str, build: &str, others: &str) {
    let text = format!("Waiting for {others} of this server");
    let deadline = tokio::time::Instant::now() + crate::support::WAIT;
    loop {
        let waiting = log(&status(server, template, build).await);
        if waiting.contains(&text) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "it does not say that it waits: {waiting:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn builds_wait_for_their_turn_and_say_so() {
    let server = Server::with(|config| config.max_builds = 1).await;
    let agent = Agent::start(&server).await;
    let spec = |command: &str| json!({ "fromTemplate": "base", "steps": [run_step(command)] });
    let (_, first) = begin(&server, "one", spec("wait")).await;
    wait_until("the command runs", || agent.commands().contains(&"wait".to_owned())).await;
    let (template, second) = begin(&server, "two", spec("say two")).await;
    // Each is a task of its own: the third is begun once the second is in the queue.
    waits(&server, &template, &second, "1 other build").await;
    let third = begin(&server, "three", spec("say three")).await;
    waits(&server, &third.0, &third.1, "2 other builds").await;
    assert_eq!(agent.commands(), ["wait"]);
    assert_eq!(server.app.builds().cancel(&[first.parse().unwrap()], "build was cancelled"), 1);
    assert_eq!(ended(&server, &template, &second).await["status"], "ready");
    assert_eq!(ended(&server, &third.0, &third.1).await["status"], "ready");
}

/// The layers that builds have made.
fn layers(server: &Server) -> Vec<String> {
    server.fake.layer_names()
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_layers_are_deleted_beside_a_build_that_keeps_its_own() {
    let server = Server::with(|config| config.gc_interval = Duration::from_millis(20)).await;
    let agent = Agent::start(&server).await;
    let spec = |from: &str, command: &str| json!({ "fromTemplate": from, "steps": [run_step(command)] });
    assert_eq!(build(&server, "parent", spec("base", "say parent")).await["status"], "ready");
    let [parent] = layers(&server).try_into().unwrap();
    assert_eq!(build(&server, "other", spec("base", "say other")).await["status"], "ready");
    let other = layers(&server).into_iter().find(|layer| *layer != parent).unwrap();
    let (template, child) = begin(&server, "child", spec("parent", "hold")).await;
    wait_until("the command runs", || agent.commands().contains(&"hold".to_owned())).await;
    // From now on only the build knows the layer of its base.
    for name in ["parent", "other"] {
        assert_eq!(server.call("DELETE", &format!("/templates/{name}"), json!({})).await.status, 204);
    }
    wait_until("the layer that nothing uses is deleted", || !layers(&server).contains(&other)).await;
    assert!(layers(&server).contains(&parent), "the build has looked it up");
    assert_eq!(status(&server, &template, &child).await["status"], "building");
    agent.held.add_permits(1);
    assert_eq!(ended(&server, &template, &child).await["status"], "ready");
    let id = server.id(json!({ "templateID": "child" })).await;
    let used = server.fake.spec(&id.parse().unwrap()).unwrap().blueprint.layers.clone();
    assert!(used.iter().any(|path| path.to_string_lossy().contains(&parent)), "{used:?}");
    assert!(layers(&server).contains(&parent), "the template needs it");
    assert_eq!(server.call("DELETE", &format!("/sandboxes/{id}"), json!({})).await.status, 204);
    assert_eq!(server.call("DELETE", "/templates/child", json!({})).await.status, 204);
    // The step that the build has cached begins with the layer of its base.
    wait_until("the layer of the template is deleted", || layers(&server) == [parent.as_str()]).await;
}
