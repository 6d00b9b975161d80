//! Upgrades from the data of earlier releases. A release's database and its answers are in `releases`; the release's own server wrote both. A new
//! release adds its own: `SANDCOVE_RECORD_RELEASE=VERSION cargo test -p sandcove-server --test server upgrade`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use sandcove_isolate::fake::Fake;
use sandcove_isolate::{Backend, Files, SandboxSpec};
use sandcove_server::{App, Config};
use sandcove_wire::boot::AGENT_PORT;
use serde_json::{Value, json};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Row};

use crate::build_calls::{ready, text};
use crate::builds::{Agent, build, run_step};
use crate::proxy::echo;
use crate::support::{KEY, Server, host, sandbox_id};

/// Digits of a time in microseconds since 1970; it has as many until the year 2286.
const DIGITS: usize = 16;
/// Members of answers that are not of the database: of the server, new in every answer, or of logs of builds, which are files.
const NOT_STORED: [&str; 4] = ["clientID", "domain", "token", "logEntries"];

/// Directory with the data of releases.
fn releases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/releases")
}

async fn connect(path: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(true).foreign_keys(false);
    options.connect().await.unwrap()
}

fn now_micros() -> i64 {
    jiff::Timestamp::now().as_microsecond()
}

/// The answer to a `GET` as the team, the person or the operator whom the path is for.
async fn get(server: &Server, path: &str) -> Value {
    let headers: &[(&str, &str)] = if path.starts_with("/admin/") || path.starts_with("/nodes") {
        &[("x-admin-token", "admin")]
    } else if path.starts_with("/api-keys") {
        &[("authorization", "Bearer sk_e2b_person")]
    } else {
        &[("x-api-key", KEY)]
    };
    let reply = server.send("GET", path, headers, "").await;
    assert_eq!(reply.status, 200, "{path}: {}", reply.text);
    reply.json()
}

/// Fills a server with one of everything that a database has rows for, and returns the paths that list it.
async fn fill(server: &Server) -> Vec<String> {
    let post = async |path: &str, body: Value| {
        let reply = server.call("POST", path, body).await;
        assert!(reply.status.is_success(), "{path}: {}", reply.text);
        if reply.text.is_empty() { Value::Null } else { reply.json() }
    };
    server.other_team().await;
    let person = [("authorization", "Bearer sk_e2b_person")];
    for path in ["/api-keys", "/access-tokens"] {
        let made = server.send("POST", path, &person, json!({ "name": "upgraded" }).to_string()).await;
        assert_eq!(made.status, 201, "{path}: {}", made.text);
    }
    // A closed port: attempts fail, and the delivery stays in the queue.
    let events = ["sandbox.lifecycle.created", "sandbox.lifecycle.killed"];
    let hook = json!({ "name": "hook", "url": "http://127.0.0.1:9/hook", "events": events, "signatureSecret": "of-a-test" });
    let hook = text(&post("/events/webhooks", hook).await, "id").to_owned();
    let volume = text(&post("/volumes", json!({ "name": "data" })).await, "volumeID").to_owned();
    post("/secrets", json!({ "name": "model-key", "value": "of-a-test", "metadata": { "for": "tests" } }))
        .await;

    let app = text(&ready(server, json!({ "name": "app:v1" })).await, "templateID").to_owned();
    post("/templates/tags", json!({ "target": "app:v1", "tags": ["prod"] })).await;
    let agent = Agent::start(server).await;
    let steps = json!([run_step("say hello"), { "type": "ENV", "args": ["A", "1"] }]);
    let spec = json!({ "fromTemplate": "base", "steps": steps });
    let built = build(server, "built", spec).await;
    assert_eq!(built["status"], "ready", "{built}");
    let failed =
        build(server, "failed", json!({ "fromTemplate": "base", "steps": [run_step("exit 3")] })).await;
    assert_eq!(failed["status"], "error", "{failed}");
    drop(agent);

    let network = json!({ "allowOut": ["8.8.8.8", "example.com"], "denyOut": ["0.0.0.0/0"], "allowPublicTraffic": false });
    let mounts = json!([{ "name": "data", "path": "/mnt/data" }]);
    let running = json!({
        "secure": true, "metadata": { "is": "running" }, "envVars": { "A": "1" }, "network": network, "volumeMounts": mounts,
        "timeout": 3600, "autoResume": { "enabled": true },
    });
    let running = server.id(running).await;
    let mut paused = Vec::new();
    for (is, body) in [("frozen", json!({})), ("files", json!({ "memory": false })), ("parked", json!({}))] {
        let id =
            server.id(json!({ "templateID": "app:prod", "metadata": { "is": is }, "autoPause": true })).await;
        post(&format!("/sandboxes/{id}/pause"), body).await;
        paused.push(id);
    }
    post(&format!("/sandboxes/{}/park", paused[2]), Value::Null).await;
    let killed = server.id(json!({})).await;
    assert_eq!(server.call("DELETE", &format!("/sandboxes/{killed}"), Value::Null).await.code(), 204);
    let snapshots = format!("/sandboxes/{running}/snapshots");
    let named = text(&post(&snapshots, json!({ "name": "checkpoint" })).await, "snapshotID").to_owned();
    post(&snapshots, json!({ "memory": false })).await;
    let made = [("x-api-key", KEY), ("idempotency-key", "once")];
    let body = json!({ "templateID": named, "timeout": 3600, "metadata": { "is": "copy" } }).to_string();
    let copy = server.send("POST", "/v2/sandboxes", &made, body).await;
    assert_eq!(copy.status, 201, "{}", copy.text);
    let copy = text(&copy.json(), "sandboxID").to_owned();
    let deliveries = format!("/events/webhooks/{hook}/deliveries");
    server.wait_for(&deliveries, "/data/0/attempts/0/webhookId", hook.as_str().into()).await;

    let mut paths: Vec<String> =
        ["/v2/sandboxes?state=running,paused", "/snapshots", "/templates", "/templates/app/tags"]
            .into_iter()
            .chain(["/volumes", "/secrets", "/events/webhooks", "/api-keys", "/admin/teams"])
            .map(str::to_owned)
            .collect();
    paths.extend([&running, &copy].into_iter().chain(&paused).map(|id| format!("/sandboxes/{id}")));
    paths.extend(
        [&running, &killed]
            .into_iter()
            .chain(&paused)
            .map(|id| format!("/events/sandboxes/{id}?orderAsc=true")),
    );
    paths.extend([&running, &paused[0]].map(|id| format!("/v2/sandboxes/{id}/logs")));
    paths.extend([
        format!("/volumes/{volume}"),
        format!("/templates/{app}"),
        format!("/events/webhooks/{hook}"),
    ]);
    for status in [&built, &failed] {
        let (template, build) = (text(status, "templateID"), text(status, "buildID"));
        paths.push(format!("/templates/{template}"));
        paths.push(format!("/templates/{template}/builds/{build}/status"));
    }
    paths
}

