//! The Rust client has the whole API: every call of the router's own table is made by a method of it, or excused here with a reason.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;

use sandcove_client::{
    AuditFilter, Client, ClientBuilder, DeliveryFilter, EventFilter, LogFilter, NewSandbox, Operator,
    SandboxId, TagFilter, TeamActivity,
};
use sandcove_isolate::fake::Fake;
use sandcove_server::routes;
use sandcove_wire::api::admin::{NewTeam, NodeStatus, TeamUpdate};
use sandcove_wire::api::build::{NewTemplate, StartBuild};
use sandcove_wire::api::event::{NewWebhook, WebhookUpdate};
use sandcove_wire::api::network::{Network, NetworkUpdate};
use sandcove_wire::api::observe::LogLevel;
use sandcove_wire::api::secret::{NewSecret, SecretUpdate};
use sandcove_wire::api::volume::EntryUpdate;
use sandcove_wire::secret::Secret;
use serde_json::{from_value, json};

use crate::build_calls::{ready, text};
use crate::support::{KEY, Server, WAIT};

const OLDER: &str = "an older form of a call that the client has";
const PROBE: &str = "asked by load balancers and Prometheus, which are no users of this crate";
const DOCUMENT: &str = "a document for programs that check tokens or read any API";
const ENCODED: &str = "the client encodes a name with its namespace as one segment";

/// Calls that the client does not make.
const EXCUSED: [(&str, &str, &str); 17] = [
    ("GET", "/health", PROBE),
    ("GET", "/metrics", PROBE),
    ("GET", "/openapi.json", DOCUMENT),
    ("GET", "/.well-known/jwks.json", DOCUMENT),
    ("GET", "/.well-known/openid-configuration", DOCUMENT),
    ("GET", "/sandboxes", OLDER),
    ("POST", "/sandboxes", OLDER),
    ("POST", "/sandboxes/{id}/resume", OLDER),
    ("POST", "/sandboxes/{id}/refreshes", OLDER),
    ("GET", "/sandboxes/{id}/logs", OLDER),
    ("GET", "/templates", OLDER),
    ("POST", "/v2/templates", OLDER),
    ("PATCH", "/templates/{id}", OLDER),
    ("GET", "/templates/{id}/{name}", ENCODED),
    ("DELETE", "/templates/{id}/{name}", ENCODED),
    ("GET", "/templates/{id}/{name}/tags", ENCODED),
    ("GET", "/templates/aliases/{alias}/{name}", ENCODED),
];

type Calls = BTreeSet<(String, String)>;

