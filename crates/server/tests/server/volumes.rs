use sandcove_isolate::fake::Operation;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::{Reply, Server, own_ids, sandbox_id, wait_until};

struct Volume<'a> {
    server: &'a Server,
    id: String,
    token: String,
}

impl<'a> Volume<'a> {
    async fn new(server: &'a Server, name: &str) -> Self {
        let made = server.call("POST", "/volumes", json!({ "name": name })).await;
        assert_eq!(made.code(), 201, "{}", made.text);
        let text = |name: &str| made.json()[name].as_str().unwrap().to_owned();
        Self { server, id: text("volumeID"), token: text("token") }
    }

    /// A content call: `what` is like `file?path=/x`.
    async fn send(&self, method: &str, what: &str, body: impl Into<bytes::Bytes>) -> Reply {
        let bearer = format!("Bearer {}", self.token);
        let path = format!("/volumecontent/{}/{what}", self.id);
        self.server.send(method, &path, &[("authorization", &bearer)], body).await
    }
}

fn content_code(reply: &Reply) -> (u16, String) {
    let body = reply.json();
    assert!(body["message"].as_str().is_some_and(|message| !message.is_empty()), "{body}");
    (reply.status.as_u16(), body["code"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn volumes_are_made_listed_and_deleted() {
    let server = Server::start().await;
    let volume = Volume::new(&server, "data").await;
    let again = server.call("POST", "/volumes", json!({ "name": "data" })).await;
    assert_eq!(again.code(), 400);
    assert!(again.message().contains("already exists"));
    // A refused one leaves nothing.
    let kept = server.data_directory("volumes");
    assert_eq!(std::fs::read_dir(kept).unwrap().count(), 1);
    for bad in [json!({}), json!({ "name": "" }), json!({ "name": "a b" }), json!({ "name": "../x" })] {
        assert_eq!(server.call("POST", "/volumes", bad.clone()).await.code(), 400, "{bad}");
    }
    let listed = server.get("/volumes").await.json();
    assert_eq!(listed, json!([{ "volumeID": volume.id, "name": "data" }]));
    let path = format!("/volumes/{}", volume.id);
    let detail = server.get(&path).await.json();
    assert_eq!((&detail["name"], detail["token"].is_string()), (&json!("data"), true));
    assert_eq!(server.get("/volumes/x").await.code(), 400);
    assert_eq!(server.call("DELETE", &path, Value::Null).await.code(), 204);
    assert_eq!(server.call("DELETE", &path, Value::Null).await.code(), 404);
    assert_eq!(server.get(&path).await.code(), 404);
    assert_eq!(server.get("/volumes").await.json(), json!([]));
    assert_eq!(content_code(&volume.send("GET", "dir?path=/", "").await).0, 404);
}

#[tokio::test]
async fn files_of_a_volume_are_written_and_read() {
    let server = Server::start().await;
    let volume = Volume::new(&server, "data").await;
    let own = own_ids();
    let file = format!("file?path=/a/b%20c.bin&mode=384&{own}");
    assert_eq!(content_code(&volume.send("PUT", &file, "x").await), (404, "not_found".into()));
    let made = volume.send("POST", &format!("dir?path=/a/d&force=true&{own}"), "").await;
    assert_eq!((made.status.as_u16(), &made.json()["type"]), (201, &json!("directory")));
    let large = vec![7u8; 20 << 20];
    let written = volume.send("PUT", &file, large.clone()).await;
    assert_eq!(written.status, 201, "{}", written.text);
    let entry = written.json();
    assert_eq!((&entry["name"], &entry["path"]), (&json!("b c.bin"), &json!("/a/b c.bin")));
    assert_eq!(
        (&entry["size"], &entry["mode"], &entry["type"]),
        (&json!(20 << 20), &json!(0o600), &json!("file"))
    );
    assert!(entry["mtime"].as_str().unwrap().ends_with('Z') && entry.get("target").is_none());
    let read = volume.send("GET", "file?path=/a/b%20c.bin", "").await;
    assert_eq!(read.headers["content-type"], "application/octet-stream");
    assert_eq!(read.headers["content-length"], large.len().to_string());
    assert_eq!(read.text.len(), large.len());
    let changed = volume.send("PATCH", "path?path=/a/b%20c.bin", r#"{"mode":420}"#).await;
    assert_eq!((changed.status.as_u16(), &changed.json()["mode"]), (200, &json!(0o644)));
    let names = async |query: &str| {
        let reply = volume.send("GET", &format!("dir?{query}"), "").await.json();
        reply.as_array().unwrap().iter().map(|e| e["path"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(names("path=/").await, ["/a"]);
    assert_eq!(names("path=/&depth=2").await, ["/a", "/a/b c.bin", "/a/d"]);
    assert_eq!(volume.send("DELETE", "path?path=/a", "").await.status, 204);
    assert_eq!(content_code(&volume.send("DELETE", "path?path=/a", "").await).0, 404);
    for bad in ["dir", "dir?path=", "dir?path=/&depth=-1", "file?path=/", "path?path=%00"] {
        assert_eq!(content_code(&volume.send("GET", bad, "").await), (400, "bad_request".into()), "{bad}");
    }
    let reply = volume.send("PATCH", "path?path=/", r#"{"mode":0.5}"#).await;
    assert_eq!(content_code(&reply), (400, "bad_request".into()));
    for bad in ["path=/x&uid=65536", "path=/x&mode=-1", "path=/x&force=maybe"] {
        assert_eq!(content_code(&volume.send("POST", &format!("dir?{bad}"), "").await).0, 400, "{bad}");
    }
}

#[tokio::test]
async fn a_volume_opens_to_its_own_token_only() {
    let server = Server::start().await;
    let mut one = Volume::new(&server, "one").await;
    let two = Volume::new(&server, "two").await;
    assert_eq!(one.send("GET", "dir?path=/", "").await.status, 200);
    one.token.clone_from(&two.token);
    assert_eq!(content_code(&one.send("GET", "dir?path=/", "").await), (401, "unauthorized".into()));
    let path = format!("/volumecontent/{}/dir?path=/", two.id);
    assert_eq!(content_code(&server.send("GET", &path, &[], "").await).0, 401);
    // Keys open sandboxes, not files.
    assert_eq!(content_code(&server.get(&path).await).0, 401);
    // A token outlives the server that gave it.
    let (id, token) = (two.id.clone(), two.token.clone());
    let server = server.restart().await;
    let two = Volume { server: &server, id, token };
    assert_eq!(two.send("GET", "dir?path=/", "").await.status, 200);
}

#[tokio::test]
async fn sandboxes_are_given_the_volumes_they_ask_for() {
    let server = Server::start().await;
    let (one, two) = (Volume::new(&server, "one").await, Volume::new(&server, "two").await);
    let mounts = json!([{ "name": "one", "path": "/data" }, { "name": "two", "path": "/home/user/two" }]);
    let id = server.id(json!({ "volumeMounts": mounts })).await;
    let spec = server.fake.spec(&sandbox_id(&id)).unwrap();
    let seen: Vec<_> = spec.mounts.iter().map(|mount| (mount.volume.as_str(), mount.path.as_str())).collect();
    assert_eq!(seen, [(one.id.as_str(), "/data"), (two.id.as_str(), "/home/user/two")]);
    let server = server.restart().await;
    assert_eq!(server.get(&format!("/sandboxes/{id}")).await.json()["volumeMounts"], mounts);
    assert_eq!(server.get("/sandboxes").await.json()[0]["volumeMounts"], mounts);
    let bad = json!({ "templateID": "base", "volumeMounts": [
        { "name": "none", "path": "/a" }, { "name": "one", "path": "relative" },
        { "name": "one", "path": "/b" }, { "name": "two", "path": "/b" }, { "name": "two", "path": "/proc/x" },
    ] });
    let reply = server.call("POST", "/sandboxes", bad).await;
    assert_eq!(reply.code(), 400);
    for part in [
        "volume 'none' not found",
        "path must be absolute",
        "path '/b' is already used",
        "'/proc/x' is reserved",
    ] {
        assert!(reply.message().contains(part), "{part}: {}", reply.message());
    }
    let other = server.other_team().await;
    let foreign = json!({ "templateID": "base", "volumeMounts": [{ "name": "one", "path": "/a" }] });
    assert_eq!(server.call_as(other, "POST", "/sandboxes", foreign).await.code(), 400);
}

#[tokio::test]
async fn volumes_nobody_knows_are_swept() {
    let server = Server::start().await;
    let volume = Volume::new(&server, "data").await.id;
    let kept = server.data_directory("volumes");
    let stray = kept.join("6f1c0f0e-7a53-4f0b-9c5e-000000000000");
    std::fs::create_dir_all(stray.join("content")).unwrap();
    std::fs::write(kept.join(&volume).join("work/unfinished"), "x").unwrap();
    let _server = server.restart().await;
    assert!(!stray.exists());
    assert!(kept.join(&volume).join("content").exists());
    assert!(!kept.join(&volume).join("work/unfinished").exists());
}

#[tokio::test]
async fn a_deleted_volume_is_removed_until_it_is_gone() {
    let server = Server::start().await;
    let path = |id: &str| format!("/volumes/{id}");
    let (one, two) = (Volume::new(&server, "one").await.id, Volume::new(&server, "two").await.id);
    let kept = server.data_directory("volumes");
    server.fake.fail_next(Operation::DeleteVolume, u32::MAX);
    assert_eq!(server.call("DELETE", &path(&one), Value::Null).await.code(), 204);
    assert!(kept.join(&one).exists());
    assert_eq!(server.get(&path(&one)).await.code(), 404);
    server.fake.fail_next(Operation::DeleteVolume, 2);
    wait_until("a deleted volume is removed", || !kept.join(&one).exists()).await;
    // Also by a server that comes later, and that fails at first too.
    server.fake.fail_next(Operation::DeleteVolume, u32::MAX);
    assert_eq!(server.call("DELETE", &path(&two), Value::Null).await.code(), 204);
    let server = server.restart().await;
    assert!(kept.join(&two).exists());
    server.fake.fail_next(Operation::DeleteVolume, 1);
    wait_until("a deleted volume is removed", || !kept.join(&two).exists()).await;
}

#[tokio::test]
async fn what_is_no_file_cannot_be_read_and_that_is_the_callers_error() {
    let server = Server::start().await;
    let volume = Volume::new(&server, "data").await;
    let kept = server.data_directory("volumes");
    let content = kept.join(&volume.id).join("content");
    let _socket = std::os::unix::net::UnixListener::bind(content.join("socket")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(content.join("pipe")).status().unwrap().success());
    for name in ["socket", "pipe"] {
        let reply = volume.send("GET", &format!("file?path=/{name}"), "").await;
        assert_eq!(content_code(&reply), (400, "bad_request".into()));
        assert_eq!(reply.json()["message"], format!("path '/{name}' is not a file"));
    }
}

/// A team has 64 uploads at once; further ones wait, and those of other teams do not.
#[tokio::test]
async fn uploads_wait_for_those_of_their_own_team_only() {
    let server = Server::start().await;
    let (volume, second) = (Volume::new(&server, "data").await, Volume::new(&server, "more").await);
    let other = server.other_team().await;
    let made = server.call_as(other, "POST", "/volumes", json!({ "name": "data" })).await.json();
    let others = Volume {
        server: &server,
        id: made["volumeID"].as_str().unwrap().to_owned(),
        token: made["token"].as_str().unwrap().to_owned(),
    };
    let mut begun = Vec::new();
    for number in 0..64 {
        let head = format!(
            "PUT /volumecontent/{}/file?path=/{number}&{} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Length: 2\r\n\r\n1",
            volume.id,
            own_ids(),
            volume.token
        );
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        begun.push(stream);
    }
    let work = server.data_directory("volumes").join(&volume.id).join("work");
    wait_until("64 uploads", || std::fs::read_dir(&work).unwrap().count() == 64).await;
    let file = format!("file?path=/last&{}", own_ids());
    let mut waiting = std::pin::pin!(second.send("PUT", &file, "x"));
    tokio::select! {
        biased;
        reply = &mut waiting => panic!("one more upload of the team: {}", reply.text),
        reply = others.send("PUT", &file, "x") => assert_eq!(reply.status.as_u16(), 201, "{}", reply.text),
    }
    begun.pop().unwrap().write_all(b"2").await.unwrap();
    assert_eq!(waiting.await.status.as_u16(), 201);
}
