use sandcove_server::domain::build::{BuildBase, BuildReason, BuildSpec};
use sandcove_server::domain::team::Team;
use sandcove_server::domain::template::TemplateRecord;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{BASE, KEY, Server, base, sandbox_id};

/// A request of a build, answered with 202.
pub async fn request(server: &Server, body: Value) -> Value {
    let reply = server.call("POST", "/v3/templates", body).await;
    assert_eq!(reply.code(), 202, "{}", reply.text);
    reply.json()
}

pub fn text<'v>(value: &'v Value, member: &str) -> &'v str {
    value[member].as_str().unwrap_or_else(|| panic!("no {member} in {value}"))
}

pub fn build_of(requested: &Value) -> Uuid {
    text(requested, "buildID").parse().unwrap()
}

fn spec() -> BuildSpec {
    BuildSpec {
        from: BuildBase::Image("debian:stable".into()),
        steps: Vec::new(),
        start_cmd: None,
        ready_cmd: None,
        force: false,
    }
}

/// Begins a requested build of the default team, without anything that runs it.
async fn begin(server: &Server, requested: &Value) {
    let team = server.app.store().default_team().await.unwrap();
    begin_of(server, &team, requested).await;
}

/// Begins a requested build of a team, without anything that runs it.
pub async fn begin_of(server: &Server, team: &Team, requested: &Value) {
    let store = server.app.store();
    let template = text(requested, "templateID").parse().unwrap();
    store.begin_build(team, &template, build_of(requested), &spec()).await.unwrap();
}

/// Makes a build that has begun ready, with the layer `layer` on those of `base`.
pub async fn finish(server: &Server, requested: &Value, layer: &str) -> bool {
    let row = server.app.store().build_row(build_of(requested)).await.unwrap().unwrap();
    let record = TemplateRecord {
        template_id: row.template,
        build_id: row.build,
        name: row.name,
        layers: vec![format!("{layer}/upper"), "top".into(), "bottom".into()],
        cpu_count: row.cpu_count,
        memory_mib: row.memory_mib,
        disk_mib: row.disk_mib,
        default_workdir: None,
        services: Vec::new(),
        ..base()
    };
    server.app.store().finish_build(row.build, &record).await.unwrap()
}

/// A template with a ready build.
pub async fn ready(server: &Server, body: Value) -> Value {
    let requested = request(server, body).await;
    begin(server, &requested).await;
    let layer = format!("t-{}", build_of(&requested).simple());
    assert!(finish(server, &requested, &layer).await);
    requested
}

async fn status(server: &Server, requested: &Value) -> Value {
    let (template, build) = (text(requested, "templateID"), text(requested, "buildID"));
    let reply = server.get(&format!("/templates/{template}/builds/{build}/status")).await;
    assert_eq!(reply.code(), 200, "{}", reply.text);
    reply.json()
}