/// The statements that make the same database again.
async fn dump(path: &Path) -> String {
    let mut database = connect(path).await;
    let objects =
        sqlx::query("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid");
    let objects = objects.fetch_all(&mut database).await.unwrap();
    let of_kind = |is_table: bool| {
        let objects = objects.iter().filter(move |row| (row.get::<&str, _>(0) == "table") == is_table);
        objects.filter(|row| !row.get::<&str, _>(1).starts_with("sqlite_"))
    };
    let mut text = String::new();
    for table in of_kind(true) {
        let name: &str = table.get(1);
        writeln!(text, "{};", table.get::<&str, _>(2)).unwrap();
        let columns: String = sqlx::query_scalar(
            "SELECT group_concat('quote(\"' || name || '\")', ' || '', '' || ') FROM pragma_table_info($1)",
        )
        .bind(name)
        .fetch_one(&mut database)
        .await
        .unwrap();
        let rows = format!("SELECT {columns} FROM \"{name}\" ORDER BY rowid");
        let rows: Vec<String> =
            sqlx::query_scalar(AssertSqlSafe(rows)).fetch_all(&mut database).await.unwrap();
        for row in rows {
            writeln!(text, "INSERT INTO \"{name}\" VALUES ({row});").unwrap();
        }
    }
    // A trigger that came before the rows would run for them.
    for object in of_kind(false) {
        writeln!(text, "{};", object.get::<&str, _>(2)).unwrap();
    }
    database.close().await.unwrap();
    text
}

/// Records the data of this release in `directory`, as `version`.
async fn record(directory: &Path, version: &str) {
    let fake = Fake::default();
    fake.allow_parking();
    let server = Server::on_fake(fake, |config| config.private_webhooks = true).await;
    let paths = fill(&server).await;
    let mut answers = BTreeMap::new();
    for path in paths {
        let answer = get(&server, &path).await;
        answers.insert(path, answer);
    }
    let recorded = json!({ "recordedAt": now_micros(), "answers": answers });
    let database = server.data_files().into_iter().find(|path| path.ends_with("sandcove.db")).unwrap();
    let server = server
        .restart_with(|| {
            let dumped = std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(dump(&database))
            });
            std::fs::write(directory.join(format!("{version}.sql")), dumped.join().unwrap()).unwrap();
            let text = serde_json::to_string_pretty(&recorded).unwrap();
            std::fs::write(directory.join(format!("{version}.json")), text + "\n").unwrap();
        })
        .await;
    assert!(!server.fake.ids().is_empty());
}

