use serde_json::{Value, json};

use crate::build_calls::{ready, request, text};
use crate::support::{Server, sandbox_id};

async fn assign(server: &Server, target: &str, tags: Value) -> crate::support::Reply {
    server.call("POST", "/templates/tags", json!({ "target": target, "tags": tags })).await
}

async fn remove(server: &Server, name: &str, tags: Value) -> u16 {
    server.call("DELETE", "/templates/tags", json!({ "name": name, "tags": tags })).await.code()
}

async fn names(server: &Server) -> Vec<String> {
    let mut tags: Vec<String> = server
        .get("/templates/app/tags")
        .await
        .json()
        .as_array()
        .unwrap()
        .iter()
        .map(|tag| text(tag, "tag").to_owned())
        .collect();
    tags.sort();
    tags
}

#[tokio::test]
async fn tags_are_assigned_moved_and_removed() {
    let server = Server::start().await;
    let first = ready(&server, json!({ "name": "app" })).await;
    let second = ready(&server, json!({ "name": "app:v2" })).await;
    let assigned = assign(&server, "app", json!(["Prod ", "v1", "prod"])).await;
    assert_eq!(assigned.code(), 201);
    assert_eq!(assigned.json(), json!({ "tags": ["prod", "v1"], "buildID": first["buildID"] }));
    let moved = assign(&server, "default/app:v2", json!(["prod"])).await;
    assert_eq!(moved.json()["buildID"], second["buildID"]);
    let pinned = assign(&server, &format!("app:{}", text(&second, "buildID")), json!(["pinned"])).await;
    assert_eq!(pinned.json()["buildID"], second["buildID"]);
    assert_eq!(names(&server).await, ["default", "pinned", "prod", "v1", "v2"]);
    assert_eq!(server.get("/templates/app/tags/count").await.json(), json!({ "total": 5 }));
    let made = server.id(json!({ "templateID": "app:prod" })).await;

    assert_eq!(remove(&server, "app", json!(["prod", "never-there"])).await, 204);
    assert_eq!(remove(&server, "default/app", json!(["pinned"])).await, 204);
    assert_eq!(names(&server).await, ["default", "v1", "v2"]);
    let gone = server.call("POST", "/sandboxes", json!({ "templateID": "app:prod" })).await;
    assert_eq!((gone.code(), gone.message()), (404, "tag 'prod' does not exist for template 'app'".into()));
    assert!(server.fake.spec(&sandbox_id(&made)).is_some());
    assert_eq!(server.get("/templates/aliases/app%3Av2").await.code(), 200);
    assert_eq!(server.get("/templates/aliases/app%3Aprod").await.code(), 404);
    assert_eq!(server.get("/templates/app%3Aprod").await.code(), 404);
}

#[tokio::test]
async fn changes_of_tags_outside_the_rules_are_refused() {
    let server = Server::start().await;
    ready(&server, json!({ "name": "app" })).await;
    request(&server, json!({ "name": "unbuilt" })).await;
    for (target, tags, code, message) in [
        ("app", json!([]), 400, "At least one tag is required"),
        ("app", json!(["a b"]), 400, "Invalid tag"),
        ("app", json!(["00000000-0000-0000-0000-000000000000"]), 400, "Invalid tag"),
        ("app:v9", json!(["a"]), 404, "Template 'app' with tag 'v9' not found"),
        ("unbuilt", json!(["a"]), 404, "Template 'unbuilt' with tag 'default' not found"),
        ("unknown", json!(["a"]), 404, "template 'unknown' not found"),
        ("somebody/app", json!(["a"]), 400, "namespace 'somebody' must match your team 'default'"),
        ("base", json!(["a"]), 403, "access"),
        ("a b", json!(["a"]), 400, "Invalid template reference"),
    ] {
        let reply = assign(&server, target, tags).await;
        assert_eq!(reply.code(), code, "{target}");
        assert!(reply.message().contains(message), "{target}: {}", reply.message());
    }
    for (name, tags, code) in [
        ("app", json!(["default"]), 400),
        ("app", json!(["a", "DEFAULT"]), 400),
        ("app", json!([]), 400),
        ("app:v1", json!(["a"]), 400),
        ("somebody/app", json!(["a"]), 400),
        ("base", json!(["a"]), 403),
        ("unknown", json!(["a"]), 404),
    ] {
        assert_eq!(remove(&server, name, tags.clone()).await, code, "{name} {tags}");
    }
    let key = server.other_team().await;
    let id = text(&server.get("/templates/app").await.json(), "templateID").to_owned();
    let foreign = json!({ "target": id, "tags": ["a"] });
    assert_eq!(server.call_as(key, "POST", "/templates/tags", foreign).await.code(), 403);
    let foreign = json!({ "name": id, "tags": ["a"] });
    assert_eq!(server.call_as(key, "DELETE", "/templates/tags", foreign).await.code(), 403);
    assert_eq!(names(&server).await, ["default"]);

    let sandbox = server.id(json!({})).await;
    let path = format!("/sandboxes/{sandbox}/snapshots");
    assert_eq!(server.call("POST", &path, json!({ "name": "kept" })).await.code(), 201);
    assert_eq!(assign(&server, "kept", json!(["a"])).await.code(), 400);
    let uuid = format!("kept:{}", uuid::Uuid::nil());
    assert_eq!(server.call("POST", &path, json!({ "name": uuid })).await.code(), 400);
}

