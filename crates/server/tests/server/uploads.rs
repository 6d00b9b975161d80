use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::build_calls::{request, text};
use crate::support::{KEY, Server};

const HASH: &str = "dcad0f8a42d2a6616fc6eb28547760d9c39e1401972aba136a910357918607a7";

async fn link(server: &Server, headers: &[(&str, &str)]) -> Value {
    let headers = [&[("x-api-key", KEY)], headers].concat();
    let reply = server.send("GET", &format!("/templates/app/files/{HASH}"), &headers, "").await;
    assert_eq!(reply.code(), 201, "{}", reply.text);
    reply.json()
}

/// The path and query of a link.
fn path(server: &Server, link: &Value) -> String {
    let url = text(link, "url");
    url.strip_prefix(&format!("http://{}", server.address)).unwrap_or_else(|| panic!("{url}")).to_owned()
}

#[tokio::test]
async fn files_are_uploaded_with_the_link_alone() {
    let server = Server::start().await;
    request(&server, json!({ "name": "app" })).await;
    let first = link(&server, &[]).await;
    assert_eq!((&first["present"], first.get("headers")), (&json!(false), None));
    let path = path(&server, &first);
    let uploaded = server.send("PUT", &path, &[], "archive").await;
    assert_eq!((uploaded.code(), uploaded.text.as_str()), (200, ""));
    let second = link(&server, &[]).await;
    assert_eq!(second["present"], true);
    assert!(second["url"].is_string(), "to upload it again");
    assert_eq!(server.send("PUT", &path, &[], "archive, again").await.code(), 200);
    let stored = server.data_directory("file-sets");
    let team = server.app.store().default_team().await.unwrap().id;
    assert_eq!(std::fs::read(stored.join(team.to_string()).join(HASH)).unwrap(), b"archive, again");
}

#[tokio::test]
async fn links_lead_to_where_the_client_has_reached_the_server() {
    let server = Server::with(|config| {
        config.api_prefix = Some("/api".into());
    })
    .await;
    request(&server, json!({ "name": "app" })).await;
    for (headers, base) in [
        (&[("host", "api.example.com")][..], "https://api.example.com/upload/"),
        (&[("host", "api.example.com:8080")], "http://api.example.com:8080/upload/"),
        (&[("host", "192.0.2.1")], "http://192.0.2.1/upload/"),
        (&[("host", "sandcove.internal:3000")], "http://sandcove.internal:3000/upload/"),
        (&[("host", "x.test"), ("x-forwarded-proto", "https")], "https://x.test/upload/"),
        (
            &[
                ("host", "localhost:3000"),
                ("x-forwarded-proto", "https, http"),
                ("x-forwarded-host", "y.test"),
            ],
            "https://y.test/upload/",
        ),
        (&[("host", "api.example.com"), ("x-forwarded-proto", "http")], "http://api.example.com/upload/"),
    ] {
        let link = link(&server, headers).await;
        assert!(text(&link, "url").starts_with(base), "{headers:?}: {link}");
    }
    let path = format!("/api/templates/app/files/{HASH}");
    let reply = server.send("GET", &path, &[("x-api-key", KEY)], "").await;
    let url = text(&reply.json(), "url").to_owned();
    let path = url.strip_prefix(&format!("http://{}", server.address)).unwrap();
    assert!(path.starts_with("/api/upload/"), "{url}");
    assert_eq!(server.send("PUT", path, &[], "archive").await.code(), 200);
}

#[tokio::test]
async fn other_links_are_refused() {
    let server = Server::start().await;
    request(&server, json!({ "name": "app" })).await;
    let path = path(&server, &link(&server, &[]).await);
    let other_hash = path.replace("dcad0f8a", "00000000");
    let (before, token) = path.split_once("&token=").unwrap();
    let expires = before.split_once("expires=").unwrap().1;
    for (path, code) in [
        (other_hash, 403),
        (format!("{before}&token={}", "00".repeat(32)), 403),
        (format!("{before}&token=x"), 403),
        (path.replace(&format!("expires={expires}"), "expires=4102444800"), 403),
        (path.replace(&format!("expires={expires}"), "expires=x"), 400),
        (path.replace(&format!("expires={expires}&"), ""), 400),
        (before.to_owned(), 400),
        (path.replace(HASH, "abc"), 400),
        (path.replace("/upload/", "/upload/x"), 400),
    ] {
        assert_eq!(server.send("PUT", &path, &[], "archive").await.code(), code, "{path}");
    }
    assert_eq!(token.len(), 64);
    assert_eq!(server.send("GET", &path, &[], "").await.code(), 404);
    assert_eq!(link(&server, &[]).await["present"], false, "nothing was stored");
    for (file, code) in [
        ("app/files/abc".to_owned(), 400),
        (format!("app/files/{}", HASH.to_uppercase()), 400),
        (format!("unknown/files/{HASH}"), 404),
        (format!("base/files/{HASH}"), 404),
    ] {
        assert_eq!(server.get(&format!("/templates/{file}")).await.code(), code, "{file}");
    }
    let key = server.other_team().await;
    let foreign = format!("/templates/default%2Fapp/files/{HASH}");
    assert_eq!(server.call_as(key, "GET", &foreign, Value::Null).await.code(), 404);
}

#[tokio::test]
async fn uploads_are_as_large_as_a_sandbox_at_most() {
    let server = Server::start().await;
    request(&server, json!({ "name": "app" })).await;
    let path = path(&server, &link(&server, &[]).await);
    let mut team = server.app.store().default_team().await.unwrap();
    team.caps.disk_mib = 1;
    server.app.store().update_team(&team).await.unwrap();
    let too_large = server.send("PUT", &path, &[], vec![0; (1 << 20) + 1]).await;
    assert_eq!(too_large.code(), 413);
    assert!(too_large.message().contains("at most 1 MiB"), "{}", too_large.message());
    assert_eq!(server.send("PUT", &path, &[], vec![0; 1 << 19]).await.code(), 200);
    let too_many = server.send("PUT", &path, &[], vec![0; (1 << 19) + 1]).await;
    assert_eq!(too_many.code(), 413, "with the first one, which is in use");

    // A body without a length, which breaks off at the limit.
    let mut stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let head =
        format!("PUT {path} HTTP/1.1\r\nhost: {}\r\ntransfer-encoding: chunked\r\n\r\n", server.address);
    stream.write_all(head.as_bytes()).await.unwrap();
    let piece = [b"10000\r\n".as_slice(), &vec![0; 0x10000], b"\r\n"].concat();
    for _ in 0..200 {
        if stream.write_all(&piece).await.is_err() {
            break;
        }
    }
    let mut answer = vec![0; 12];
    tokio::time::timeout(crate::support::WAIT, stream.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 413");

    team.standing = sandcove_server::domain::team::Standing::Blocked("unpaid".into());
    server.app.store().update_team(&team).await.unwrap();
    assert_eq!(server.send("PUT", &path, &[], "archive").await.code(), 403);
}
