//! A server of one's own, a client for it, and conditions with a deadline.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use sandcove_host::Host;
use sandcove_isolate::Backend;
use sandcove_isolate::fake::Fake;
use sandcove_server::domain::template::TemplateRecord;
use sandcove_server::{App, Config};
use sandcove_wire::boot::{ENVD_VERSION, Service};
use sandcove_wire::id::SandboxId;
use sandcove_wire::secret::Secret;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::{TcpListener, UnixStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub const KEY: &str = "e2b_0123456789abcdef0123456789abcdef01234567";
pub const BASE: &str = "base0000000000000000";

pub struct Server {
    pub app: App,
    pub fake: Fake,
    pub address: SocketAddr,
    directory: TempDir,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Reply {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text)
            .unwrap_or_else(|_| panic!("not JSON: {} {:?}", self.status, self.text))
    }

    /// The status, after checking that an error has the documented body.
    #[track_caller]
    pub fn code(&self) -> u16 {
        if self.status.as_u16() >= 400 {
            let body = self.json();
            assert_eq!(body["code"], self.status.as_u16(), "{body}");
            assert!(body["message"].as_str().is_some_and(|m| !m.is_empty()), "{body}");
            assert_eq!(self.headers["content-type"], "application/json; charset=utf-8");
        }
        self.status.as_u16()
    }

    #[track_caller]
    pub fn message(&self) -> String {
        self.json()["message"].as_str().unwrap().to_owned()
    }
}

/// The host side at the other end of a socket, as for a server without privileges.
pub fn host(fake: &Fake) -> Host {
    let (near, far) = UnixStream::pair().unwrap();
    tokio::spawn(sandcove_host::serve(Backend::Fake(fake.clone()), far));
    Host::there(near)
}

impl Server {
    pub async fn start() -> Self {
        Self::with(|_| ()).await
    }

    pub async fn with(change: impl FnOnce(&mut Config)) -> Self {
        Self::on(TempDir::new().unwrap(), Fake::default(), change).await
    }

    /// A server on a backend that was prepared.
    pub async fn on_fake(fake: Fake, change: impl FnOnce(&mut Config)) -> Self {
        Self::on(TempDir::new().unwrap(), fake, change).await
    }

    /// A server on the data of another one.
    pub async fn on(directory: TempDir, fake: Fake, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new(directory.path());
        config.api_key = Some(Secret::new(KEY));
        config.access_token = Some(Secret::new("sk_e2b_person"));
        config.admin_token = Some(Secret::new("admin"));
        config.grace = Duration::from_millis(500);
        change(&mut config);
        fake.keep_volumes_in(directory.path().join("volumes"));
        let app = App::start(config, host(&fake)).await.unwrap();
        app.templates().upsert_builtin(base()).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let (serving, stop) = (app.clone(), shutdown.clone());
        let task = tokio::spawn(async move { serving.serve(listener, stop).await.unwrap() });
        wait_until("the server listens", || app.local_addr().is_some()).await;
        Self { app, fake, address, directory, shutdown, task }
    }

    /// Stops gracefully and starts again on the same data and the same backend.
    pub async fn restart(self) -> Self {
        self.restart_with(|| ()).await
    }

    /// As [`Server::restart`], with something happening in between.
    pub async fn restart_with(self, between: impl FnOnce()) -> Self {
        self.shutdown.cancel();
        self.task.await.unwrap();
        between();
        Self::on(self.directory, self.fake, |_| ()).await
    }

    /// Stops, fails to start after what happens in between, and starts again; with the error.
    pub async fn restart_after_failure(self, between: impl FnOnce()) -> (Self, sandcove_server::Error) {
        self.shutdown.cancel();
        self.task.await.unwrap();
        between();
        let config = Config::new(self.directory.path());
        let error = App::start(config, host(&self.fake)).await.err().unwrap();
        (Self::on(self.directory, self.fake, |_| ()).await, error)
    }

    /// As [`Server::restart`], with other settings.
    pub async fn restart_as(self, change: impl FnOnce(&mut Config)) -> Self {
        self.shutdown.cancel();
        self.task.await.unwrap();
        Self::on(self.directory, self.fake, change).await
    }

