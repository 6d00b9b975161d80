//! The filesystem service as a client sees it, with its watches.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use sandcove_agent::rpc::envelope::{Decoder, Encoding};
use sandcove_agent::server::Entrance;
use serde_json::{Value, json};
use support::{Daemon, quoted};

#[tokio::test]
async fn an_entry_is_described_in_full() {
    let daemon = Daemon::start();
    let path = daemon.at("file");
    fs::write(&path, "12345").unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    let entry = daemon.call("Stat", json!({ "path": path })).await.unwrap()["entry"].clone();
    assert_eq!(entry["name"], "file");
    assert_eq!(entry["type"], "FILE_TYPE_FILE");
    assert_eq!(entry["path"], path);
    assert_eq!(entry["size"], "5");
    assert_eq!(entry["mode"], 0o640);
    assert_eq!(entry["permissions"], "-rw-r-----");
    assert_eq!(entry["owner"], daemon.user);
    assert!(entry["modifiedTime"].as_str().unwrap().ends_with('Z'));
    assert_eq!(entry.get("symlinkTarget"), None);
    assert_eq!(entry.get("isSymlink"), None);
}

#[tokio::test]
async fn links_paths_and_errors_are_those_of_the_original() {
    let daemon = Daemon::start();
    fs::create_dir(daemon.at("real")).unwrap();
    fs::write(daemon.at("real/file"), "").unwrap();
    symlink("real", daemon.at("link")).unwrap();
    let stat = async |path: String| daemon.call("Stat", json!({ "path": path })).await;
    let link = stat(daemon.at("link")).await.unwrap()["entry"].clone();
    assert_eq!(
        (link["type"].as_str(), link["isSymlink"].as_bool()),
        (Some("FILE_TYPE_DIRECTORY"), Some(true))
    );
    assert_eq!(link["symlinkTarget"], fs::canonicalize(daemon.at("real")).unwrap().to_str().unwrap());
    let uncleaned = daemon.at("link/../real");
    assert_eq!(stat(uncleaned.clone()).await.unwrap()["entry"]["path"], uncleaned);
    assert_eq!(stat(daemon.at("missing")).await.unwrap_err(), "not_found");
    assert_eq!(stat(daemon.at("real/file/x")).await.unwrap_err(), "internal");
    assert_eq!(stat("~other".into()).await.unwrap_err(), "invalid_argument");

    let listed = daemon.call("ListDir", json!({ "path": daemon.at("link"), "depth": 1 })).await.unwrap();
    assert_eq!(listed["entries"][0]["path"], daemon.at("link/file"));
    let empty = daemon.call("ListDir", json!({ "path": daemon.at("real/file") })).await;
    assert_eq!(empty.unwrap_err(), "invalid_argument");
}

#[tokio::test]
async fn directories_are_made_once() {
    let daemon = Daemon::start();
    let make = async |path: String| daemon.call("MakeDir", json!({ "path": path })).await;
    let made = make(daemon.at("a/b/c")).await.unwrap()["entry"].clone();
    assert_eq!((made["path"].as_str().unwrap(), made["mode"].as_u64()), (&*daemon.at("a/b/c"), Some(0o755)));
    assert_eq!(make(daemon.at("a/b/c")).await.unwrap_err(), "already_exists");
    fs::write(daemon.at("file"), "").unwrap();
    assert_eq!(make(daemon.at("file")).await.unwrap_err(), "invalid_argument");
    assert_eq!(make(daemon.at("file/x")).await.unwrap_err(), "internal");
}

#[tokio::test]
async fn entries_move_and_go() {
    let daemon = Daemon::start();
    fs::write(daemon.at("file"), "x").unwrap();
    let request = json!({ "source": daemon.at("file"), "destination": daemon.at("new/place") });
    let moved = daemon.call("Move", request.clone()).await.unwrap();
    assert_eq!(moved["entry"]["path"], daemon.at("new/place"));
    assert_eq!(daemon.call("Move", request).await.unwrap_err(), "not_found");
    for _ in 0..2 {
        assert_eq!(daemon.call("Remove", json!({ "path": daemon.at("new") })).await, Ok(json!({})));
    }
    assert_eq!(daemon.call("Remove", json!({})).await.unwrap_err(), "invalid_argument");
}

