//! Ids of requests: in every answer, whoever gives it.

use crate::support::{KEY, Server};

#[tokio::test]
async fn every_answer_has_the_id_of_its_request() {
    let server = Server::start().await;
    let id = ("x-request-id", "proxy-1:7");
    let key = ("x-api-key", KEY);
    for (method, path, headers, status) in [
        ("GET", "/health", vec![id], 200),
        ("GET", "/sandboxes", vec![id, key], 200),
        ("GET", "/sandboxes", vec![id], 401),
        ("GET", "/no/such/route", vec![id, key], 404),
        (
            "OPTIONS",
            "/sandboxes",
            vec![id, ("origin", "https://a.example"), ("access-control-request-method", "GET")],
            200,
        ),
        ("GET", "/dashboard", vec![id], 200),
        ("GET", "/dashboard/api/sandboxes", vec![id], 401),
        ("POST", "/mcp", vec![id], 401),
        ("GET", "/", vec![id, ("host", "3000-inosuchsandbox.localhost")], 502),
        ("GET", "/", vec![id, ("host", "99999-iabc.localhost")], 400),
    ] {
        let reply = server.send(method, path, &headers, "").await;
        assert_eq!(reply.status, status, "{method} {path} {}", reply.text);
        assert_eq!(reply.headers["x-request-id"], id.1, "{method} {path}");
        assert_eq!(reply.headers.get_all("x-request-id").iter().count(), 1);
    }
    let made = [("x-request-id", "two words"), key];
    let (first, second) = (
        server.send("GET", "/sandboxes", &made, "").await,
        server.send("GET", "/sandboxes", &made, "").await,
    );
    assert_ne!(first.headers["x-request-id"], second.headers["x-request-id"]);
    assert_ne!(first.headers["x-request-id"], "two words");
    let refused = server.send("GET", "/sandboxes/inosuchsandbox", &[key, id], "").await;
    assert_eq!(refused.json().as_object().unwrap().keys().collect::<Vec<_>>(), ["code", "message"]);
}