#[tokio::test]
async fn the_history_of_tags_can_be_read_in_pages() {
    let server = Server::start().await;
    let mut builds = Vec::new();
    for name in ["app:a", "app:b", "app:a", "app:c", "app:a"] {
        builds.push(text(&ready(&server, json!({ "name": name })).await, "buildID").to_owned());
    }
    let of = |assignments: &Value| -> Vec<String> {
        let list = assignments.as_array().unwrap();
        list.iter().map(|one| text(one, "buildId").to_owned()).collect()
    };
    let newest_first = [&builds[4], &builds[2], &builds[0]].map(Clone::clone);
    let all = server.get("/templates/app/tags/A/assignments").await.json();
    assert_eq!(of(&all["data"]), newest_first);
    assert_eq!(all["nextCursor"], Value::Null);
    for member in ["assignmentId", "assignedAt", "buildCreatedAt", "buildFinishedAt"] {
        assert!(all["data"][0][member].is_string(), "{member}");
    }
    let first = server.get("/templates/app/tags/a/assignments?limit=2").await.json();
    assert_eq!(of(&first["data"]), newest_first[..2]);
    let cursor = text(&first, "nextCursor");
    let rest = server.get(&format!("/templates/app/tags/a/assignments?limit=2&cursor={cursor}")).await.json();
    assert_eq!(of(&rest["data"]), newest_first[2..]);
    assert_eq!(rest["nextCursor"], Value::Null);

    let groups = |query: &str| {
        let path = format!("/templates/app/tags/groups{query}");
        let server = &server;
        async move {
            let answer = server.get(&path).await.json();
            let tags: Vec<String> = answer["tags"]
                .as_array()
                .unwrap()
                .iter()
                .map(|group| text(group, "tag").to_owned())
                .collect();
            (tags, answer)
        }
    };
    for (query, tags) in [
        ("", &["a", "c", "b"][..]),
        ("?sort=latest_asc", &["b", "c", "a"]),
        ("?sort=name_asc", &["a", "b", "c"]),
        ("?sort=name_desc", &["c", "b", "a"]),
        ("?search=B", &["b"]),
        ("?search=nothing", &[]),
    ] {
        assert_eq!(groups(query).await.0, tags, "{query}");
    }
    let (_, few) = groups("?assignmentLimit=2&search=a").await;
    assert_eq!(
        (few["tags"][0]["hasMore"].clone(), of(&few["tags"][0]["assignments"])),
        (json!(true), newest_first[..2].to_vec())
    );
    for sort in ["latest_desc", "latest_asc", "name_asc", "name_desc"] {
        let (first, answer) = groups(&format!("?tagsLimit=2&sort={sort}")).await;
        let cursor = text(&answer, "nextCursor").to_owned();
        let (second, answer) = groups(&format!("?tagsLimit=2&sort={sort}&tagsCursor={cursor}")).await;
        assert_eq!(answer["nextCursor"], Value::Null);
        let (all, _) = groups(&format!("?sort={sort}")).await;
        assert_eq!([first, second].concat(), all, "{sort}");
    }
    for bad in [
        "/groups?tagsLimit=0",
        "/groups?assignmentLimit=101",
        "/groups?sort=x",
        "/groups?tagsCursor=x",
        "/a/assignments?limit=0",
        "/a/assignments?cursor=!",
        "/a%20b/assignments",
        "/exists",
        "/exists?tag=a%2Fb",
    ] {
        assert_eq!(server.get(&format!("/templates/app/tags{bad}")).await.code(), 400, "{bad}");
    }
    assert_eq!(server.get("/templates/app/tags/z/assignments").await.code(), 404);
    assert_eq!(server.get("/templates/unknown/tags/groups").await.code(), 404);
    let exists = server.get("/templates/app/tags/exists?tag=%20A").await.json();
    assert_eq!(exists, json!({ "exists": true, "normalizedTag": "a" }));
    assert_eq!(server.get("/templates/app/tags/exists?tag=z").await.json()["exists"], false);
    assert_eq!(remove(&server, "app", json!(["a"])).await, 204);
    assert_eq!(groups("").await.0, ["c", "b"]);
    let key = server.other_team().await;
    let foreign = server.call_as(key, "GET", "/templates/default%2Fapp/tags/count", Value::Null).await;
    assert_eq!(foreign.code(), 403);
    assert_eq!(server.get("/templates/base/tags/groups").await.json()["tags"][0]["tag"], "default");
}
