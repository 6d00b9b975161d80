//! Archives of templates that change while they are exported, and what waits meanwhile.

use std::sync::Arc;
use std::time::Duration;

use sandcove_isolate::fake::Operation;
use serde_json::{Value, json};
use tokio::time::timeout;
use uuid::Uuid;

use crate::build_calls::ready;
use crate::support::{Reply, Server, base};

/// Exports a template whose files cannot be opened, because `meanwhile` came first.
async fn export(server: Arc<Server>, name: &str, meanwhile: impl AsyncFnOnce(&Server)) -> Reply {
    let hold = server.fake.hold(Operation::OpenFiles);
    let path = format!("/templates/{name}/export");
    let exporting = tokio::spawn({
        let server = server.clone();
        async move { server.get(&path).await }
    });
    hold.reached().await;
    meanwhile(&server).await;
    server.fake.fail_next(Operation::OpenFiles, 1);
    drop(hold);
    exporting.await.unwrap()
}

#[tokio::test]
async fn a_template_deleted_while_it_is_exported_is_not_found() {
    let server = Arc::new(Server::start().await);
    ready(&server, json!({ "name": "mine" })).await;
    let reply = export(server, "mine", async |server| {
        assert_eq!(server.call("DELETE", "/templates/mine", Value::Null).await.code(), 204);
    });
    assert_eq!(reply.await.code(), 404);
}

#[tokio::test]
async fn a_template_built_again_while_it_is_exported_is_exported_as_it_is_now() {
    let server = Arc::new(Server::start().await);
    let reply = export(server, "base", async |server| {
        let mut next = base();
        next.build_id = Uuid::from_u128(2);
        next.default_user = "of-the-next-build".into();
        server.app.templates().upsert_builtin(next).await.unwrap();
    });
    let reply = reply.await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert!(reply.text.contains("of-the-next-build"));
}

#[tokio::test]
async fn a_template_whose_files_cannot_be_opened_fails_its_export() {
    let server = Server::start().await;
    server.fake.fail_next(Operation::OpenFiles, 1);
    assert_eq!(server.get("/templates/base/export").await.code(), 500);
    assert_eq!(server.get("/templates/base/export").await.status, 200);
}

/// Eight calls of a team that read are answered at once; an export whose files are not open yet is one of them.
#[tokio::test]
async fn calls_that_read_wait_for_those_of_their_own_team_only() {
    let server = Arc::new(Server::start().await);
    let other = server.other_team().await;
    let hold = server.fake.hold(Operation::OpenFiles);
    let exports: Vec<_> = (0..8)
        .map(|_| {
            let server = server.clone();
            tokio::spawn(async move { server.get("/templates/base/export").await.status })
        })
        .collect();
    hold.reached().await;
    let mut list = std::pin::pin!(server.get("/sandboxes"));
    // A list that comes before the last of the eight is answered.
    let mut waits = false;
    for _ in 0..20 {
        waits = timeout(Duration::from_millis(300), &mut list).await.is_err();
        if waits {
            break;
        }
        list.set(server.get("/sandboxes"));
    }
    assert!(waits);
    assert_eq!(server.call_as(other, "GET", "/sandboxes", Value::Null).await.code(), 200);
    server.id(json!({})).await;
    drop(hold);
    assert_eq!(list.await.code(), 200);
    for export in exports {
        assert_eq!(export.await.unwrap(), 200);
    }
}