/// The text with every time in microseconds moved by `by`.
fn moved(text: &str, by: i64) -> String {
    let mut moved = String::new();
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric();
    // Words of digits only: ids and digests have letters beside them.
    for word in text.split_inclusive(|next: char| !next.is_ascii_alphanumeric()) {
        let length = word.bytes().take_while(|byte| is_word(byte)).count();
        match word[..length].parse::<i64>() {
            Ok(time) if length == DIGITS => write!(moved, "{}{}", time + by, &word[length..]).unwrap(),
            _ => moved.push_str(word),
        }
    }
    moved
}

/// Removes what the database does not have, and the values of times.
fn comparable(answer: &mut Value) {
    match answer {
        Value::Object(members) => {
            members.retain(|name, _| !NOT_STORED.contains(&name.as_str()));
            members.values_mut().for_each(comparable);
        }
        Value::Array(entries) => {
            // The log of a sandbox goes on with this line.
            entries.retain(|entry| entry["message"] != "sandbox found again after a restart of the server");
            entries.iter_mut().for_each(comparable);
        }
        Value::String(text) if text.parse::<jiff::Timestamp>().is_ok() => *answer = "time".into(),
        _ => (),
    }
}

/// Checks that an answer has everything that an earlier one had; it may have further members.
#[track_caller]
fn check_includes(now: &Value, then: &Value, place: &str) {
    match (now, then) {
        (Value::Object(now), Value::Object(then)) => {
            for (name, then) in then {
                check_includes(now.get(name).unwrap_or(&Value::Null), then, &format!("{place} {name}"));
            }
        }
        (Value::Array(now), Value::Array(then)) => {
            assert_eq!(now.len(), then.len(), "{place}: {now:?}");
            for (index, then) in then.iter().enumerate() {
                check_includes(&now[index], then, &format!("{place} {index}"));
            }
        }
        _ => assert_eq!(now, then, "{place}"),
    }
}

/// Data of a release: its data directory, the sandboxes and snapshots of its host, and its answers.
struct Release {
    directory: tempfile::TempDir,
    fake: Fake,
    answers: BTreeMap<String, Value>,
}

impl Release {
    async fn load(from: &Path, version: &str) -> Self {
        let recorded = std::fs::read_to_string(from.join(format!("{version}.json"))).unwrap();
        let mut recorded: Value = serde_json::from_str(&recorded).unwrap();
        let sql = std::fs::read_to_string(from.join(format!("{version}.sql"))).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let mut database = connect(&directory.path().join("sandcove.db")).await;
        // As if the release had ended a moment ago: nothing has come due since then, and nothing is too old to be kept.
        let sql = moved(&sql, now_micros() - recorded["recordedAt"].as_i64().unwrap());
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut database).await.unwrap();
        let fake = Fake::default();
        restore(&mut database, &fake, directory.path()).await;
        database.close().await.unwrap();
        let answers = serde_json::from_value(recorded["answers"].take()).unwrap();
        Self { directory, fake, answers }
    }
}