#[tokio::test]
async fn a_request_reserves_a_template_and_a_build() {
    let server = Server::start().await;
    let slug = server.app.store().default_team().await.unwrap().slug;
    let first = request(&server, json!({ "name": " My-App:V1 ", "tags": ["latest", "v1", "Latest"] })).await;
    assert_eq!(text(&first, "templateID").len(), 20);
    assert_eq!(first["names"], json!([format!("{slug}/my-app")]));
    assert_eq!(first["aliases"], json!(["my-app"]));
    assert_eq!(first["tags"], json!(["v1", "latest"]));
    assert_eq!(first["public"], false);
    let again = request(&server, json!({ "name": format!("{slug}/my-app:default"), "cpuCount": 4 })).await;
    assert_eq!(again["templateID"], first["templateID"]);
    assert_ne!(again["buildID"], first["buildID"]);
    assert_eq!(again["tags"], json!(["default"]));
    let old = request(&server, json!({ "alias": "my-app", "tags": null, "memoryMB": 512, "extra": 1 })).await;
    assert_eq!(old["templateID"], first["templateID"]);

    assert_eq!(status(&server, &old).await["status"], "waiting");
    let detail = server.get("/templates/my-app").await.json();
    assert_eq!(detail["templateID"], first["templateID"]);
    let builds = detail["builds"].as_array().unwrap();
    assert_eq!(builds.len(), 3);
    assert_eq!((&builds[0]["cpuCount"], &builds[0]["memoryMB"]), (&json!(2), &json!(512)));
    assert_eq!((&builds[1]["cpuCount"], &builds[1]["memoryMB"]), (&json!(4), &json!(1024)));
    assert_eq!(builds[0]["status"], "waiting");
    assert_eq!(builds[1]["status"], "error", "it was never started, and another one is to get its tag");
    assert_eq!(builds[2]["status"], "waiting", "it is to get other tags");
    assert!(builds[0].get("envdVersion").is_none());
    assert_eq!(
        text(&status(&server, &again).await["reason"], "message"),
        "build was cancelled because it was superseded by a newer one"
    );

    // Listed, with nothing to start from yet.
    let listed = server.get("/templates").await.json();
    assert_eq!(listed.as_array().unwrap().len(), 2);
    assert_eq!((&listed[0]["templateID"], &listed[0]["isDefault"]), (&json!(BASE), &json!(true)));
    let own = &listed[1];
    assert_eq!(own["buildID"], Uuid::nil().to_string());
    assert_eq!((&own["cpuCount"], &own["memoryMB"]), (&json!(0), &json!(0)));
    assert_eq!((&own["buildStatus"], &own["buildCount"]), (&json!("waiting"), &json!(3)));
    assert_eq!(server.get("/v2/templates").await.json()[0]["templateID"], first["templateID"]);
    let refused = server.call("POST", "/sandboxes", json!({ "templateID": "my-app" })).await;
    assert_eq!(refused.code(), 404);
    assert_eq!(refused.message(), "tag 'default' does not exist for template 'my-app'");
}

#[tokio::test]
async fn requests_outside_the_rules_are_refused() {
    let server = Server::start().await;
    for (body, message) in [
        (json!({}), "Name is required"),
        (json!({ "name": " " }), "Name is required"),
        (json!({ "name": "a b" }), "Invalid name: 'a b'"),
        (json!({ "name": format!("a{}", "b".repeat(128)) }), "Invalid name: "),
        (json!({ "name": "somebody/app" }), "namespace 'somebody' must match your team 'default'"),
        (json!({ "name": format!("app:{}", Uuid::nil()) }), "Invalid tag: "),
        (json!({ "name": "app", "tags": ["a b"] }), "Invalid tag: "),
        (json!({ "name": "app", "tags": [Uuid::nil()] }), "Invalid tag: "),
        (json!({ "name": "app", "cpuCount": 0 }), "validation error: CPU count must be at least 1"),
        (json!({ "name": "app", "cpuCount": -4 }), "validation error: CPU count must be at least 1"),
        (json!({ "name": "app", "cpuCount": 3 }), "CPU count must be 1 or an even number"),
        (json!({ "name": "app", "cpuCount": 33 }), "CPU count must be at most 32"),
        (json!({ "name": "app", "memoryMB": 127 }), "validation error: Memory must be at least 128 MiB"),
        (json!({ "name": "app", "memoryMB": 129 }), "Memory must be divisible by 2"),
        (json!({ "name": "app", "memoryMB": 1_u64 << 40 }), "Memory can't be higher than 262144 MiB"),
        (json!({ "name": "app", "minFreeDiskMb": -1 }), "must not be negative"),
        (json!({ "name": "app", "teamID": Uuid::nil() }), "the team ID is not that of the credentials"),
    ] {
        let reply = server.call("POST", "/v3/templates", body.clone()).await;
        assert_eq!(reply.code(), 400, "{body}");
        assert!(reply.message().contains(message), "{body}: {}", reply.message());
    }
    assert_eq!(server.call("POST", "/v3/templates", Value::Null).await.code(), 400);
    assert_eq!(server.send("POST", "/v3/templates", &[], "{}").await.code(), 401);
    let own = request(&server, json!({ "name": "app" })).await;
    let by_id = server.call("POST", "/v3/templates", json!({ "name": own["templateID"] })).await;
    assert_eq!(
        (by_id.code(), by_id.message()),
        (409, format!("Alias '{}' is already used", text(&own, "templateID")))
    );
    let id = server.id(json!({})).await;
    let snapshot =
        server.call("POST", &format!("/sandboxes/{id}/snapshots"), json!({ "name": "kept" })).await;
    assert_eq!(snapshot.code(), 201);
    assert_eq!(server.call("POST", "/v3/templates", json!({ "name": "kept" })).await.code(), 409);
    let taken = server.call("POST", &format!("/sandboxes/{id}/snapshots"), json!({ "name": "app" })).await;
    assert_eq!(taken.code(), 400);
    // The name of one of the server's own templates is free for a team.
    assert_ne!(request(&server, json!({ "name": "base" })).await["templateID"], BASE);
}

