//! A daemon without sockets, for tests of files and directories: requests go straight into the pipeline.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::Path;
use std::sync::Arc;

use axum::body::Body;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt;
use sandcove_agent::account::Accounts;
use sandcove_agent::process::Processes;
use sandcove_agent::server::{self, Entrance, Pipeline};
use sandcove_agent::spawn::{Children, Reaping};
use sandcove_agent::state::State;
use sandcove_wire::boot::Settings;
use serde_json::Value;

/// A daemon, and an empty directory to work in.
pub struct Daemon {
    pub pipeline: Arc<Pipeline>,
    pub directory: tempfile::TempDir,
    pub user: String,
}

/// An answer, read to its end.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    pub async fn of(response: Response<Body>) -> Self {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        Self { status: parts.status, headers: parts.headers, body }
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e}: {:?}", String::from_utf8_lossy(&self.body)))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

impl Daemon {
    pub fn start() -> Self {
        Self::with(Settings::default())
    }

    /// Starts a daemon whose default user is the one that runs the tests.
    pub fn with(settings: Settings) -> Self {
        let user = Accounts::load().unwrap().user_name(rustix::process::geteuid().as_raw());
        let state = State::new(Settings { default_user: Some(user.clone()), ..settings });
        let children = Children::start(Reaping::OwnChildren).unwrap();
        // Not in memory, to have the attributes and watches of a usual file system.
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self { pipeline: server::build(state, &Processes::new(children)), directory, user }
    }

    /// The path of `name` in the directory of this test.
    pub fn at(&self, name: &str) -> String {
        Path::new(self.directory.path()).join(name).to_str().unwrap().to_owned()
    }

    pub async fn send(&self, request: Request<Body>) -> Answer {
        Answer::of(self.pipeline.handle(Entrance::Public, request).await).await
    }

    /// Calls an RPC of the filesystem service. Returns the message, or the code of the error.
    pub async fn call(&self, method: &str, message: Value) -> Result<Value, String> {
        let request = Request::post(format!("/filesystem.Filesystem/{method}"))
            .header("content-type", "application/json")
            .body(Body::from(message.to_string()));
        let answer = self.send(request.unwrap()).await;
        match answer.status {
            StatusCode::OK => Ok(answer.json()),
            _ => Err(answer.json()["code"].as_str().unwrap().to_owned()),
        }
    }
}

/// Percent-encodes a value for a query.
pub fn quoted(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~/".contains(&b);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}