#[tokio::test]
async fn the_oldest_clients_get_what_they_can_read() {
    let daemon = Daemon::start();
    fs::write(daemon.at("file"), "x").unwrap();
    let request = Request::post("/filesystem.Filesystem/Stat")
        .header("content-type", "application/json")
        .header("user-agent", "connect-python")
        .body(Body::from(json!({ "path": daemon.at("file") }).to_string()));
    let answer = daemon.send(request.unwrap()).await;
    let expected = json!({ "name": "file", "type": "FILE_TYPE_FILE", "path": daemon.at("file") });
    assert_eq!(answer.json()["entry"], expected);
    assert_eq!(answer.header("x-e2b-legacy-sdk"), Some("true"));
}

async fn create_watcher(daemon: &Daemon, path: String, recursive: bool) -> String {
    let request = json!({ "path": path, "recursive": recursive });
    daemon.call("CreateWatcher", request).await.unwrap()["watcherId"].as_str().unwrap().to_owned()
}

/// The available events, as `TYPE name`.
async fn events(daemon: &Daemon, watcher: &str) -> Vec<String> {
    let answer = daemon.call("GetWatcherEvents", json!({ "watcherId": watcher })).await.unwrap();
    answer["events"].as_array().map_or(&[][..], Vec::as_slice).iter().map(text).collect()
}

fn text(event: &Value) -> String {
    let kind = event["type"].as_str().unwrap().strip_prefix("EVENT_TYPE_").unwrap();
    format!("{kind} {}", event["name"].as_str().unwrap())
}

async fn upload(daemon: &Daemon, path: &str, content: Vec<u8>) {
    let request = Request::post(format!("/files?path={}", quoted(path)));
    let request = request.header("content-type", "application/octet-stream").body(Body::from(content));
    assert_eq!(daemon.send(request.unwrap()).await.status, 200);
}

#[tokio::test]
async fn an_upload_is_three_events() {
    let daemon = Daemon::start();
    let watcher = create_watcher(&daemon, daemon.at(""), false).await;
    assert!(events(&daemon, &watcher).await.is_empty());
    for size in [1, 2_000_000] {
        upload(&daemon, &daemon.at("file"), vec![1; size]).await;
        assert_eq!(
            events(&daemon, &watcher).await,
            ["CREATE file", "CHMOD file", "WRITE file"],
            "{size} bytes"
        );
        upload(&daemon, &daemon.at("file"), vec![2; size]).await;
        let mut again = events(&daemon, &watcher).await;
        // The kernel makes one of two equal events if nobody has read the first yet.
        again.dedup();
        assert_eq!(again, ["CHMOD file", "WRITE file"]);
        fs::remove_file(daemon.at("file")).unwrap();
        assert_eq!(events(&daemon, &watcher).await, ["REMOVE file"]);
    }
    let removed = daemon.call("RemoveWatcher", json!({ "watcherId": watcher })).await;
    assert_eq!(removed, Ok(json!({})));
    let gone = daemon.call("GetWatcherEvents", json!({ "watcherId": watcher })).await;
    assert_eq!(gone.unwrap_err(), "not_found");
}

#[tokio::test]
async fn a_recursive_watcher_follows_directories_that_come_move_and_go() {
    let daemon = Daemon::start();
    let outside = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::create_dir_all(daemon.at("old/deep")).unwrap();
    let watcher = create_watcher(&daemon, daemon.at(""), true).await;
    fs::write(daemon.at("old/deep/file"), "").unwrap();
    assert_eq!(events(&daemon, &watcher).await, ["CREATE old/deep/file"]);

    fs::rename(daemon.at("old"), daemon.at("new")).unwrap();
    fs::remove_file(daemon.at("new/deep/file")).unwrap();
    assert_eq!(events(&daemon, &watcher).await, ["RENAME old", "CREATE new", "REMOVE new/deep/file"]);

    let away = outside.path().join("away");
    fs::rename(daemon.at("new"), &away).unwrap();
    assert_eq!(events(&daemon, &watcher).await, ["RENAME new"]);
    fs::write(away.join("deep/unseen"), "").unwrap();
    fs::rename(&away, daemon.at("back")).unwrap();
    fs::write(daemon.at("back/deep/seen"), "").unwrap();
    let mut seen = events(&daemon, &watcher).await;
    while !seen.contains(&"CREATE back/deep/seen".to_owned()) {
        // Written before the directory was registered again.
        fs::remove_file(daemon.at("back/deep/seen")).unwrap();
        fs::write(daemon.at("back/deep/seen"), "").unwrap();
        seen.extend(events(&daemon, &watcher).await);
    }
    assert_eq!(seen[0], "CREATE back");
    assert!(!seen.iter().any(|event| event.contains("unseen")));

    fs::remove_dir_all(daemon.at("back")).unwrap();
    let gone = events(&daemon, &watcher).await;
    assert_eq!(gone.last().map(String::as_str), Some("REMOVE back"));
}

