use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use sandcove_isolate::fake::Operation;
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};

use crate::proxy::echo;
use crate::support::{Server, host, sandbox_id, wait_until};

#[tokio::test]
async fn sandboxes_survive_a_restart_as_they_were() {
    let server = Server::start().await;
    let running = server.create(json!({ "secure": true, "metadata": { "a": "b" } })).await;
    let paused = server.id(json!({ "autoResume": { "enabled": true } })).await;
    assert_eq!(server.call("POST", &format!("/sandboxes/{paused}/pause"), Value::Null).await.code(), 204);
    let id = running["sandboxID"].as_str().unwrap().to_owned();
    let detail = |detail: Value| {
        let mut detail = detail;
        // The port is another one after the restart.
        detail.as_object_mut().unwrap().remove("domain");
        detail
    };
    let before = detail(server.get(&format!("/sandboxes/{id}")).await.json());
    let server = server.restart().await;
    assert_eq!(detail(server.get(&format!("/sandboxes/{id}")).await.json()), before);
    assert_eq!(before["envdAccessToken"], running["envdAccessToken"]);
    assert_eq!(server.state(&paused).await.as_deref(), Some("paused"));
    assert!(server.fake.is_frozen(&sandbox_id(&paused)));
    assert_eq!(server.call("POST", &format!("/sandboxes/{paused}/resume"), Value::Null).await.code(), 201);
    server.fake.listen(8080, echo().await);
    let headers = [("e2b-sandbox-id", id.as_str()), ("e2b-sandbox-port", "8080")];
    assert_eq!(server.send("GET", "/", &headers, "").await.status, 200);
}

#[tokio::test]
async fn what_came_due_meanwhile_is_enforced() {
    let server = Server::start().await;
    let killed = server.id(json!({ "timeout": 1 })).await;
    let paused = server.id(json!({ "timeout": 1, "autoPause": true })).await;
    let server = server.restart_with(|| std::thread::sleep(std::time::Duration::from_secs(1))).await;
    server.wait_for_state(&killed, None).await;
    server.wait_for_state(&paused, Some("paused")).await;
}

#[tokio::test]
async fn what_died_meanwhile_is_gone_and_strays_are_swept() {
    let server = Server::start().await;
    let dead = server.id(json!({})).await;
    let alive = server.id(json!({})).await;
    server.fake.crash(&sandbox_id(&dead));
    server.wait_for_state(&dead, None).await;
    // A sandbox no row knows: started by a server that crashed before it wrote it down.
    let mut spec = (*server.fake.spec(&sandbox_id(&alive)).unwrap()).clone();
    spec.id = sandbox_id("istray");
    sandcove_isolate::Backend::Fake(server.fake.clone()).create(spec, None).await.unwrap();
    let server = server.restart().await;
    assert_eq!(server.fake.ids(), [sandbox_id(&alive)]);
    assert_eq!(server.state(&alive).await.as_deref(), Some("running"));
    assert_eq!(server.state(&dead).await, None);
}

#[tokio::test]
async fn without_an_answer_nothing_is_removed() {
    let mut server = Server::start().await;
    let ids = [server.id(json!({})).await, server.id(json!({})).await];
    let fake = server.fake.clone();
    for operation in [Operation::Adopt, Operation::Resume] {
        let (again, error) = server.restart_after_failure(|| fake.fail_next(operation, 1)).await;
        server = again;
        assert!(error.to_string().contains("may be alive: nothing was removed"), "{error}");
        for id in &ids {
            assert_eq!(server.state(id).await.as_deref(), Some("running"));
        }
    }
}

#[tokio::test]
async fn a_lost_database_makes_no_orphans() {
    let server = Server::start().await;
    let id = server.id(json!({})).await;
    let error = {
        let empty = tempfile::tempdir().unwrap();
        let config = sandcove_server::Config::new(empty.path());
        let error = sandcove_server::App::start(config, host(&server.fake)).await.err().unwrap();
        assert_eq!(
            std::fs::read_dir(empty.path()).unwrap().count(),
            0,
            "an empty database is not left for the next start"
        );
        error
    };
    assert!(error.to_string().contains("is missing"), "{error}");
    assert_eq!(server.fake.ids(), [sandbox_id(&id)]);
}

#[tokio::test]
async fn a_row_without_a_sandbox_is_dropped() {
    let server = Server::start().await;
    let id = server.id(json!({})).await;
    assert_eq!(server.app.store().sandboxes().await.unwrap().len(), 1);
    let fake = server.fake.clone();
    let server = server.restart_with(|| fake.crash(&sandbox_id(&id))).await;
    assert_eq!(server.state(&id).await, None);
    assert_eq!(server.app.store().sandboxes().await.unwrap().len(), 0);
}

/// Writes what sandboxes were made from as earlier servers did: with a summary of the build, and the whole of it or not.
fn write_as_earlier_servers(database: &Path, with_build: bool) {
    let source = "json_object('template_id', details ->> '$.build.template_id', \
                  'build_id', details ->> '$.build.build_id', 'alias', details ->> '$.build.name', \
                  'envd_version', details ->> '$.build.envd_version')";
    let rest = if with_build { "details" } else { "json_remove(details, '$.build')" };
    execute(database, format!("UPDATE sandboxes SET details = json_set({rest}, '$.source', {source})"));
}

