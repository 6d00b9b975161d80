use std::collections::HashSet;

use serde_json::json;
use uuid::Uuid;

use crate::support::{Server, base};

#[tokio::test]
async fn layers_are_needed_by_tags_sandboxes_and_snapshots() {
    let server = Server::start().await;
    let build = async |layer: &str| {
        let mut record = base();
        record.build_id = Uuid::new_v4();
        record.layers = vec![layer.to_owned()];
        server.app.templates().upsert_builtin(record).await.unwrap();
    };
    let used = async || {
        let used = server.app.store().layers_in_use().await.unwrap().unwrap();
        let of_test = |layer: &String| layer.starts_with("layer-");
        used.into_iter().filter(of_test).collect::<HashSet<String>>()
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<HashSet<String>>();

    build("layer-1").await;
    let id = server.id(json!({ "templateID": base().name })).await;
    build("layer-2").await;
    build("layer-3").await;
    assert_eq!(used().await, names(&["layer-1", "layer-3"]), "the second has neither tag nor sandbox");
    assert_eq!(server.call("DELETE", &format!("/sandboxes/{id}"), json!(null)).await.code(), 204);
    assert_eq!(used().await, names(&["layer-3"]));
    let id = server.id(json!({ "templateID": base().name })).await;
    assert_eq!(used().await, names(&["layer-3"]), "what is left still works");

    let taken = server.call("POST", &format!("/sandboxes/{id}/snapshots"), json!({})).await.json();
    assert_eq!(server.call("DELETE", &format!("/sandboxes/{id}"), json!(null)).await.code(), 204);
    build("layer-4").await;
    assert_eq!(used().await, names(&["layer-3", "layer-4"]), "a snapshot needs what it was made over");
    let id = server.id(json!({ "templateID": taken["snapshotID"] })).await;
    let path = format!("/templates/{}", taken["snapshotID"].as_str().unwrap());
    assert_eq!(server.call("DELETE", &path, json!(null)).await.code(), 204);
    assert_eq!(used().await, names(&["layer-3", "layer-4"]), "and so does a sandbox made from it");
    assert_eq!(server.call("DELETE", &format!("/sandboxes/{id}"), json!(null)).await.code(), 204);
    assert_eq!(used().await, names(&["layer-4"]));
}