#[tokio::test]
async fn a_tree_made_at_once_is_reported_whole_and_once() {
    let daemon = Daemon::start();
    let watcher = create_watcher(&daemon, daemon.at(""), true).await;
    for round in 0..20 {
        fs::create_dir_all(daemon.at(&format!("{round}/a/b"))).unwrap();
        fs::write(daemon.at(&format!("{round}/a/b/file")), "").unwrap();
        let mut created = events(&daemon, &watcher).await;
        created.retain(|event| event.starts_with("CREATE"));
        created.sort();
        let expected = ["", "/a", "/a/b", "/a/b/file"].map(|name| format!("CREATE {round}{name}"));
        assert_eq!(created, expected);
    }
}

#[tokio::test]
async fn watchers_of_one_directory_do_not_disturb_each_other() {
    let daemon = Daemon::start();
    fs::create_dir(daemon.at("sub")).unwrap();
    let plain = create_watcher(&daemon, daemon.at("sub"), false).await;
    let deep = create_watcher(&daemon, daemon.at(""), true).await;
    fs::write(daemon.at("sub/one"), "").unwrap();
    assert_eq!(events(&daemon, &plain).await, ["CREATE one"]);
    assert_eq!(events(&daemon, &deep).await, ["CREATE sub/one"]);
    daemon.call("RemoveWatcher", json!({ "watcherId": deep })).await.unwrap();
    fs::write(daemon.at("sub/two"), "").unwrap();
    assert_eq!(events(&daemon, &plain).await, ["CREATE two"]);
    fs::remove_dir_all(daemon.at("sub")).unwrap();
    assert_eq!(events(&daemon, &plain).await.last().map(String::as_str), Some("REMOVE ."));
    assert!(events(&daemon, &plain).await.is_empty(), "it stays pollable");
}

#[tokio::test]
async fn a_stream_starts_and_carries_entries() {
    let daemon = Daemon::start();
    let message = json!({ "path": daemon.at(""), "includeEntry": true }).to_string();
    let mut body = vec![0];
    body.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend_from_slice(message.as_bytes());
    let request =
        Request::post("/filesystem.Filesystem/WatchDir").header("content-type", "application/connect+json");
    let response = daemon.pipeline.handle(Entrance::Public, request.body(Body::from(body)).unwrap()).await;
    let mut body = response.into_body();
    let mut decoder = Decoder::new(Encoding::Identity);
    let mut next = async || loop {
        if let Some(payload) = decoder.next_payload().unwrap() {
            return serde_json::from_slice::<Value>(&payload).unwrap();
        }
        let frame =
            tokio::time::timeout(Duration::from_secs(60), body.frame()).await.unwrap().unwrap().unwrap();
        decoder.push(frame.data_ref().unwrap());
    };
    assert_eq!(next().await, json!({ "start": {} }));
    fs::write(daemon.at("file"), "").unwrap();
    let event = next().await["filesystem"].clone();
    assert_eq!(text(&event), "CREATE file");
    assert_eq!(event["entry"]["path"], daemon.at("file"));
    fs::remove_file(daemon.at("file")).unwrap();
    let event = next().await["filesystem"].clone();
    assert_eq!((text(&event).as_str(), event.get("entry")), ("REMOVE file", None));
}

#[tokio::test]
async fn what_cannot_be_watched_says_why() {
    let daemon = Daemon::start();
    fs::write(daemon.at("file"), "").unwrap();
    let code = async |path: String| daemon.call("CreateWatcher", json!({ "path": path })).await.unwrap_err();
    assert_eq!(code(daemon.at("missing")).await, "not_found");
    assert_eq!(code(daemon.at("file")).await, "invalid_argument");
}