/// Changes the database of a server that has stopped.
fn execute(database: &Path, sql: String) {
    let options = SqliteConnectOptions::new().filename(database);
    let write = async move {
        let mut connection = options.connect().await.unwrap();
        sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::thread::spawn(move || runtime.block_on(write)).join().unwrap();
}

#[tokio::test]
async fn sandboxes_of_earlier_servers_are_found_again() {
    for with_build in [false, true] {
        let server = Server::start().await;
        let id = server.id(json!({})).await;
        let detail = async |server: &Server| {
            let mut detail = server.get(&format!("/sandboxes/{id}")).await.json();
            // The port is another one after the restart.
            detail.as_object_mut().unwrap().remove("domain");
            detail
        };
        let before = detail(&server).await;
        let files = server.data_files();
        let database = files.iter().find(|file| file.ends_with("sandcove.db")).unwrap();
        let server = server.restart_with(|| write_as_earlier_servers(database, with_build)).await;
        assert_eq!(detail(&server).await, before);
        let layers = server.app.store().layers_in_use().await.unwrap().unwrap();
        assert!(layers.contains("top"), "{layers:?}");
        // A start from files needs the whole build.
        let pause = format!("/sandboxes/{id}/pause");
        assert_eq!(server.call("POST", &pause, json!({ "memory": false })).await.code(), 204);
        let resumed = server.call("POST", &format!("/sandboxes/{id}/resume"), Value::Null).await;
        assert_eq!(resumed.code(), 201, "{}", resumed.text);
    }
}

#[tokio::test]
async fn sandboxes_of_earlier_servers_keep_the_alias_and_the_agent_they_started_with() {
    let server = Server::start().await;
    let id = server.id(json!({})).await;
    let files = server.data_files();
    let database = files.iter().find(|file| file.ends_with("sandcove.db")).unwrap();
    // As if the row of the build were of a later release.
    let earlier = "UPDATE sandboxes SET details = json_set(details, '$.source.alias', 'earlier', \
                   '$.source.envd_version', '0.1.2')";
    let server = server
        .restart_with(|| {
            write_as_earlier_servers(database, false);
            execute(database, earlier.to_owned());
        })
        .await;
    let started_with = async |server: &Server| {
        let detail = server.get(&format!("/sandboxes/{id}")).await.json();
        (detail["alias"].clone(), detail["envdVersion"].clone())
    };
    assert_eq!(started_with(&server).await, (json!("earlier"), json!("0.1.2")));
    // A pause writes the row anew.
    let pause = format!("/sandboxes/{id}/pause");
    assert_eq!(server.call("POST", &pause, json!({ "memory": false })).await.code(), 204);
    let server = server.restart().await;
    assert_eq!(started_with(&server).await, (json!("earlier"), json!("0.1.2")));
}

#[tokio::test]
async fn paused_sandboxes_outlive_their_processes() {
    let server = Server::start().await;
    let mut ids = Vec::new();
    for body in [json!({}), json!({ "memory": false })] {
        let id = server.id(json!({ "metadata": { "a": "b" } })).await;
        server.fake.write(&sandbox_id(&id), &id);
        assert_eq!(server.call("POST", &format!("/sandboxes/{id}/pause"), body).await.code(), 204);
        ids.push(id);
    }
    let fake = server.fake.clone();
    let server = server.restart_with(|| fake.crash(&sandbox_id(&ids[0]))).await;
    assert_eq!(server.fake.ids(), []);
    // Twice: what was found out is written down.
    let server = server.restart().await;
    for id in &ids {
        let detail = server.get(&format!("/sandboxes/{id}")).await.json();
        assert_eq!((&detail["state"], &detail["pauseMode"]), (&json!("paused"), &json!("filesystem")));
        assert_eq!(detail["metadata"], json!({ "a": "b" }));
        let resumed = server.call("POST", &format!("/sandboxes/{id}/resume"), Value::Null).await;
        assert_eq!(resumed.code(), 201, "{}", resumed.text);
        assert_eq!(server.fake.files(&sandbox_id(id)).unwrap(), [id.as_str()]);
    }
}

#[tokio::test]
async fn files_and_snapshots_no_row_knows_are_swept() {
    let server = Server::start().await;
    let id = server.id(json!({})).await;
    let path = format!("/sandboxes/{id}/snapshots");
    let snapshot = server.call("POST", &path, json!({})).await.json()["snapshotID"].clone();
    let kept = server.fake.snapshots();
    let handle =
        sandcove_isolate::Backend::Fake(server.fake.clone()).adopt(&sandbox_id(&id)).await.unwrap().unwrap();
    handle.snapshot("of-a-crash", 0, None).await.unwrap();
    let server = server.restart().await;
    assert_eq!(server.fake.snapshots(), kept);
    server.id(json!({ "templateID": snapshot })).await;
}

#[tokio::test]
async fn killing_all_leaves_nothing() {
    let server = Server::start().await;
    for _ in 0..5 {
        server.id(json!({})).await;
    }
    server.app.sandboxes().kill_all().await;
    wait_until("nothing is left", || server.fake.ids().is_empty()).await;
    assert_eq!(server.app.store().sandboxes().await.unwrap().len(), 0);
}

#[tokio::test]
async fn the_database_is_its_owners_only() {
    let server = Server::start().await;
    server.id(json!({})).await;
    for file in server.data_files() {
        let mode = std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", file.display());
    }
}
