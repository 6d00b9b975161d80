use serde_json::{Value, json};

use crate::support::{KEY, Server, host};

#[tokio::test]
async fn credentials_are_needed_and_judged() {
    let server = Server::start().await;
    let get = async |headers: &[(&str, &str)]| {
        let reply = server.send("GET", "/sandboxes", headers, "").await;
        (reply.code(), reply.text)
    };
    let (code, text) = get(&[]).await;
    assert_eq!(code, 401);
    assert!(text.contains("authorization header is missing"));
    let (code, text) = get(&[("x-api-key", "e2b_unknown")]).await;
    assert_eq!(code, 401);
    assert!(text.contains("Invalid API key, please visit "));
    let (code, text) = get(&[("x-api-key", "nonsense")]).await;
    assert_eq!(code, 401);
    assert!(text.contains("Invalid API key format"));
    let (code, text) = get(&[("authorization", "Bearer sk_e2b_unknown")]).await;
    assert_eq!(code, 401);
    assert!(text.contains("Invalid Access token, try to login again by running "));
    assert_eq!(get(&[("x-api-key", KEY)]).await.0, 200);
    // One valid scheme is enough, and the first error is the one that is returned.
    assert_eq!(get(&[("x-api-key", KEY), ("authorization", "Bearer nonsense")]).await.0, 200);
    assert_eq!(get(&[("x-api-key", "e2b_unknown"), ("authorization", "Bearer sk_e2b_person")]).await.0, 200);
    let (_, text) = get(&[("x-api-key", "e2b_unknown"), ("authorization", "Bearer x")]).await;
    assert!(text.contains("Invalid API key, please visit "));
}

#[tokio::test]
async fn admins_act_for_a_team() {
    let server = Server::start().await;
    let team = server.app.store().default_team().await.unwrap().id.to_string();
    let get = async |team: &str| {
        let headers = [("x-admin-token", "admin"), ("x-team-id", team)];
        let reply = server.send("GET", "/v2/sandboxes", &headers, "").await;
        (reply.code(), reply.text)
    };
    assert_eq!(get(&team).await.0, 200);
    let (code, text) = get("x").await;
    assert!(code == 400 && text.contains("Invalid team ID"));
    let (code, text) = get("00000000-0000-0000-0000-000000000000").await;
    assert!(code == 404 && text.contains("Team not found"));
    let wrong =
        server.send("GET", "/v2/sandboxes", &[("x-admin-token", "x"), ("x-team-id", &team)], "").await;
    assert_eq!(wrong.code(), 401);
}

#[tokio::test]
async fn nothing_of_another_team_is_found() {
    let server = Server::start().await;
    let other = server.other_team().await;
    let running = server.id(json!({})).await;
    let paused = server.id(json!({})).await;
    assert_eq!(server.call("POST", &format!("/sandboxes/{paused}/pause"), Value::Null).await.code(), 204);
    for id in [&running, &paused] {
        let calls = [
            ("GET", format!("/sandboxes/{id}"), Value::Null),
            ("DELETE", format!("/sandboxes/{id}"), Value::Null),
            ("POST", format!("/sandboxes/{id}/pause"), Value::Null),
            ("POST", format!("/sandboxes/{id}/resume"), Value::Null),
            ("POST", format!("/sandboxes/{id}/connect"), json!({ "timeout": 10 })),
            ("POST", format!("/v2/sandboxes/{id}/connect"), Value::Null),
            ("POST", format!("/sandboxes/{id}/timeout"), json!({ "timeout": 10 })),
            ("POST", format!("/sandboxes/{id}/refreshes"), Value::Null),
            ("PUT", format!("/sandboxes/{id}/network"), json!({})),
        ];
        for (method, path, body) in calls {
            let reply = server.call_as(other, method, &path, body).await;
            assert_eq!(reply.code(), 404, "{method} {path}");
            assert_eq!(
                reply.message(),
                format!("Sandbox \"{id}\" doesn't exist or you don't have access to it")
            );
        }
        for path in ["metrics", "logs"] {
            let reply = server.call_as(other, "GET", &format!("/sandboxes/{id}/{path}"), Value::Null).await;
            assert!(!reply.text.contains("sandbox started"), "{}", reply.text);
        }
    }
    for list in ["/sandboxes", "/v2/sandboxes"] {
        assert_eq!(server.call_as(other, "GET", list, Value::Null).await.json(), json!([]));
    }
    assert_eq!(server.state(&running).await.as_deref(), Some("running"));
    assert_eq!(server.state(&paused).await.as_deref(), Some("paused"));
}

