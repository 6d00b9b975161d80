//! The HTTP files API as a client sees it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use base64::Engine;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;
use http::{Request, StatusCode};
use sandcove_wire::boot::Settings;
use sandcove_wire::secret::Secret;
use serde_json::json;
use sha2::{Digest, Sha256};
use support::{Answer, Daemon, quoted};

type Headers<'a> = &'a [(&'a str, &'a str)];

async fn download(daemon: &Daemon, path: &str, headers: Headers<'_>) -> Answer {
    let request = Request::get(format!("/files?path={}", quoted(path)));
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    daemon.send(request.body(Body::empty()).unwrap()).await
}

async fn upload(daemon: &Daemon, path: &str, headers: Headers<'_>, body: impl Into<Body>) -> Answer {
    let request = Request::post(format!("/files?path={}", quoted(path)));
    let request = request.header("content-type", "application/octet-stream");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    daemon.send(request.body(body.into()).unwrap()).await
}

async fn upload_parts(daemon: &Daemon, query: &str, parts: &[(&str, Option<&str>, &str)]) -> Answer {
    let mut body = String::new();
    for (name, filename, content) in parts {
        let filename = filename.map_or(String::new(), |filename| format!("; filename=\"{filename}\""));
        body.push_str(&format!(
            "--xx\r\nContent-Disposition: form-data; name=\"{name}\"{filename}\r\n\r\n{content}\r\n"
        ));
    }
    body.push_str("--xx--\r\n");
    let request =
        Request::post(format!("/files{query}")).header("content-type", "multipart/form-data; boundary=xx");
    daemon.send(request.body(Body::from(body)).unwrap()).await
}

fn zipped(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn what_is_uploaded_can_be_downloaded() {
    let daemon = Daemon::start();
    for size in [0, 1, 600_000, 3_000_000] {
        let content: Vec<u8> = (0..size).map(|n| (n % 253) as u8).collect();
        let path = daemon.at("new/directory/é file.bin");
        let written = upload(&daemon, &path, &[], content.clone()).await;
        assert_eq!(written.json(), json!([{ "name": "é file.bin", "path": path, "type": "file" }]));
        let read = download(&daemon, &path, &[]).await;
        assert_eq!(read.status, StatusCode::OK);
        assert_eq!(read.header("content-length").unwrap(), size.to_string());
        assert_eq!(read.header("accept-ranges"), Some("bytes"));
        assert_eq!(read.header("content-disposition"), Some("inline; filename*=utf-8''%C3%A9%20file.bin"));
        assert!(read.body == content, "{size} bytes");
    }
    let directory = fs::metadata(daemon.at("new/directory")).unwrap();
    assert_eq!(directory.mode() & 0o777, 0o755);
}

#[tokio::test]
async fn compressed_transfers_carry_the_same_bytes() {
    let daemon = Daemon::start();
    let content = b"content ".repeat(200_000);
    let path = daemon.at("file.txt");
    let written = upload(&daemon, &path, &[("content-encoding", "gzip")], zipped(&content)).await;
    assert_eq!(written.status, StatusCode::OK);
    assert!(fs::read(&path).unwrap() == content);
    let read = download(&daemon, &path, &[("accept-encoding", "gzip, br")]).await;
    assert_eq!(read.header("content-encoding"), Some("gzip"));
    assert_eq!(read.header("content-length"), None);
    let mut plain = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&*read.body), &mut plain).unwrap();
    assert!(plain == content);
    let bad = upload(&daemon, &path, &[("content-encoding", "gzip")], "not gzip").await;
    assert_eq!(bad.status, StatusCode::BAD_REQUEST);
    assert!(fs::read(&path).unwrap() == content, "a bad upload changes nothing");
    assert_eq!(
        download(&daemon, &path, &[("accept-encoding", "*;q=0")]).await.status,
        StatusCode::NOT_ACCEPTABLE
    );
}

#[tokio::test]
async fn an_empty_file_has_a_length_of_zero_in_any_coding() {
    let daemon = Daemon::start();
    upload(&daemon, &daemon.at("empty"), &[], "").await;
    for coding in ["identity", "gzip"] {
        let read = download(&daemon, &daemon.at("empty"), &[("accept-encoding", coding)]).await;
        assert_eq!(read.header("content-length"), Some("0"), "{coding}");
    }
}