#[tokio::test]
async fn the_maximum_of_the_team_holds_for_its_templates() {
    let server = Server::start().await;
    let mut team = server.app.store().default_team().await.unwrap();
    team.caps.cpus = 4;
    team.caps.memory_mib = 512;
    team.caps.disk_mib = 2048;
    server.app.store().update_team(&team).await.unwrap();
    let body = json!({ "name": "app", "cpuCount": 6 });
    let reply = server.call("POST", "/v3/templates", body).await;
    assert_eq!(
        (reply.code(), reply.message()),
        (400, "CPU count can't be higher than 4, the maximum of your team".into())
    );
    let reply = server.call("POST", "/v3/templates", json!({ "name": "app", "memoryMB": 1024 })).await;
    assert_eq!(reply.message(), "Memory can't be higher than 512 MiB, the maximum of your team");
    let requested = request(&server, json!({ "name": "app", "minFreeDiskMb": 4096 })).await;
    let row = server.app.store().build_row(build_of(&requested)).await.unwrap().unwrap();
    assert_eq!((row.cpu_count, row.memory_mib, row.disk_mib), (2, 512, 2048));
}

#[tokio::test]
async fn a_team_may_have_20_builds_at_once() {
    let server = Server::start().await;
    for n in 0..20 {
        request(&server, json!({ "name": format!("app-{n}") })).await;
    }
    let one_more = server.call("POST", "/v3/templates", json!({ "name": "app-20" })).await;
    assert_eq!(one_more.code(), 429);
    assert!(
        one_more.message().contains("maximum number of concurrent template builds (20)"),
        "{}",
        one_more.message()
    );
    assert_eq!(server.get("/templates/app-20").await.code(), 404, "nothing is left of it");
    request(&server, json!({ "name": "app-3" })).await;
    let other = server.call("POST", "/v3/templates", json!({ "name": "app-3:v2" })).await;
    assert_eq!(other.code(), 429, "it would be built beside the other one");
    let key = server.other_team().await;
    let foreign = server.call_as(key, "POST", "/v3/templates", json!({ "name": "app" })).await;
    assert_eq!(foreign.code(), 202);

    let team = server.app.store().default_team().await.unwrap();
    let path = format!("/admin/teams/{}/builds/cancel", team.id);
    let cancelled = server.send("POST", &path, &[("x-admin-token", "admin")], "").await;
    assert_eq!(cancelled.json(), json!({ "cancelledCount": 20, "failedCount": 0 }));
    let requested = request(&server, json!({ "name": "app-20" })).await;
    server.send("POST", &path, &[("x-admin-token", "admin")], "").await;
    let status = status(&server, &requested).await;
    assert_eq!(status["status"], "error");
    assert_eq!(status["reason"], json!({ "message": "cancelled by admin" }));
}