#[tokio::test]
async fn blocked_teams_look_and_clean_up_and_banned_ones_do_nothing() {
    use sandcove_server::domain::team::{Standing, Team};
    let server = Server::start().await;
    for (standing, slug, key) in
        [(Standing::Blocked("unpaid".into()), "a", "e2b_a"), (Standing::Banned, "b", "e2b_b")]
    {
        let team = Team {
            id: uuid::Uuid::new_v4(),
            slug: slug.into(),
            standing,
            is_default: false,
            ..server.app.store().default_team().await.unwrap()
        };
        server.app.store().add_team(&team).await.unwrap();
        server.app.store().add_key(&team, "k", &sandcove_wire::secret::Secret::new(key)).await.unwrap();
    }
    let create = json!({ "templateID": "base" });
    let reply = server.call_as("e2b_a", "POST", "/sandboxes", create.clone()).await;
    assert_eq!((reply.code(), reply.message().as_str()), (403, "team is blocked: unpaid"));
    assert_eq!(server.call_as("e2b_a", "GET", "/sandboxes", Value::Null).await.code(), 200);
    assert_eq!(server.call_as("e2b_a", "GET", "/templates", Value::Null).await.code(), 200);
    assert_eq!(server.call_as("e2b_a", "DELETE", "/sandboxes/iabc", Value::Null).await.code(), 404);
    for path in ["/sandboxes", "/templates"] {
        let reply = server.call_as("e2b_b", "GET", path, Value::Null).await;
        assert_eq!((reply.code(), reply.message().as_str()), (403, "team is banned"));
    }
}

#[tokio::test]
async fn the_list_of_teams_comes_with_a_key_that_works() {
    let server = Server::start().await;
    let reply = server.send("GET", "/teams", &[("authorization", "Bearer sk_e2b_person")], "").await;
    let team = &reply.json()[0];
    assert_eq!(team["isDefault"], true);
    let key = team["apiKey"].as_str().unwrap();
    assert!(key.starts_with("e2b_") && key.len() == 44);
    assert_eq!(server.call_as(key, "GET", "/sandboxes", Value::Null).await.code(), 200);
    assert_eq!(server.send("GET", "/teams", &[], "").await.code(), 401);
}

#[tokio::test]
async fn a_first_key_is_made_up_once_and_stored_as_a_hash_only() {
    let directory = tempfile::tempdir().unwrap();
    let config = sandcove_server::Config::new(directory.path());
    let app = sandcove_server::App::start(config.clone(), host(&sandcove_isolate::fake::Fake::default()))
        .await
        .unwrap();
    let key = app.new_key().unwrap().expose().to_owned();
    assert!(key.starts_with("e2b_") && key.len() == 44);
    assert!(app.store().team_of_key(&key).await.unwrap().unwrap().0.is_default);
    app.stop().await;
    let database = std::fs::read(directory.path().join("sandcove.db")).unwrap();
    assert!(!database.windows(key.len()).any(|window| window == key.as_bytes()));
    let app =
        sandcove_server::App::start(config, host(&sandcove_isolate::fake::Fake::default())).await.unwrap();
    assert!(app.new_key().is_none());
    assert!(app.store().team_of_key(&key).await.unwrap().is_some());
    app.stop().await;
}

#[tokio::test]
async fn unknown_paths_are_told_as_json() {
    let server = Server::start().await;
    assert_eq!(server.get("/nonsense").await.code(), 404);
    assert_eq!(server.call("PATCH", "/sandboxes", Value::Null).await.code(), 404);
    assert!(server.get("/instances/x").await.message().contains("deprecated"));
    assert_eq!(server.get("/envs").await.code(), 404);
    let health = server.send("GET", "/health", &[], "").await;
    assert_eq!((health.status.as_u16(), health.text.as_str()), (200, "Health check successful"));
    let preflight = server
        .send(
            "OPTIONS",
            "/sandboxes",
            &[
                ("origin", "http://a.b"),
                ("access-control-request-method", "POST"),
                ("access-control-request-headers", "x-api-key"),
            ],
            "",
        )
        .await;
    assert!(preflight.status.is_success());
    assert_eq!(preflight.headers["access-control-allow-origin"], "*");
    // Of pages that run code: the sandbox will be in the headers.
    let names =
        ("access-control-request-headers", "content-type,e2b-sandbox-id,e2b-sandbox-port,x-access-token");
    let method = ("access-control-request-method", "POST");
    for path in ["/execute", "/contexts", "/health"] {
        let preflight = server.send("OPTIONS", path, &[("origin", "http://a.b"), method, names], "").await;
        assert!(preflight.status.is_success(), "{path}");
        assert_eq!(preflight.headers["access-control-allow-headers"], "*", "{path}");
    }
}