#[tokio::test]
async fn ranges_and_conditions_are_honoured() {
    let daemon = Daemon::start();
    let path = daemon.at("file.txt");
    fs::write(&path, "0123456789").unwrap();
    let part = download(&daemon, &path, &[("range", "bytes=2-4"), ("accept-encoding", "gzip")]).await;
    assert_eq!((part.status, part.body.as_slice()), (StatusCode::PARTIAL_CONTENT, &b"234"[..]));
    assert_eq!(part.header("content-range"), Some("bytes 2-4/10"));
    let outside = download(&daemon, &path, &[("range", "bytes=10-")]).await;
    assert_eq!(outside.status, StatusCode::RANGE_NOT_SATISFIABLE);
    assert_eq!(outside.header("content-range"), Some("bytes */10"));
    let modified = part.header("last-modified").unwrap();
    let again = download(&daemon, &path, &[("if-modified-since", modified)]).await;
    assert_eq!((again.status, again.body.len()), (StatusCode::NOT_MODIFIED, 0));
    let refused =
        download(&daemon, &path, &[("range", "bytes=0-1"), ("accept-encoding", "gzip, identity;q=0")]).await;
    assert_eq!(refused.status, StatusCode::NOT_ACCEPTABLE);
}

#[tokio::test]
async fn files_that_the_kernel_makes_up_have_their_content() {
    let daemon = Daemon::start();
    let expected = fs::read("/proc/version").unwrap();
    assert_eq!(fs::metadata("/proc/version").unwrap().len(), 0);
    let whole = download(&daemon, "/proc/version", &[]).await;
    assert_eq!((whole.status, &whole.body), (StatusCode::OK, &expected));
    assert_eq!(whole.header("content-length"), Some(expected.len().to_string().as_str()));
    let part = download(&daemon, "/proc/version", &[("range", "bytes=2-5")]).await;
    assert_eq!((part.status, part.body.as_slice()), (StatusCode::PARTIAL_CONTENT, &expected[2..6]));
}