/// The calls that the server has answered, as its metrics count them.
async fn answered(server: &Server) -> Calls {
    let text = server.send("GET", "/metrics", &[("x-admin-token", "admin")], "").await.text;
    let counted = text.lines().filter_map(|line| line.strip_prefix("sandcove_api_requests_total{"));
    let label = |line: &str, name: &str| {
        line.split_once(&format!("{name}=\"")).unwrap().1.split('"').next().unwrap().to_owned()
    };
    counted.map(|line| (label(line, "method"), label(line, "route"))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_of_the_api_has_a_method() {
    let fake = Fake::default();
    fake.allow_parking();
    let server = Server::on_fake(fake, |_| ()).await;
    let url = format!("http://{}", server.address);
    let client = Client::new(&url, &Secret::new(KEY)).unwrap();
    let user = ClientBuilder::of_user(Secret::new("sk_e2b_person")).server(&url).build().unwrap();
    let operator = Operator::new(&url, &Secret::new("admin")).unwrap();

    sandboxes(&client).await;
    observed(&client).await;
    templates(&server, &client, &operator).await;
    volumes(&server, &client).await;
    webhooks(&client).await;
    secrets(&client).await;
    keys(&server, &user).await;
    operators(&operator).await;

    let answered = answered(&server).await;
    let excused: Calls =
        EXCUSED.iter().map(|(method, path, _)| ((*method).to_owned(), (*path).to_owned())).collect();
    let all: Calls = routes().iter().map(|route| (route.method.to_string(), route.path.to_owned())).collect();
    let wanted: Calls = all.difference(&excused).cloned().collect();
    let missing: Vec<_> = wanted.difference(&answered).collect();
    assert!(missing.is_empty(), "the client has no method, or this test does not call it: {missing:?}");
    let stale: Vec<_> = excused.iter().filter(|call| !all.contains(*call)).collect();
    assert!(stale.is_empty(), "excused, but not in the table: {stale:?}");
    let needless: Vec<_> = excused.intersection(&answered).collect();
    assert!(needless.is_empty(), "excused, but the client makes them: {needless:?}");
}

async fn created(client: &Client, new: NewSandbox) -> SandboxId {
    client.create(&NewSandbox { template: "base".to_owned(), ..new }).await.unwrap().id().clone()
}

async fn sandboxes(client: &Client) {
    let network = Network { allow_public_traffic: Some(false), ..Network::default() };
    let id = created(client, NewSandbox::default().network(network).label("a", "b")).await;
    // The token of private traffic is in the answer to a connect only.
    client.attach(&id).await.unwrap();
    assert_eq!(client.list().await.unwrap().len(), 1);
    client.detail(&id).await.unwrap();
    client.set_timeout(&id, 60).await.unwrap();
    client.update_network(&id, &NetworkUpdate::default()).await.unwrap();
    assert!(client.egress(&id).await.unwrap().is_empty());
    let snapshot = client.snapshot(&id, None, false).await.unwrap();
    assert_eq!(client.snapshots(Some(&id), None).await.unwrap(), std::slice::from_ref(&snapshot));
    assert!(client.delete_snapshot(&snapshot.snapshot_id).await.unwrap());
    assert!(client.fork(&id, 1, 60).await.unwrap()[0].sandbox.is_some());
    assert!(client.pause(&id, true).await.unwrap());
    client.park(&id).await.unwrap();
    client.resume(&id, 60, true).await.unwrap();
    assert!(client.kill(&id).await.unwrap());
    let filed = created(client, NewSandbox::default().pauses_files_at_timeout()).await;
    let kept = client.info(&filed).await.unwrap();
    assert_eq!(kept["lifecycle"]["onTimeout"], "pause", "{kept}");
}

async fn observed(client: &Client) {
    let id = created(client, NewSandbox::default()).await;
    client.pause(&id, true).await.unwrap();
    let messages = async |filter: &LogFilter, search: Option<&str>| {
        let entries = client.logs_where(&id, filter, search).await.unwrap();
        entries.into_iter().map(|entry| entry.message).collect::<Vec<_>>()
    };
    assert_eq!(messages(&LogFilter::default(), None).await, ["sandbox started", "sandbox paused"]);
    let newest = LogFilter { is_backward: true, limit: Some(1), ..LogFilter::default() };
    assert_eq!(messages(&newest, None).await, ["sandbox paused"]);
    assert_eq!(messages(&LogFilter::default(), Some("started")).await, ["sandbox started"]);
    let failures = LogFilter { level: Some(LogLevel::Error), ..LogFilter::default() };
    assert!(messages(&failures, None).await.is_empty());

    let now = jiff::Timestamp::now();
    client.metrics(&id, None, Some(now)).await.unwrap();
    let backward = client.metrics(&id, Some(now), Some(jiff::Timestamp::UNIX_EPOCH)).await;
    assert_eq!(backward.unwrap_err().status(), Some(400));
    client.latest_metrics(std::slice::from_ref(&id)).await.unwrap();

    let oldest = EventFilter { sandbox: Some(id), is_oldest_first: true, ..EventFilter::default() };
    let labels = async |filter: &EventFilter| {
        let events = client.events_where(filter).await.unwrap();
        events.into_iter().map(|event| event.event_label).collect::<Vec<_>>()
    };
    assert_eq!(labels(&oldest).await, ["create", "pause"]);
    assert_eq!(labels(&EventFilter { offset: 1, ..oldest.clone() }).await, ["pause"]);
    assert_eq!(labels(&EventFilter { limit: Some(1), ..oldest.clone() }).await, ["create"]);
    let types = vec!["sandbox.lifecycle.paused".to_owned(), "sandbox.lifecycle.killed".to_owned()];
    assert_eq!(labels(&EventFilter { types, ..oldest }).await, ["pause"]);
    assert_eq!(client.events(None, 1).await.unwrap().len(), 1);
}

async fn templates(server: &Server, client: &Client, operator: &Operator) {
    let built = ready(server, json!({ "name": "app" })).await;
    let template = text(&built, "templateID");
    assert_eq!(client.assign_tags("app", &["v1".into(), "v2".into()]).await.unwrap().tags, ["v1", "v2"]);
    assert_eq!(client.tags(template).await.unwrap().len(), 3);
    assert_eq!(client.tag_count(template).await.unwrap(), 3);
    let found = client.tag_exists(template, " V1").await.unwrap();
    assert_eq!((found.exists, found.normalized_tag.as_str()), (true, "v1"));
    let filter = TagFilter {
        search: Some("v".into()),
        order: sandcove_client::TagOrder::Name,
        ..TagFilter::default()
    };
    let groups = client.tag_groups("app", &filter).await.unwrap();
    assert_eq!(groups.iter().map(|group| group.tag.as_str()).collect::<Vec<_>>(), ["v1", "v2"]);
    let history = client.tag_history("app", "v1").await.unwrap();
    assert_eq!(
        history.iter().map(|one| one.build_id.as_str()).collect::<Vec<_>>(),
        [text(&built, "buildID")]
    );
    client.remove_tags("app", &["v2".into()]).await.unwrap();

    let new = NewTemplate { name: Some("app:next".into()), ..NewTemplate::default() };
    let next = client.request_build(&new).await.unwrap();
    let link = client.upload_link("app", &"0".repeat(64)).await.unwrap();
    client.upload(&link, tokio::fs::File::open("Cargo.toml").await.unwrap()).await.unwrap();
    let start: StartBuild = from_value(json!({ "fromTemplate": "base", "steps": [] })).unwrap();
    let team = server.app.store().default_team().await.unwrap().id.to_string();
    client.start_build(template, &next.build_id, &start).await.unwrap();
    operator.cancel_builds(&team).await.unwrap();
    client.follow_build(template, &next.build_id, |_| ()).await.unwrap();
    let entries = client.build_logs(template, &next.build_id, &LogFilter::default()).await.unwrap();
    let newest = LogFilter { is_backward: true, limit: Some(1), ..LogFilter::default() };
    let last = client.build_logs(template, &next.build_id, &newest).await.unwrap();
    assert_eq!(last.first(), entries.last());

    assert_eq!(client.templates().await.unwrap().len(), 2, "with that of the server");
    assert_eq!(client.default_templates().await.unwrap()[0].aliases, ["base"]);
    assert_eq!(client.template(template).await.unwrap().builds.len(), 2);
    assert_eq!(client.template_named("app").await.unwrap().unwrap().template_id, template);
    client.set_public(template, true).await.unwrap();
    let mut archive = Vec::new();
    client.export_template("base", &mut archive, |_| ()).await.unwrap();
    assert!(!archive.is_empty());
    client.collect_garbage(true).await.unwrap();
    assert!(client.delete_template(template).await.unwrap());
}

async fn volumes(server: &Server, client: &Client) {
    let id = client.create_volume("data").await.unwrap().volume_id;
    assert_eq!(client.volumes().await.unwrap().len(), 1);
    let files = client.volume_files(&client.volume(&id).await.unwrap()).unwrap();
    // As a sandbox would: only root may create files for the account of sandboxes.
    std::fs::write(server.data_directory("volumes").join(&id).join("content/file"), "text").unwrap();
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let (made, written) =
        (files.make_directory("/d").await, files.upload("/d/file", &b"text"[..], Some(4)).await);
    assert!(!is_root || (made.is_ok() && written.is_ok()), "{made:?} {written:?}");
    assert_eq!(files.stat("/file").await.unwrap().unwrap().size, 4);
    assert!(files.list("/", 1).await.unwrap().iter().any(|entry| entry.name == "file"));
    let update = EntryUpdate { mode: Some(0o600), ..EntryUpdate::default() };
    assert_eq!(files.update("/file", &update).await.unwrap().mode & 0o777, 0o600);
    let mut read = Vec::new();
    files.download("/file", &mut read).await.unwrap();
    assert_eq!(read, b"text");
    assert!(files.remove("/file").await.unwrap());
    assert!(client.delete_volume(&id).await.unwrap());
}

async fn webhooks(client: &Client) {
    let new = NewWebhook {
        name: "hook".into(),
        // No server calls this address.
        url: "http://192.0.2.1/".into(),
        events: vec!["sandbox.lifecycle.created".into(), "sandbox.lifecycle.killed".into()],
        signature_secret: Secret::new("topsecret"),
        enabled: true,
    };
    let id = client.create_webhook(&new).await.unwrap().id;
    assert_eq!(client.webhooks().await.unwrap().len(), 1);
    let sandbox = created(client, NewSandbox::default()).await;
    client.kill(&sandbox).await.unwrap();
    let deadline = tokio::time::Instant::now() + WAIT;
    let both = loop {
        let listed = client.deliveries(&id).await.unwrap().data;
        if listed.len() == 2 {
            break listed;
        }
        assert!(tokio::time::Instant::now() < deadline, "delivered: {listed:?}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    let events = async |filter: &DeliveryFilter| {
        let page = client.deliveries_where(&id, filter).await.unwrap();
        (page.data.into_iter().map(|one| one.event_type).collect::<Vec<_>>(), page.next_cursor)
    };
    let one = DeliveryFilter { limit: Some(1), is_oldest_first: true, ..DeliveryFilter::default() };
    let (first, cursor) = events(&one).await;
    assert_eq!((first, cursor.is_some()), (vec!["sandbox.lifecycle.created".to_owned()], true));
    assert_eq!(
        events(&DeliveryFilter { cursor, ..one }).await,
        (vec!["sandbox.lifecycle.killed".to_owned()], None)
    );
    let failed = DeliveryFilter {
        event: Some("sandbox.lifecycle.killed".into()),
        is_success: Some(false),
        ..DeliveryFilter::default()
    };
    assert_eq!(events(&failed).await.0, ["sandbox.lifecycle.killed"]);
    assert!(events(&DeliveryFilter { is_success: Some(true), ..failed.clone() }).await.0.is_empty());
    let past = DeliveryFilter { to: Some(jiff::Timestamp::UNIX_EPOCH), ..DeliveryFilter::default() };
    assert!(events(&past).await.0.is_empty());

    assert!(client.webhook_stats(&id, None, None).await.unwrap().failed >= 2);
    let before =
        client.webhook_stats(&id, Some(jiff::Timestamp::UNIX_EPOCH), Some(jiff::Timestamp::UNIX_EPOCH));
    assert_eq!(before.await.unwrap().total, 0);
    client.redeliver(&id, &both[0].attempts[0].id).await.unwrap();
    let update = WebhookUpdate { enabled: Some(false), ..WebhookUpdate::default() };
    assert!(!client.update_webhook(&id, &update).await.unwrap().enabled);
    assert!(!client.webhook(&id).await.unwrap().enabled);
    assert!(client.delete_webhook(&id).await.unwrap());
}

async fn secrets(client: &Client) {
    let new = NewSecret { name: "token".into(), value: Secret::new("hush"), metadata: None };
    let id = client.create_secret(&new).await.unwrap().secret_id;
    let update = SecretUpdate { value: Secret::new("hush-hush"), metadata: None };
    client.update_secret("token", &update).await.unwrap();
    let found = client.secret("token").await.unwrap();
    assert_eq!((found.secret_id.as_str(), found.current_version), (id.as_str(), 2));
    assert_eq!(client.secrets().await.unwrap().len(), 1);
    assert!(client.delete_secret(&id).await.unwrap());
}

async fn keys(server: &Server, user: &Client) {
    let teams = user.teams().await.unwrap();
    let team = server.app.store().default_team().await.unwrap().id.to_string();
    assert_eq!((teams.len(), teams[0].team_id.as_str()), (1, team.as_str()));
    let new = user.create_api_key("laptop").await.unwrap();
    user.rename_api_key(&new.listed.id, "desktop").await.unwrap();
    assert!(user.api_keys().await.unwrap().iter().any(|key| key.name == "desktop"));
    let by_key = Client::new(user.url(), &new.key).unwrap();
    by_key.ping().await.unwrap();
    assert_eq!(by_key.api_keys().await.unwrap_err().status(), Some(401), "a key manages no keys");
    // With both credentials, a client can do what either can.
    let both =
        ClientBuilder::new(new.key.clone()).access_token(Secret::new("sk_e2b_person")).server(user.url());
    assert!(both.build().unwrap().delete_api_key(&new.listed.id).await.unwrap());
    assert_eq!(by_key.ping().await.unwrap_err().status(), Some(401));

    let token = user.create_access_token("laptop").await.unwrap();
    let other = ClientBuilder::of_user(token.token).server(user.url()).build().unwrap();
    assert_eq!(other.teams().await.unwrap().len(), 1);
    assert!(user.delete_access_token(&token.id).await.unwrap());
    assert!(!user.delete_access_token(&token.id).await.unwrap());

    user.team_metrics(&team, None, None).await.unwrap();
    let (start, end) = (jiff::Timestamp::UNIX_EPOCH, jiff::Timestamp::from_second(9).unwrap());
    for metric in [TeamActivity::ConcurrentSandboxes, TeamActivity::SandboxStartRate] {
        let max = user.team_metrics_max(&team, metric, Some(start), Some(end)).await.unwrap();
        assert_eq!((max.value, max.timestamp), (0.0, end));
    }
}

async fn operators(operator: &Operator) {
    let new = NewTeam { name: "guests".into(), slug: None, limits: Default::default() };
    let team = operator.create_team(&new).await.unwrap().id;
    assert_eq!(operator.teams().await.unwrap().len(), 2);
    let update = TeamUpdate { name: Some("visitors".into()), ..TeamUpdate::default() };
    operator.update_team(&team, &update).await.unwrap();
    assert_eq!(operator.team(&team).await.unwrap().name, "visitors");
    let key = operator.create_key(&team, "laptop").await.unwrap().listed.id;
    operator.for_team(&team).unwrap().rename_api_key(&key, "desktop").await.unwrap();
    let listed = operator.keys(&team).await.unwrap();
    assert_eq!(listed.iter().map(|key| key.name.as_str()).collect::<Vec<_>>(), ["desktop"]);
    assert!(operator.delete_key(&team, &key).await.unwrap());
    assert!(!operator.delete_key(&team, &key).await.unwrap());
    assert_eq!(operator.kill_sandboxes(&team).await.unwrap().killed_count, 0);
    operator.running_counts().await.unwrap();
    assert!(!operator.audit(&AuditFilter::default()).await.unwrap().is_empty());
    let node = operator.nodes().await.unwrap().remove(0).id;
    assert_eq!(operator.node(&node).await.unwrap().id, node);
    operator.set_node_status(&node, NodeStatus::Ready).await.unwrap();
    let wrong = Operator::new(operator.for_team(&team).unwrap().url(), &Secret::new("wrong")).unwrap();
    assert!(wrong.keys(&team).await.unwrap_err().to_string().contains("does not accept the admin token"));
    assert_eq!(wrong.delete_key(&team, &key).await.unwrap_err().status(), Some(401));
}
