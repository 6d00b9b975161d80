use sandcove_server::store::Store;
use serde_json::{Value, json};

use crate::support::Server;

#[tokio::test]
async fn a_key_works_from_its_making_to_its_end() {
    let server = Server::start().await;
    // Another process does this while the server runs.
    let path = server.data_files().into_iter().find(|path| path.ends_with("sandcove.db")).unwrap();
    let store = Store::open(&path).await.unwrap();
    let team = store.default_team().await.unwrap();
    let (key, secret) = store.create_key(&team, "for tests").await.unwrap();
    let list = async || server.call_as(secret.expose(), "GET", "/v2/sandboxes", Value::Null).await.code();
    assert_eq!(list().await, 200);

    let keys = store.keys(&team).await.unwrap();
    let listed = keys.iter().find(|listed| listed.id == key.id).unwrap();
    assert_eq!(listed.name, "for tests");
    assert!(listed.last_used_at.is_some());
    assert_eq!(store.key_id(&team, &secret).await.unwrap(), Some(key.id));
    let shown = json!(listed).to_string();
    assert!(!shown.contains(&secret.expose()["e2b_".len()..]), "{shown}");
    assert!(secret.expose().ends_with(&listed.mask.masked_value_suffix));

    assert!(store.delete_key(&team, key.id).await.unwrap());
    assert!(!store.delete_key(&team, key.id).await.unwrap());
    assert_eq!(list().await, 401);
}

#[tokio::test]
async fn no_file_holds_a_key() {
    let server = Server::start().await;
    let store = server.app.store();
    let (_, secret) = store.create_key(&store.default_team().await.unwrap(), "secret").await.unwrap();
    for path in server.data_files() {
        let bytes = std::fs::read(&path).unwrap();
        let needle = &secret.expose().as_bytes()["e2b_".len()..];
        assert!(!bytes.windows(needle.len()).any(|window| window == needle), "{}", path.display());
    }
}