    /// A directory of the data directory.
    pub fn data_directory(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    /// The files of the database and of the audit log.
    pub fn data_files(&self) -> Vec<std::path::PathBuf> {
        let entries = |path: &std::path::Path| {
            std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
        };
        let (directories, mut files): (Vec<_>, Vec<_>) =
            entries(self.directory.path()).into_iter().partition(|path| path.is_dir());
        files.extend(directories.iter().flat_map(|path| entries(path)));
        files
    }

    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Reply {
        let client: Client<HttpConnector, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let mut request = Request::builder()
            .method(Method::from_bytes(method.as_bytes()).unwrap())
            .uri(format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = client.request(request.body(Full::new(body.into())).unwrap()).await.unwrap();
        let (parts, body) = answer.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Reply {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8_lossy(&bytes).into_owned(),
        }
    }

    /// An API call of the default team.
    pub async fn call(&self, method: &str, path: &str, body: Value) -> Reply {
        self.call_as(KEY, method, path, body).await
    }

    pub async fn call_as(&self, key: &str, method: &str, path: &str, body: Value) -> Reply {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        self.send(method, path, &[("x-api-key", key)], text).await
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.call("GET", path, Value::Null).await
    }

    /// A sandbox made with `extra` members on top of the template's name; its answer.
    pub async fn create(&self, extra: Value) -> Value {
        let mut body = json!({ "templateID": "base", "timeout": 60 });
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let reply = self.call("POST", "/sandboxes", body).await;
        assert_eq!(reply.status, 201, "{}", reply.text);
        reply.json()
    }

    /// The id of a sandbox made with `extra` members.
    pub async fn id(&self, extra: Value) -> String {
        self.create(extra).await["sandboxID"].as_str().unwrap().to_owned()
    }

    /// A second team; its key.
    pub async fn other_team(&self) -> &'static str {
        let team = sandcove_server::domain::team::Team {
            id: Uuid::new_v4(),
            slug: "other".into(),
            name: "Other".into(),
            is_default: false,
            standing: sandcove_server::domain::team::Standing::Good,
            max_sandboxes: 2,
            max_session: Duration::from_secs(3600),
            caps: sandcove_server::domain::team::Caps::default(),
            events_ttl_days: 7,
            quota: sandcove_server::domain::team::Quota::default(),
        };
        self.app.store().add_team(&team).await.unwrap();
        self.app.store().add_key(&team, "k", &Secret::new("e2b_00")).await.unwrap();
        "e2b_00"
    }

    pub async fn state(&self, id: &str) -> Option<String> {
        let reply = self.get(&format!("/sandboxes/{id}")).await;
        (reply.status == 200).then(|| reply.json()["state"].as_str().unwrap().to_owned())
    }

    pub async fn wait_for_pause_mode(&self, id: &str, wanted: &str) {
        self.wait_for(&format!("/sandboxes/{id}"), "/pauseMode", wanted.into()).await;
    }

    /// Waits for a member of an answer, at a JSON pointer, to become `wanted`.
    pub async fn wait_for(&self, path: &str, pointer: &str, wanted: Value) {
        let deadline = tokio::time::Instant::now() + WAIT;
        loop {
            let answer = self.get(path).await.json();
            let now = answer.pointer(pointer);
            if now == Some(&wanted) {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "{pointer} of {path} is {now:?}, not {wanted}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until `count` commands to a sandbox were sent and not answered.
    pub async fn wait_for_commands(&self, id: &str, count: usize) {
        let id = sandbox_id(id);
        wait_until("the commands have come", || self.app.sandboxes().unanswered(&id) == count).await;
    }

    pub async fn wait_for_state(&self, id: &str, wanted: Option<&str>) {
        let deadline = tokio::time::Instant::now() + WAIT;
        loop {
            let state = self.state(id).await;
            if state.as_deref() == wanted {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "{id} is {state:?}, not {wanted:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// How long a test waits for what must come: only a failure takes so long, on the busiest machine.
pub const WAIT: Duration = Duration::from_secs(60);

pub fn base() -> TemplateRecord {
    TemplateRecord {
        template_id: BASE.parse().unwrap(),
        build_id: Uuid::from_u128(1),
        name: "base".into(),
        layers: vec!["top".into(), "bottom".into()],
        services: vec![Service {
            name: "service".into(),
            command: vec!["/bin/true".into()],
            user: "root".into(),
            env: BTreeMap::new(),
            cwd: Some("/".into()),
            ready_port: None,
            zygote: false,
            once: false,
            ready_command: None,
        }],
        env: BTreeMap::from([("FROM_TEMPLATE".into(), "1".into()), ("BOTH".into(), "template".into())]),
        default_user: "user".into(),
        default_workdir: Some("/home/user".into()),
        build_env: BTreeMap::new(),
        cpu_count: 2,
        memory_mib: 512,
        disk_mib: 1024,
        envd_version: ENVD_VERSION.into(),
        start_cmd: None,
        ready_cmd: None,
        snapshot_of: None,
        memory_bytes: None,
        started: None,
    }
}

pub fn sandbox_id(id: &str) -> SandboxId {
    id.parse().unwrap()
}

pub async fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + WAIT;
    while !condition() {
        assert!(tokio::time::Instant::now() < deadline, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Owner and group that this process may give files, as a query.
pub fn own_ids() -> String {
    use std::os::unix::fs::MetadataExt;
    let own = std::fs::metadata("/proc/self").unwrap();
    format!("uid={}&gid={}", own.uid(), own.gid())
}