/// Gives the backend what a database refers to.
async fn restore(database: &mut SqliteConnection, fake: &Fake, directory: &Path) {
    let names = async |database: &mut SqliteConnection, query: &'static str| -> Vec<String> {
        sqlx::query_scalar(query).fetch_all(database).await.unwrap()
    };
    fake.allow_parking();
    fake.listen(AGENT_PORT, echo().await);
    let another = Server::start().await;
    let id = another.id(json!({})).await;
    let like = (*another.fake.spec(&sandbox_id(&id)).unwrap()).clone();
    let backend = Backend::Fake(fake.clone());
    let create = async |id: &str| {
        let spec = SandboxSpec { id: sandbox_id(id), files: Files::Empty, memory: false, ..like.clone() };
        backend.create(spec, None).await.unwrap().0
    };
    let source = create("isource").await;
    let snapshots = "SELECT id FROM template_builds WHERE record ->> '$.snapshot_of' IS NOT NULL \
                     UNION SELECT snapshot FROM step_cache WHERE snapshot IS NOT NULL";
    for name in names(database, snapshots).await {
        source.snapshot(&name, 0, None).await.unwrap();
    }
    let layers =
        "SELECT DISTINCT value FROM template_builds, json_each(record, '$.layers') WHERE value LIKE '%/%'";
    source.snapshot("layer", 0, None).await.unwrap();
    for layer in names(database, layers).await {
        backend.publish_layer("layer", layer.split_once('/').unwrap().0).await.unwrap();
    }
    source.destroy().await.unwrap();
    for volume in names(database, "SELECT id FROM volumes").await {
        for part in ["content", "work"] {
            std::fs::create_dir_all(directory.join("volumes").join(&volume).join(part)).unwrap();
        }
    }
    let sandboxes: Vec<(String, String)> =
        sqlx::query_as("SELECT id, details ->> '$.metadata.is' FROM sandboxes")
            .fetch_all(database)
            .await
            .unwrap();
    for (id, is) in sandboxes {
        let sandbox = create(&id).await;
        fake.write(&sandbox_id(&id), &is);
        match is.as_str() {
            "frozen" => sandbox.pause().await.unwrap(),
            "files" => sandbox.shut_down().await.unwrap(),
            "parked" => {
                sandbox.shut_down().await.unwrap();
                fake.store_memory(&sandbox_id(&id));
            }
            _ => (),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_of_an_earlier_release_is_there() {
    check(Release::load(&releases(), "0.2.0").await).await;
}

/// With `SANDCOVE_RECORD_RELEASE=VERSION`, the data is kept for the tests of later releases.
#[tokio::test(flavor = "multi_thread")]
async fn everything_of_this_release_is_there_for_later_ones() {
    let directory = tempfile::tempdir().unwrap();
    record(directory.path(), "this").await;
    check(Release::load(directory.path(), "this").await).await;
    if let Ok(version) = std::env::var("SANDCOVE_RECORD_RELEASE") {
        for kind in ["sql", "json"] {
            let file = directory.path().join(format!("this.{kind}"));
            std::fs::copy(file, releases().join(format!("{version}.{kind}"))).unwrap();
        }
    }
}

/// Starts a server on the data of a release, and checks that everything is there and in use.
async fn check(release: Release) {
    let Release { directory, fake, answers } = release;
    let server = Server::on(directory, fake, |_| ()).await;
    assert!(answers.len() > 20);
    for (path, mut then) in answers {
        let mut now = get(&server, &path).await;
        comparable(&mut then);
        comparable(&mut now);
        check_includes(&now, &then, &path);
    }
    let path = server.data_files().into_iter().find(|path| path.ends_with("sandcove.db")).unwrap();
    let mut database = connect(&path).await;
    let last: i64 = sqlx::query_scalar("SELECT MAX(version) FROM _sqlx_migrations")
        .fetch_one(&mut database)
        .await
        .unwrap();
    assert!(last >= 39, "{last}");
    let wrong: Vec<String> = sqlx::query_scalar("SELECT \"table\" FROM pragma_foreign_key_check")
        .fetch_all(&mut database)
        .await
        .unwrap();
    assert!(wrong.is_empty(), "{wrong:?}");
    // What a migration added has its default.
    assert_eq!(get(&server, "/admin/teams").await[0]["limits"]["pausedDiskMb"], 1 << 20);

    assert_eq!(server.call_as("e2b_00", "GET", "/v2/sandboxes", Value::Null).await.json(), json!([]));
    let sandboxes = get(&server, "/v2/sandboxes?state=paused").await;
    let paused = sandboxes.as_array().unwrap();
    assert_eq!(paused.len(), 3);
    for sandbox in paused {
        let (id, is) = (text(sandbox, "sandboxID"), text(&sandbox["metadata"], "is"));
        let resumed = server.call("POST", &format!("/sandboxes/{id}/resume"), Value::Null).await;
        assert_eq!(resumed.code(), 201, "{is}: {}", resumed.text);
        assert_eq!(server.fake.files(&sandbox_id(id)).unwrap(), [is]);
        let spec = server.fake.spec(&sandbox_id(id)).unwrap();
        assert_eq!(spec.memory, is == "parked");
    }
    for template in ["base", "app:prod", "built", "checkpoint"] {
        server.id(json!({ "templateID": template })).await;
    }
    let again = server.call("POST", "/volumes", json!({ "name": "data" })).await;
    assert!(again.message().contains("already exists"));
}

#[tokio::test]
async fn the_data_of_a_later_release_is_refused_and_left_alone() {
    let Release { directory, fake, .. } = Release::load(&releases(), "0.2.0").await;
    let path = directory.path().join("sandcove.db");
    let mut database = connect(&path).await;
    sqlx::query(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (9999, 'later', TRUE, x'00', 0)",
    )
    .execute(&mut database)
    .await
    .unwrap();
    database.close().await.unwrap();
    let (before, ids) = (dump(&path).await, fake.ids());
    let error = App::start(Config::new(directory.path()), host(&fake)).await.err().unwrap().to_string();
    assert!(
        error.contains("the database was written by a newer sandcove (migration 9999 is unknown)"),
        "{error}"
    );
    assert!(error.contains("use the newer one, or another data directory"), "{error}");
    assert!(dump(&path).await == before && fake.ids() == ids);
}