#[tokio::test]
async fn releases_2_2_to_2_5_get_a_whole_template() {
    let server = Server::start().await;
    let body = json!({ "alias": "app", "cpuCount": 2, "memoryMB": 1024 });
    let agent =
        [("x-api-key", KEY), ("user-agent", "e2b-python-sdk/2.2.3"), ("content-type", "application/json")];
    let reply = server.send("POST", "/v2/templates", &agent, body.to_string()).await;
    assert_eq!(reply.code(), 202, "{}", reply.text);
    let template = reply.json();
    for member in [
        "templateID",
        "buildID",
        "cpuCount",
        "memoryMB",
        "diskSizeMB",
        "public",
        "aliases",
        "createdAt",
        "updatedAt",
        "createdBy",
        "lastSpawnedAt",
        "spawnCount",
        "buildCount",
        "envdVersion",
    ] {
        assert!(template.get(member).is_some(), "{member}");
    }
    assert_eq!((&template["cpuCount"], &template["buildStatus"]), (&json!(2), &json!("waiting")));
    assert_eq!(status(&server, &template).await["status"], "waiting");
    assert_eq!(server.call("POST", "/v2/templates", json!({ "cpuCount": 2 })).await.code(), 400);
    // The generation before that pushed images.
    for path in ["/templates", "/templates/app", "/templates/app/builds/x"] {
        let reply = server.call("POST", path, json!({ "dockerfile": "FROM x" })).await;
        assert_eq!(reply.code(), 400);
        assert!(reply.message().contains("update your E2B SDK or CLI"), "{path}: {}", reply.message());
    }
}

#[tokio::test]
async fn a_start_says_what_is_wrong_with_it() {
    let server = Server::start().await;
    let requested = request(&server, json!({ "name": "app" })).await;
    let path = |template: &str, build: &str| format!("/v2/templates/{template}/builds/{build}");
    let (template, build) = (text(&requested, "templateID"), text(&requested, "buildID"));
    let own = path(template, build);
    for (body, message) in [
        (json!({}), "must specify either fromImage or fromTemplate"),
        (json!({ "fromImage": "", "fromTemplate": "" }), "must specify either fromImage or fromTemplate"),
        (json!({ "fromImage": "a", "fromTemplate": "b" }), "cannot specify both fromImage and fromTemplate"),
        (
            json!({ "fromImage": "a", "steps": [{ "type": "COPY", "filesHash": "../x" }] }),
            "Invalid files hash",
        ),
        (json!({ "fromImage": "a", "steps": [{ "args": ["x"] }] }), "missing field `type`"),
        (json!({ "fromImage": "a", "fromImageRegistry": { "type": "ftp" } }), "unknown variant `ftp`"),
        (
            json!({ "fromImage": "a", "steps": vec![json!({ "type": "RUN" }); 1001] }),
            "at most 1000 entries, not 1001",
        ),
    ] {
        let reply = server.call("POST", &own, body.clone()).await;
        assert_eq!(reply.code(), 400, "{body}");
        assert!(reply.message().contains(message), "{}", reply.message());
    }
    let body = json!({ "fromTemplate": "base" });
    let nil = Uuid::nil().to_string();
    for (path, code) in [
        (path(template, "x"), 400),
        (path(template, &nil), 404),
        (path("unknown", build), 404),
        (path("base", build), 403),
        (path(BASE, build), 403),
    ] {
        assert_eq!(server.call("POST", &path, body.clone()).await.code(), code, "{path}");
    }
    let key = server.other_team().await;
    assert_eq!(server.call_as(key, "POST", &own, body.clone()).await.code(), 403);
    let other = request(&server, json!({ "name": "other" })).await;
    assert_eq!(server.call("POST", &path(text(&other, "templateID"), build), body.clone()).await.code(), 404);

    begin(&server, &requested).await;
    let twice = server.call("POST", &own, body.clone()).await;
    assert_eq!((twice.code(), twice.message()), (400, "build is not in waiting state".into()));

    let node = server.send("GET", "/nodes", &[("x-admin-token", "admin")], "").await.json()[0]["id"].clone();
    let node = format!("/nodes/{}", node.as_str().unwrap());
    let drain = json!({ "status": "draining" }).to_string();
    assert_eq!(server.send("POST", &node, &[("x-admin-token", "admin")], drain).await.status, 204);
    let drained = path(text(&other, "templateID"), text(&other, "buildID"));
    assert_eq!(server.call("POST", &drained, body).await.code(), 503);
}

