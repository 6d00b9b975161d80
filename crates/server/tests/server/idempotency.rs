use sandcove_isolate::fake::Operation;
use serde_json::json;

use crate::build_calls::ready;
use crate::support::{KEY, Reply, Server};

async fn create(server: &Server, key: &str, body: &str) -> Reply {
    server
        .send("POST", "/v2/sandboxes", &[("x-api-key", KEY), ("idempotency-key", key)], body.to_owned())
        .await
}

const BODY: &str = r#"{"templateID":"base","metadata":{"a":"b"}}"#;
/// Body of a request with the members in another order.
const SAME: &str = r#"{ "metadata": {"a":"b"}, "templateID": "base" }"#;
const OTHER: &str = r#"{"templateID":"base"}"#;

#[tokio::test]
async fn the_same_request_makes_one_sandbox() {
    let server = Server::start().await;
    let first = create(&server, "key-1", BODY).await;
    assert_eq!(first.code(), 201);
    let second = create(&server, "key-1", SAME).await;
    assert_eq!((second.code(), second.json()), (201, first.json()));
    assert_eq!(server.fake.ids().len(), 1);
    let other = create(&server, "key-1", OTHER).await;
    assert_eq!(other.code(), 422);
    assert_eq!(other.json()["error_code"], "idempotency_request_mismatch");
    assert_eq!(create(&server, "key-2", OTHER).await.code(), 201);
    assert_eq!(server.fake.ids().len(), 2);
}

#[tokio::test]
async fn a_key_is_looked_up_before_what_the_request_names() {
    let server = Server::start().await;
    ready(&server, json!({ "name": "app:v1" })).await;
    let body = r#"{"templateID":"app:v1"}"#;
    let first = create(&server, "k", body).await;
    assert_eq!(first.code(), 201, "{}", first.text);
    let untagged = server.call("DELETE", "/templates/tags", json!({ "name": "app", "tags": ["v1"] })).await;
    assert_eq!(untagged.code(), 204);
    let again = create(&server, "k", body).await;
    assert_eq!((again.code(), again.json()), (201, first.json()));
    for other in [r#"{"templateID":"none"}"#, r#"{"templateID":7}"#, r#"{"templateID":"base","timeout":-1}"#]
    {
        let refused = create(&server, "k", other).await;
        assert_eq!(refused.code(), 422, "{other}: {}", refused.text);
        // With a key of its own it is refused for what it is, and the key is free again.
        assert!([400, 404].contains(&create(&server, "own", other).await.code()), "{other}");
    }
    assert_eq!(create(&server, "own", OTHER).await.code(), 201);
}

#[tokio::test]
async fn a_request_under_way_is_told() {
    let server = Server::start().await;
    let hold = server.fake.hold(Operation::Create);
    let (first, second) = tokio::join!(create(&server, "k", BODY), async {
        hold.reached().await;
        let second = create(&server, "k", BODY).await;
        drop(hold);
        second
    });
    assert_eq!(first.code(), 201);
    assert_eq!(second.code(), 409);
    assert_eq!(second.json()["error_code"], "idempotency_in_progress");
}

#[tokio::test]
async fn a_failed_request_gives_its_key_back() {
    let server = Server::start().await;
    server.fake.fail_next(Operation::Create, 1);
    assert_eq!(create(&server, "k", BODY).await.code(), 500);
    assert_eq!(create(&server, "k", BODY).await.code(), 201);
}

#[tokio::test]
async fn a_sandbox_that_is_gone_is_not_made_again() {
    let server = Server::start().await;
    let id = create(&server, "k", BODY).await.json()["sandboxID"].as_str().unwrap().to_owned();
    assert_eq!(server.call("DELETE", &format!("/sandboxes/{id}"), json!(null)).await.code(), 204);
    let reply = create(&server, "k", BODY).await;
    assert_eq!(reply.code(), 409);
    assert_eq!(reply.json()["error_code"], "idempotency_outcome_unknown");
    assert!(reply.json()["message"].as_str().unwrap().contains("is gone"));
}

#[tokio::test]
async fn keys_have_a_form() {
    let server = Server::start().await;
    let long = "a".repeat(256);
    for bad in ["UPPER", "a_b", long.as_str()] {
        assert_eq!(create(&server, bad, BODY).await.code(), 400, "{bad}");
    }
    assert_eq!(server.fake.ids(), []);
}
