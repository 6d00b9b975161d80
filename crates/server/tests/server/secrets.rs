//! Secrets: their calls, and that nothing but the host can open a value.

use serde_json::{Value, json};

use crate::support::{Reply, Server};

const VALUE: &str = "the-value-that-nobody-sees";

async fn create(server: &Server, name: &str) -> Reply {
    server
        .call("POST", "/secrets", json!({ "name": name, "value": VALUE, "metadata": { "for": "tests" } }))
        .await
}

#[tokio::test]
async fn secrets_are_made_listed_changed_and_deleted() {
    let server = Server::start().await;
    let made = create(&server, "Open-AI_key").await;
    assert_eq!(made.code(), 201, "{}", made.text);
    let secret = made.json();
    let id = secret["secretID"].as_str().unwrap();
    assert!(id.starts_with("sec_") && secret["name"] == "open-ai_key" && secret["currentVersion"] == 1);
    assert_eq!(secret["metadata"], json!({ "for": "tests" }));
    assert_eq!(server.get("/secrets").await.json(), json!([secret]));
    for reference in [id, "open-ai_key", "OPEN-AI_KEY"] {
        assert_eq!(server.get(&format!("/secrets/{reference}")).await.json(), secret);
    }
    let changed = server.call("POST", "/secrets/open-ai_key", json!({ "value": "another" })).await;
    assert_eq!(changed.code(), 200, "{}", changed.text);
    let changed = changed.json();
    assert!(changed["currentVersion"] == 2 && changed["metadata"] == secret["metadata"]);
    assert!(changed["createdAt"] == secret["createdAt"] && changed["updatedAt"] != secret["updatedAt"]);
    let cleared =
        server.call("POST", &format!("/secrets/{id}"), json!({ "value": "a", "metadata": {} })).await;
    assert_eq!(cleared.json()["metadata"], json!({}));
    let path = format!("/secrets/{id}");
    assert_eq!(server.call("DELETE", &path, Value::Null).await.code(), 204);
    for method in ["GET", "DELETE"] {
        let gone = server.call(method, &path, Value::Null).await;
        assert_eq!((gone.code(), gone.message().as_str()), (404, "Secret not found"));
    }
}

#[tokio::test]
async fn answers_are_fixed_and_not_cached() {
    let server = Server::start().await;
    let long = "x".repeat(8193);
    for bad in [
        json!({}),
        json!({ "name": "a" }),
        json!({ "name": "", "value": VALUE }),
        json!({ "name": "a b", "value": VALUE }),
        json!({ "name": "sec_a", "value": VALUE }),
        json!({ "name": "x".repeat(129), "value": VALUE }),
        json!({ "name": "a", "value": "" }),
        json!({ "name": "a", "value": long }),
        json!({ "name": "a", "value": format!("{VALUE}\r\nHost: other") }),
        json!({ "name": "a", "value": [VALUE] }),
        json!({ "name": "a", "value": VALUE, "metadata": { "k": "x".repeat(1025) } }),
        json!({ "name": "a", "value": VALUE, "metadata": { "x".repeat(129): "v" } }),
    ] {
        let refused = server.call("POST", "/secrets", bad.clone()).await;
        assert_eq!((refused.code(), refused.message().as_str()), (400, "Invalid secrets request"), "{bad}");
        assert_eq!(refused.headers["cache-control"], "no-store");
    }
    assert_eq!(create(&server, "taken").await.code(), 201);
    let again = create(&server, "TAKEN").await;
    assert_eq!(
        (again.code(), again.message().as_str()),
        (409, "Secret cannot be modified in its current state")
    );
    assert_eq!(again.json().get("error_code"), None);
    let unknown = server.send("GET", "/secrets", &[], "").await;
    assert_eq!((unknown.code(), unknown.message().as_str()), (401, "You are not authenticated"));
    assert_eq!(unknown.headers["cache-control"], "no-store");
    assert_eq!(server.get("/secrets").await.headers["cache-control"], "no-store");
    // Other calls keep their own answers.
    assert!(server.send("GET", "/volumes", &[], "").await.message() != "You are not authenticated");
}

#[tokio::test]
async fn a_team_at_its_limit_is_told_so() {
    let server = Server::start().await;
    for number in 0..500 {
        assert_eq!(create(&server, &format!("s{number}")).await.code(), 201);
    }
    let code = async |name: &str| {
        let refused = create(&server, name).await;
        assert_eq!(
            (refused.code(), refused.message().as_str()),
            (409, "Secret cannot be modified in its current state")
        );
        refused.json()["error_code"].clone()
    };
    assert_eq!(code("another").await, "secret_limit_reached");
    assert_eq!(code("s0").await, Value::Null, "the name is taken, whatever the limit");
}

#[tokio::test]
async fn lists_have_pages() {
    let server = Server::start().await;
    for number in 0..5 {
        create(&server, &format!("s{number}")).await;
    }
    let (mut found, mut path) = (Vec::new(), "/secrets?limit=2".to_owned());
    loop {
        let page = server.get(&path).await;
        found.extend(
            page.json().as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()),
        );
        match page.headers.get("x-next-token") {
            Some(token) => path = format!("/secrets?limit=2&nextToken={}", token.to_str().unwrap()),
            None => break,
        }
    }
    assert_eq!(found, ["s4", "s3", "s2", "s1", "s0"]);
}

#[tokio::test]
async fn a_value_is_in_no_answer_and_not_in_the_database() {
    let server = Server::start().await;
    let made = create(&server, "hidden").await;
    for text in [made.text, server.get("/secrets").await.text, server.get("/secrets/hidden").await.text] {
        assert!(!text.contains(VALUE));
    }
    for path in server.data_files().into_iter().filter(|path| path.is_file()) {
        let bytes = std::fs::read(&path).unwrap();
        assert!(!bytes.windows(VALUE.len()).any(|part| part == VALUE.as_bytes()), "{}", path.display());
    }
}