/// The status of a build when it has ended.
async fn ended(server: &Server, requested: &Value) -> Value {
    let deadline = tokio::time::Instant::now() + crate::support::WAIT;
    loop {
        let status = status(server, requested).await;
        if status["status"] != "building" {
            return status;
        }
        assert!(tokio::time::Instant::now() < deadline, "{status}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_dockerfile_that_begins_with_a_template_is_built_by_official_clients_too() {
    let server = Server::start().await;
    let requested = request(&server, json!({ "name": "app" })).await;
    let path =
        format!("/v2/templates/{}/builds/{}", text(&requested, "templateID"), text(&requested, "buildID"));
    // They send what is behind `FROM` as an image.
    let reply = server.call("POST", &path, json!({ "fromImage": "template://team/tools:v1" })).await;
    assert_eq!(reply.code(), 202, "{}", reply.text);
    let ended = ended(&server, &requested).await;
    assert_eq!(ended["reason"]["message"], "template 'team/tools:v1' not found");
}

#[tokio::test]
async fn what_clients_send_with_steps_is_accepted() {
    let server = Server::start().await;
    let requested = request(&server, json!({ "name": "app" })).await;
    let path =
        format!("/v2/templates/{}/builds/{}", text(&requested, "templateID"), text(&requested, "buildID"));
    let body = json!({
        "fromTemplate": "nothing-like-that:v1",
        "fromImageRegistry": { "type": "registry", "username": "u", "password": "secret-of-the-registry" },
        "force": false,
        "steps": [
            { "type": "COPY", "args": ["a", "b", "", ""], "filesHash": "ab".repeat(32), "force": false,
              "forceUpload": null, "resolveSymlinks": true, "gzip": true },
            { "type": "run", "args": ["true"] },
        ],
        "startCmd": "sleep 1",
        "readyCmd": "true",
    });
    let reply = server.call("POST", &path, body).await;
    assert_eq!((reply.code(), reply.text.as_str()), (202, ""));
    assert_eq!(reply.headers["content-length"], "0");
    for file in server.data_files().iter().filter(|file| file.is_file()) {
        let bytes = std::fs::read(file).unwrap();
        let secret = b"secret-of-the-registry";
        assert!(!bytes.windows(secret.len()).any(|window| window == secret), "{}", file.display());
    }
}

#[tokio::test]
async fn a_template_that_does_not_exist_fails_the_build_at_its_base() {
    let server = Server::start().await;
    let requested = request(&server, json!({ "name": "app" })).await;
    let path =
        format!("/v2/templates/{}/builds/{}", text(&requested, "templateID"), text(&requested, "buildID"));
    let body = json!({ "fromTemplate": "nothing-like-that", "steps": [{ "type": "RUN", "args": ["true"] }] });
    assert_eq!(server.call("POST", &path, body).await.code(), 202);
    let ended = ended(&server, &requested).await;
    assert_eq!(ended["status"], "error");
    assert_eq!(ended["reason"]["step"], "base");
    assert_eq!(ended["reason"]["message"], "template 'nothing-like-that' not found");
    assert_eq!(ended["logs"], json!([]));
    // As clients read it: the offset counts entries, and the page after the last one is empty.
    let status_of = format!(
        "/templates/{}/builds/{}/status",
        text(&requested, "templateID"),
        text(&requested, "buildID")
    );
    let all = ended["logEntries"].as_array().unwrap();
    let mut read = Vec::new();
    loop {
        let page = server.get(&format!("{status_of}?logsOffset={}&limit=1", read.len())).await.json();
        let entries = page["logEntries"].as_array().unwrap().clone();
        if entries.is_empty() {
            break;
        }
        read.extend(entries);
    }
    assert_eq!(&read, all);
    assert!(text(&all[0], "message").starts_with("Building template "), "{}", all[0]);
    let logs =
        format!("/templates/{}/builds/{}/logs", text(&requested, "templateID"), text(&requested, "buildID"));
    let backward = server.get(&format!("{logs}?direction=backward&limit=1")).await.json();
    assert_eq!(backward["logs"][0], all[all.len() - 1]);
    let errors = server.get(&format!("{logs}?level=error&source=persistent")).await.json();
    assert!(errors["logs"].as_array().unwrap().iter().all(|entry| entry["level"] == "error"));
}

#[tokio::test]
async fn queries_of_builds_are_checked() {
    let server = Server::start().await;
    let requested = request(&server, json!({ "name": "app" })).await;
    let (template, build) = (text(&requested, "templateID"), text(&requested, "buildID"));
    let own = format!("/templates/{template}/builds/{build}");
    for bad in [
        "/status?limit=0",
        "/status?limit=101",
        "/status?logsOffset=-1",
        "/status?logsOffset=x",
        "/status?level=loud",
        "/logs?limit=101",
        "/logs?direction=up",
        "/logs?source=x",
        "/logs?cursor=x",
    ] {
        assert_eq!(server.get(&format!("{own}{bad}")).await.code(), 400, "{bad}");
    }
    assert_eq!(server.get(&format!("{own}/logs")).await.json(), json!({ "logs": [] }));
    let missing = server.get(&format!("/templates/{template}/builds/{}/status", Uuid::nil())).await;
    assert_eq!((missing.code(), missing.message()), (400, format!("Build '{}' not found", Uuid::nil())));
    let invalid = server.get(&format!("/templates/{template}/builds/x/status")).await;
    assert_eq!((invalid.code(), invalid.message()), (400, "Invalid build id".into()));
    assert_eq!(server.get(&format!("/templates/unknown/builds/{build}/status")).await.code(), 404);
    assert_eq!(server.get(&format!("/templates/default%2Fapp/builds/{build}/status")).await.code(), 200);
    let key = server.other_team().await;
    assert_eq!(server.call_as(key, "GET", &format!("{own}/status"), Value::Null).await.code(), 403);
}

#[tokio::test]
async fn sandboxes_start_from_a_build_when_it_is_ready() {
    let server = Server::start().await;
    let first = ready(&server, json!({ "name": "app", "cpuCount": 4, "memoryMB": 256 })).await;
    assert_eq!(status(&server, &first).await["status"], "ready");
    let made = server.create(json!({ "templateID": "app" })).await;
    assert_eq!((&made["templateID"], &made["alias"]), (&first["templateID"], &json!("app")));
    let made = server.fake.spec(&sandbox_id(text(&made, "sandboxID"))).unwrap();
    let top = made.blueprint.layers[0].display().to_string();
    assert!(top.ends_with(&format!("t-{}/upper", build_of(&first).simple())), "{top}");
    assert_eq!((made.blueprint.limits.cpus, made.blueprint.limits.memory_mib), (4, 256));
    let listed = &server.get("/v2/templates").await.json()[0];
    assert_eq!((&listed["buildID"], &listed["buildStatus"]), (&first["buildID"], &json!("ready")));
    assert_eq!(listed["cpuCount"], 4);
    server.wait_for("/v2/templates", "/0/spawnCount", json!(1)).await;

    let second = ready(&server, json!({ "name": "app:v2" })).await;
    let third = request(&server, json!({ "name": "app" })).await;
    for (reference, build) in [
        ("app".to_owned(), &first),
        ("app:v2".to_owned(), &second),
        (format!("default/app:{}", text(&first, "buildID")), &first),
        (format!("{}:{}", text(&first, "templateID"), text(&second, "buildID")), &second),
    ] {
        let made = server.id(json!({ "templateID": reference })).await;
        let layers = &server.fake.spec(&sandbox_id(&made)).unwrap().blueprint.layers;
        let wanted = format!("t-{}/upper", build_of(build).simple());
        assert!(layers[0].ends_with(&wanted), "{reference}: {layers:?}");
    }
    // Not ready, of another template, or nowhere.
    for bad in [text(&third, "buildID"), "00000000-0000-0000-0000-000000000001", &Uuid::nil().to_string()] {
        let body = json!({ "templateID": format!("app:{bad}") });
        assert_eq!(server.call("POST", "/sandboxes", body).await.code(), 404, "{bad}");
    }
    assert_eq!(server.get("/v2/templates").await.json()[0]["buildStatus"], "waiting", "there is a newer one");
    let key = server.other_team().await;
    let foreign =
        server.call_as(key, "POST", "/sandboxes", json!({ "templateID": first["templateID"] })).await;
    assert_eq!(foreign.code(), 404);
}

#[tokio::test]
async fn a_newer_build_of_the_same_tag_replaces_one_in_progress() {
    let server = Server::start().await;
    let (first, other) = (
        request(&server, json!({ "name": "app" })).await,
        request(&server, json!({ "name": "app:other" })).await,
    );
    begin(&server, &first).await;
    begin(&server, &other).await;
    let second = request(&server, json!({ "name": "app" })).await;
    assert_eq!(status(&server, &first).await["status"], "building", "until the newer one starts");
    begin(&server, &second).await;
    assert_eq!(status(&server, &first).await["reason"], json!({ "message": "build was cancelled" }));
    assert_eq!(status(&server, &other).await["status"], "building");
    assert!(!finish(&server, &first, "t-1").await, "it has failed already");
    assert!(finish(&server, &second, "t-2").await);
    let failed = BuildReason { message: "no".into(), step: Some("1".into()) };
    assert!(!server.app.store().fail_build(build_of(&second), &failed).await.unwrap());
    assert!(server.app.store().fail_build(build_of(&other), &failed).await.unwrap());
    let reason = &status(&server, &other).await["reason"];
    assert_eq!((&reason["message"], &reason["step"]), (&json!("no"), &json!("1")));
    assert_eq!(server.get("/templates/app/tags").await.json().as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn templates_are_deleted_when_nothing_uses_them() {
    let server = Server::start().await;
    let requested = ready(&server, json!({ "name": "app" })).await;
    let waiting = request(&server, json!({ "name": "app:next" })).await;
    let id = text(&requested, "templateID").to_owned();
    let sandbox = server.id(json!({ "templateID": "app" })).await;
    let delete = |reference: &str| {
        let path = format!("/templates/{}", reference.replace('/', "%2F").replace(':', "%3A"));
        let server = &server;
        async move { server.call("DELETE", &path, Value::Null).await }
    };
    let in_use = delete("app").await;
    assert_eq!(in_use.code(), 400);
    assert_eq!(in_use.message(), "cannot delete template 'app' because there are running sandboxes using it");
    assert_eq!(server.call("POST", &format!("/sandboxes/{sandbox}/pause"), Value::Null).await.code(), 204);
    let in_use = delete(&id).await;
    assert_eq!(
        in_use.message(),
        format!("cannot delete template '{id}' because there are paused sandboxes using it")
    );
    assert_eq!(server.call("DELETE", &format!("/sandboxes/{sandbox}"), Value::Null).await.code(), 204);
    server.wait_for_state(&sandbox, None).await;
    let key = server.other_team().await;
    let foreign = server.call_as(key, "DELETE", &format!("/templates/{id}"), Value::Null).await;
    assert_eq!(foreign.code(), 404);
    assert_eq!(delete("base").await.code(), 403);
    assert_eq!(delete("unknown").await.code(), 404);
    assert_eq!(delete("app:next").await.code(), 400, "a tag is removed by another call");

    let layers = server.app.store().layers_in_use().await.unwrap().unwrap();
    assert!(layers.iter().any(|layer| layer.starts_with("t-")), "{layers:?}");
    assert_eq!(delete("default/app").await.status, 204);
    assert_eq!(delete("app").await.code(), 404);
    for gone in ["/templates/app", &format!("/templates/{id}"), "/templates/aliases/app"] {
        assert_eq!(server.get(gone).await.code(), 404, "{gone}");
    }
    let status = format!("/templates/{id}/builds/{}/status", text(&waiting, "buildID"));
    assert_eq!(server.get(&status).await.code(), 404);
    let layers = server.app.store().layers_in_use().await.unwrap().unwrap();
    assert!(layers.iter().all(|layer| !layer.starts_with("t-")), "{layers:?}");
    // Its name is free, its id is not.
    let taken = server.call("POST", "/v3/templates", json!({ "name": id })).await;
    assert_eq!((taken.code(), taken.message()), (409, format!("Alias '{id}' is already used")));
    let again = request(&server, json!({ "name": "app" })).await;
    assert_ne!(again["templateID"], requested["templateID"]);
}

#[tokio::test]
async fn teams_share_what_they_publish() {
    let server = Server::start().await;
    let requested = ready(&server, json!({ "name": "app" })).await;
    ready(&server, json!({ "name": "code" })).await;
    let key = server.other_team().await;
    let (mut other, _) = server.app.store().team_of_key(key).await.unwrap().unwrap();
    other.max_sandboxes = 100;
    server.app.store().update_team(&other).await.unwrap();
    let create = |reference: &str| {
        let body = json!({ "templateID": reference });
        let server = &server;
        async move { server.call_as(key, "POST", "/sandboxes", body).await.code() }
    };
    let publish = |path: &str, public: Value| {
        let path = path.to_owned();
        let server = &server;
        async move { server.call("PATCH", &path, json!({ "public": public })).await }
    };
    assert_eq!(create("default/app").await, 404);
    assert_eq!(server.call_as(key, "GET", "/templates/default%2Fapp", Value::Null).await.code(), 403);
    let published = publish("/v2/templates/app", json!(true)).await;
    assert_eq!((published.code(), published.json()), (200, json!({ "names": ["default/app"] })));
    assert_eq!(create("default/app").await, 201);
    assert_eq!(create(text(&requested, "templateID")).await, 201);
    assert_eq!(create("app").await, 404, "the other team has no such template");
    let foreign = server.call_as(key, "GET", "/templates/default%2Fapp", Value::Null).await.json();
    assert_eq!((&foreign["names"], &foreign["public"]), (&json!(["default/app"]), &json!(true)));
    assert_eq!(server.get("/templates/aliases/app").await.json()["public"], true);

    // The older call publishes under the bare name too.
    let everywhere = publish("/templates/code", json!(true)).await;
    assert_eq!((everywhere.code(), everywhere.json()), (200, Value::Null));
    assert_eq!(create("code").await, 201);
    let foreign = server.call_as(key, "POST", "/v3/templates", json!({ "name": "code" })).await;
    assert_eq!(foreign.code(), 202);
    let taken = server.call_as(key, "PATCH", "/templates/code", json!({ "public": true })).await;
    assert_eq!(taken.code(), 409);
    assert!(taken.message().contains("'other/code' can be used instead"), "{}", taken.message());
    assert_eq!(create("code").await, 404, "it means the own template now, which has no build");
    assert_eq!(publish("/templates/code", json!(false)).await.code(), 200);
    assert_eq!(server.call_as(key, "PATCH", "/templates/code", json!({ "public": true })).await.code(), 200);

    assert_eq!(publish("/v2/templates/app", json!(false)).await.code(), 200);
    assert_eq!(create("default/app").await, 404);
    assert_eq!(publish("/v2/templates/app", Value::Null).await.json(), json!({ "names": ["default/app"] }));
    assert_eq!(publish("/v2/templates/base", json!(false)).await.code(), 403);
    assert_eq!(publish("/templates/base", json!(true)).await.code(), 403);
    assert_eq!(publish("/v2/templates/unknown", json!(true)).await.code(), 404);
    let foreign =
        server.call_as(key, "PATCH", "/v2/templates/default%2Fapp", json!({ "public": true })).await;
    assert_eq!(foreign.code(), 403);
}

#[tokio::test]
async fn builds_survive_a_restart() {
    let server = Server::start().await;
    let finished = ready(&server, json!({ "name": "app" })).await;
    let waiting = request(&server, json!({ "name": "app:next" })).await;
    let server = server.restart().await;
    assert_eq!(status(&server, &finished).await["status"], "ready");
    assert_eq!(status(&server, &waiting).await["status"], "waiting");
    server.create(json!({ "templateID": "app" })).await;
}
