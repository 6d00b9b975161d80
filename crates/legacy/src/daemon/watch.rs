//! Watches of directories.

use sandcove_wire::envd::filesystem::{EventType, FileType, FilesystemEvent};
use serde_json::{Value, json};

use super::programs::now;
use super::session::Session;
use crate::rpc::Id;

/// Directory for the results of programs that `DataAnalysis` runs. It watches the directory before each of them, and its template had it.
const ARTIFACTS: &str = "/home/user/artifacts";
/// Account that programs run as.
const DEFAULT_USER: &str = "user";

/// Watches a directory: answers when changes are noticed, and then sends them.
pub(super) async fn watch(session: &Session, id: Option<Id>, subscription: &str, path: &str) {
    let sandbox = session.guest.sandbox();
    let mut watched = sandbox.watch_directory(path).await;
    if watched.is_err() && path == ARTIFACTS {
        // The programs that write into it do not run as root.
        let made = sandbox.clone().with_directory_user(DEFAULT_USER).make_directory(path).await;
        if made.is_ok() {
            watched = sandbox.watch_directory(path).await;
        }
    }
    let mut watch = match watched {
        Ok(watch) => watch,
        Err(error) => {
            let text = format!("error watching directory '{path}': {error}");
            return session.refuse_subscription(id, subscription, text).await;
        }
    };
    if session.answer(id, Ok(subscription)).await.is_err() {
        return;
    }
    while let Ok(Some(event)) = watch.next().await {
        if let Some(shown) = shown(path, &event)
            && session.notify("filesystem", subscription, &shown).await.is_err()
        {
            return;
        }
    }
}

fn shown(directory: &str, event: &FilesystemEvent) -> Option<Value> {
    let operation = match event.r#type() {
        EventType::Create => "Create",
        EventType::Write => "Write",
        EventType::Remove => "Remove",
        EventType::Rename => "Rename",
        EventType::Chmod => "Chmod",
        EventType::Unspecified => return None,
    };
    let is_there = !matches!(operation, "Remove" | "Rename");
    let is_directory = event.entry.as_ref().is_some_and(|entry| entry.r#type() == FileType::Directory);
    let name = event.name.rsplit('/').next().unwrap_or_default();
    Some(json!({
        "path": format!("{}/{}", directory.trim_end_matches('/'), event.name),
        "name": name,
        "operation": operation,
        "timestamp": now(),
        "isDir": is_there && is_directory,
    }))
}