#[tokio::test]
async fn downloads_that_cannot_be_say_why() {
    let daemon = Daemon::start();
    let missing = download(&daemon, &daemon.at("missing"), &[]).await;
    let text = format!("path '{}' does not exist", daemon.at("missing"));
    assert_eq!(
        (missing.status, missing.json()),
        (StatusCode::NOT_FOUND, json!({ "code": 404, "message": text }))
    );
    assert_eq!(missing.header("content-type"), Some("application/json; charset=utf-8"));
    assert_eq!(missing.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(missing.body.last(), Some(&b'\n'));
    assert_eq!(download(&daemon, &daemon.at(""), &[]).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(download(&daemon, "~other/file", &[]).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(download(&daemon, "/dev/null", &[]).await.status, StatusCode::BAD_REQUEST);
    let unknown = Request::get("/files?path=/etc/passwd&username=nobody-such").body(Body::empty()).unwrap();
    let unknown = daemon.send(unknown).await;
    assert_eq!((unknown.status, &unknown.json()["code"]), (StatusCode::UNAUTHORIZED, &json!(401)));
    let number =
        Request::get("/files?path=/etc/passwd&signature_expiration=soon").body(Body::empty()).unwrap();
    let number = daemon.send(number).await;
    assert_eq!(number.status, StatusCode::BAD_REQUEST);
    assert!(number.header("content-type").unwrap().starts_with("text/plain"));
    let head = Request::head("/files?path=/etc/passwd").body(Body::empty()).unwrap();
    assert_eq!(daemon.send(head).await.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn uploads_that_cannot_be_say_why() {
    let daemon = Daemon::start();
    fs::write(daemon.at("file"), "").unwrap();
    assert_eq!(upload(&daemon, &daemon.at(""), &[], "x").await.status, StatusCode::BAD_REQUEST);
    assert_eq!(upload(&daemon, &daemon.at("new/"), &[], "x").await.status, StatusCode::BAD_REQUEST);
    assert_eq!(
        upload(&daemon, &daemon.at("file/x"), &[], "x").await.status,
        StatusCode::INTERNAL_SERVER_ERROR
    );
    assert_eq!(upload(&daemon, "", &[], "x").await.status, StatusCode::BAD_REQUEST);
    let coded = upload(&daemon, &daemon.at("x"), &[("content-encoding", "br")], "x").await;
    assert_eq!(coded.status, StatusCode::BAD_REQUEST);
    let json = Request::post("/files?path=/tmp/x").header("content-type", "application/json");
    assert_eq!(daemon.send(json.body(Body::from("{}")).unwrap()).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(fs::read_dir(daemon.directory.path()).unwrap().count(), 1, "nothing else was made");
}

#[tokio::test]
async fn parts_go_to_their_names_with_directories_and_undecoded() {
    let daemon = Daemon::start();
    let (one, two) = (daemon.at("a b%20.txt"), daemon.at("sub/two"));
    let parts =
        [("file", Some(one.as_str()), "1"), ("note", None, "skip"), ("file", Some(two.as_str()), "2")];
    let answer = upload_parts(&daemon, "", &parts).await;
    assert_eq!(answer.json().as_array().unwrap().len(), 2);
    assert_eq!(fs::read_to_string(&one).unwrap(), "1");
    assert_eq!(fs::read_to_string(&two).unwrap(), "2");
    assert_eq!(upload_parts(&daemon, "", &[("note", Some("x"), "")]).await.json(), json!([]));
    assert_eq!(upload_parts(&daemon, "", &[("file", None, "")]).await.status, StatusCode::BAD_REQUEST);

    let query = format!("?path={}", quoted(&daemon.at("three")));
    let twice = [("file", Some("x"), "first"), ("file", Some("y"), "second")];
    assert_eq!(upload_parts(&daemon, &query, &twice).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(fs::read_to_string(daemon.at("three")).unwrap(), "first");
}

#[tokio::test]
async fn a_broken_upload_leaves_the_old_file_whole() {
    let daemon = Daemon::start();
    fs::write(daemon.at("file"), "old").unwrap();
    for size in [10, 2_000_000] {
        let pieces = [Ok(Bytes::from(vec![1; size])), Err(std::io::Error::other("gone"))];
        for name in ["file", "new"] {
            let body = Body::from_stream(stream::iter(
                pieces
                    .iter()
                    .map(|p| p.as_ref().cloned().map_err(|_| std::io::Error::other("gone")))
                    .collect::<Vec<_>>(),
            ));
            assert_ne!(upload(&daemon, &daemon.at(name), &[], body).await.status, StatusCode::OK);
        }
    }
    assert_eq!(fs::read_to_string(daemon.at("file")).unwrap(), "old");
    assert_eq!(fs::read_dir(daemon.directory.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn overwriting_keeps_inode_and_mode_and_follows_links() {
    let daemon = Daemon::start();
    fs::write(daemon.at("file"), "a longer old content").unwrap();
    fs::set_permissions(daemon.at("file"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    symlink("file", daemon.at("link")).unwrap();
    let before = fs::metadata(daemon.at("file")).unwrap();
    let answer = upload(&daemon, &daemon.at("link"), &[], "new").await;
    assert_eq!(answer.json()[0]["path"], daemon.at("link"));
    let after = fs::metadata(daemon.at("file")).unwrap();
    assert_eq!((before.ino(), before.mode()), (after.ino(), after.mode()));
    assert_eq!(fs::read_to_string(daemon.at("file")).unwrap(), "new");
}

#[tokio::test]
async fn metadata_is_kept_shown_and_replaced() {
    let daemon = Daemon::start();
    let path = daemon.at("file");
    let first = upload(&daemon, &path, &[("X-Metadata-Author", "me"), ("x-metadata-kind", "a b")], "1").await;
    assert_eq!(first.json()[0]["metadata"], json!({ "author": "me", "kind": "a b" }));
    let entry = daemon.call("Stat", json!({ "path": path })).await.unwrap()["entry"].clone();
    assert_eq!(entry["metadata"], json!({ "author": "me", "kind": "a b" }));
    let second = upload(&daemon, &path, &[("x-metadata-kind", "c")], "2").await;
    assert_eq!(second.json()[0]["metadata"], json!({ "kind": "c" }));
    let third = upload(&daemon, &path, &[], "3").await;
    assert_eq!(third.json()[0].get("metadata"), None);
    let bad = upload(&daemon, &path, &[("x-metadata-kind", "a\tb")], "4").await;
    assert_eq!(bad.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn many_uploads_into_a_new_directory_all_succeed() {
    let daemon = Daemon::start();
    let uploads = (0..40).map(|number| {
        let path = daemon.at(&format!("a/b/c/{number}"));
        let daemon = &daemon;
        async move { upload(daemon, &path, &[], number.to_string()).await.status }
    });
    let statuses = futures_util::future::join_all(uploads).await;
    assert!(statuses.iter().all(|status| *status == StatusCode::OK));
    assert_eq!(fs::read_dir(daemon.at("a/b/c")).unwrap().count(), 40);
}

#[tokio::test]
async fn a_full_disk_has_a_status_of_its_own_and_spares_the_old_file() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can mount a small file system");
        return;
    }
    let daemon = Daemon::start();
    let mount = daemon.at("small");
    fs::create_dir(&mount).unwrap();
    let options = std::ffi::CString::new("size=1m").unwrap();
    if rustix::mount::mount(
        "tmpfs",
        mount.as_str(),
        "tmpfs",
        rustix::mount::MountFlags::empty(),
        options.as_c_str(),
    )
    .is_err()
    {
        eprintln!("skipped: mounting is not allowed here");
        return;
    }
    let target = format!("{mount}/file");
    fs::write(&target, "old").unwrap();
    let mut statuses = Vec::new();
    for (path, size) in [(&target, 4 << 20), (&format!("{mount}/new"), 4 << 20), (&target, 700 << 10)] {
        let answer = upload(&daemon, path, &[], vec![1; size]).await;
        statuses.push((answer.status, answer.json()["code"].clone()));
    }
    let (content, names) = (fs::read_to_string(&target).unwrap(), fs::read_dir(&mount).unwrap().count());
    rustix::mount::unmount(mount.as_str(), rustix::mount::UnmountFlags::DETACH).unwrap();
    assert!(
        statuses.iter().all(|status| *status == (StatusCode::INSUFFICIENT_STORAGE, json!(507))),
        "{statuses:?}"
    );
    assert_eq!((content.as_str(), names), ("old", 1));
}

fn sign(path: &str, operation: &str, expiration: Option<i64>) -> String {
    let expiration_part = expiration.map_or(String::new(), |e| format!(":{e}"));
    let text = format!("{path}:{operation}::secret{expiration_part}");
    let digest = base64::engine::general_purpose::STANDARD_NO_PAD.encode(Sha256::digest(text));
    let query = format!("path={}&signature={}", quoted(path), quoted(&format!("v1_{digest}")));
    expiration.map_or(query.clone(), |e| format!("{query}&signature_expiration={e}"))
}

#[tokio::test]
async fn a_secured_sandbox_takes_tokens_and_signatures() {
    let daemon = Daemon::with(Settings { access_token: Some(Secret::new("secret")), ..Settings::default() });
    let path = daemon.at("file");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().cast_signed();
    let get = async |query: String, token: Option<&str>| {
        let request = Request::get(format!("/files?{query}"));
        let request =
            token.into_iter().fold(request, |request, token| request.header("x-access-token", token));
        let answer = daemon.send(request.body(Body::empty()).unwrap()).await;
        let message = serde_json::from_slice(&answer.body)
            .map_or(json!(null), |body: serde_json::Value| body["message"].clone());
        (answer.status.as_u16(), message.as_str().unwrap_or_default().to_owned())
    };
    let post = Request::post(format!("/files?{}", sign(&path, "write", None)));
    let post = post.header("content-type", "application/octet-stream").body(Body::from("text")).unwrap();
    assert_eq!(daemon.send(post).await.status, StatusCode::OK);

    let plain = format!("path={}", quoted(&path));
    assert_eq!(get(plain.clone(), None).await.0, 401);
    assert_eq!(get(plain.clone(), Some("secret")).await.0, 200);
    assert_eq!(get(plain, Some("wrong")).await.0, 401);
    assert_eq!(get(sign(&path, "read", None), Some("wrong")).await.0, 401);
    assert_eq!(get(sign(&path, "read", None), None).await.0, 200);
    assert_eq!(get(sign(&path, "read", Some(now + 60)), None).await.0, 200);
    assert_eq!(
        get(sign(&path, "read", Some(now - 60)), None).await,
        (401, "signature is already expired".into())
    );
    assert_eq!(get(sign(&path, "read", Some(-1)), None).await, (401, "signature is already expired".into()));
    assert_eq!(get(sign(&path, "write", None), None).await, (401, "invalid signature".into()));
    let unsigned_expiry = format!("{}&signature_expiration={}", sign(&path, "read", None), now + 60);
    assert_eq!(get(unsigned_expiry, None).await, (401, "invalid signature".into()));
    assert_eq!(get(sign(&daemon.at("missing"), "read", None), None).await.0, 404);
}

#[tokio::test]
async fn pieces_are_composed() {
    let daemon = Daemon::start();
    fs::write(daemon.at("1"), "one ").unwrap();
    fs::write(daemon.at("2"), "two").unwrap();
    let compose = async |body: serde_json::Value| {
        let request = Request::post("/files/compose").header("content-type", "application/json");
        daemon.send(request.body(Body::from(body.to_string())).unwrap()).await
    };
    let sources = [daemon.at("1"), daemon.at("2")];
    for bad in [
        json!({ "source_paths": [], "destination": daemon.at("out") }),
        json!({ "source_paths": sources, "destination": "" }),
        json!({ "source_paths": sources, "destination": daemon.at("1") }),
        json!({ "source_paths": [daemon.at("")], "destination": daemon.at("out") }),
        json!([]),
    ] {
        assert_eq!(compose(bad).await.status, StatusCode::BAD_REQUEST);
    }
    let missing = json!({ "source_paths": [daemon.at("no")], "destination": daemon.at("out") });
    assert_eq!(compose(missing).await.status, StatusCode::NOT_FOUND);
    let unknown =
        json!({ "source_paths": sources, "destination": daemon.at("out"), "username": "nobody-such" });
    assert_eq!(compose(unknown).await.status, StatusCode::UNAUTHORIZED);

    let done = compose(json!({ "source_paths": sources, "destination": daemon.at("out") })).await;
    assert_eq!(done.json(), json!({ "name": "out", "path": daemon.at("out"), "type": "file" }));
    assert_eq!(fs::read_to_string(daemon.at("out")).unwrap(), "one two");
    assert!(sources.iter().all(|source| !Path::new(source).exists()));
}
