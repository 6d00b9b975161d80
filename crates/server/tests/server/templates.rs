use serde_json::json;

use crate::support::{BASE, Server, base};

#[tokio::test]
async fn the_servers_own_templates_are_listed() {
    let server = Server::start().await;
    server.id(json!({})).await;
    for list in ["/templates", "/v2/templates", "/default-templates"] {
        let templates = server.get(list).await.json();
        assert_eq!(templates.as_array().unwrap().len(), 1, "{list}");
        let template = &templates[0];
        assert_eq!(template["templateID"], BASE);
        assert_eq!(template["names"], json!(["base"]));
        assert_eq!(template["buildStatus"], "ready");
        assert_eq!(
            (&template["cpuCount"], &template["memoryMB"], &template["diskSizeMB"]),
            (&json!(2), &json!(512), &json!(1024))
        );
        assert_eq!(template["createdBy"], json!(null));
    }
    let team = server.app.store().default_team().await.unwrap().id;
    assert_eq!(server.get(&format!("/templates?teamID={team}")).await.code(), 200);
    assert_eq!(server.get("/templates?teamID=00000000-0000-0000-0000-000000000000").await.code(), 400);
}

#[tokio::test]
async fn a_new_build_of_a_builtin_takes_over_the_default_tag() {
    let server = Server::start().await;
    let mut next = base();
    next.build_id = uuid::Uuid::from_u128(2);
    next.memory_mib = 2048;
    server.app.templates().upsert_builtin(next.clone()).await.unwrap();
    server.app.templates().upsert_builtin(next).await.unwrap();
    let detail = server.get("/templates/base").await.json();
    assert_eq!(detail["templateID"], BASE);
    assert_eq!(detail["builds"].as_array().unwrap().len(), 2);
    assert_eq!(detail["builds"][0]["memoryMB"], 2048);
    let tags = server.get(&format!("/templates/{BASE}/tags")).await.json();
    assert_eq!(tags.as_array().unwrap().len(), 1);
    assert_eq!(tags[0]["buildID"], "00000000-0000-0000-0000-000000000002");
    let first = server.get("/templates/base?limit=1").await;
    assert_eq!(first.json()["builds"].as_array().unwrap().len(), 1);
    assert!(first.headers.contains_key("x-next-token"));
}

#[tokio::test]
async fn names_are_yours_somebody_elses_or_free() {
    let server = Server::start().await;
    assert_eq!(server.get("/templates/aliases/base").await.code(), 403);
    assert_eq!(server.get("/templates/aliases/base%3Av9").await.code(), 404);
    assert_eq!(server.get("/templates/aliases/unknown").await.code(), 404);
    assert_eq!(server.get("/templates/aliases/foreign%2Fname").await.code(), 400);
    assert_eq!(server.get("/templates/aliases/foreign/name").await.code(), 400);
    assert_eq!(server.get("/templates/aliases/default/name").await.code(), 404);
    assert_eq!(server.get("/templates/aliases/a%20b").await.code(), 400);
    assert_eq!(server.get("/templates/unknown").await.code(), 404);
}
