//! Changes the state of sandboxes, and copies them (contract: control-plane, sections 6 and 7).

use http::Method;
use sandcove_wire::api::sandbox::{Connect, Pause, Timeout};
use sandcove_wire::api::snapshot::{Fork, ForkResult, NewSnapshot, SnapshotInfo};
use sandcove_wire::id::SandboxId;

use crate::error::Result;
use crate::server::{Client, segment};

impl Client {
    /// Pauses a sandbox; with `memory` its processes are kept, else only its files. Returns false if it was paused already.
    ///
    /// # Errors
    /// If the server does not know the sandbox, or cannot pause it.
    pub async fn pause(&self, id: &SandboxId, memory: bool) -> Result<bool> {
        let body = Pause { memory: Some(memory), ..Pause::default() };
        match self.call(Method::POST, &format!("/sandboxes/{id}/pause"), Some(&body)).await {
            Ok(_) => Ok(true),
            Err(error) if error.status() == Some(409) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Brings the memory of a paused sandbox to disk, and waits until it is there. Nothing happens if it is there already.
    ///
    /// # Errors
    /// If the server does not know the sandbox, the sandbox is not paused with its memory, or its memory cannot be stored.
    pub async fn park(&self, id: &SandboxId) -> Result<()> {
        self.call(Method::POST, &format!("/sandboxes/{id}/park"), None::<&()>).await.map(drop)
    }

    /// Resumes a sandbox for `timeout` seconds from now, without `memory` from its files only. One that runs goes on, and its end never
    /// moves closer.
    ///
    /// # Errors
    /// If the server does not know the sandbox, or cannot resume it.
    pub async fn resume(&self, id: &SandboxId, timeout: u32, memory: bool) -> Result<()> {
        let body = Connect { timeout: i32::try_from(timeout).ok(), memory: Some(memory) };
        self.call(Method::POST, &format!("/v2/sandboxes/{id}/connect"), Some(&body)).await.map(drop)
    }

    /// Sets the end of a running sandbox to `timeout` seconds from now.
    ///
    /// # Errors
    /// If the sandbox does not run, or the timeout is more than the team may have.
    pub async fn set_timeout(&self, id: &SandboxId, timeout: u32) -> Result<()> {
        let body = Timeout { timeout: i32::try_from(timeout).unwrap_or(i32::MAX) };
        self.call(Method::POST, &format!("/sandboxes/{id}/timeout"), Some(&body)).await.map(drop)
    }

    /// Takes a snapshot of a sandbox, which goes on; with `memory` of its processes too, else only of its files.
    ///
    /// # Errors
    /// If the server does not know the sandbox, refuses the name, or has no room.
    pub async fn snapshot(&self, id: &SandboxId, name: Option<&str>, memory: bool) -> Result<SnapshotInfo> {
        let body = NewSnapshot { name: name.map(str::to_owned), memory: Some(memory) };
        self.json(Method::POST, &format!("/sandboxes/{id}/snapshots"), Some(&body)).await
    }

    /// Lists snapshots, newest first: those of one sandbox if `id` is given, those of one name if `name` is. All pages.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn snapshots(&self, id: Option<&SandboxId>, name: Option<&str>) -> Result<Vec<SnapshotInfo>> {
        let id = id.map(|id| format!("&sandboxID={id}")).unwrap_or_default();
        let name = name.map(|name| format!("&name={}", segment(name))).unwrap_or_default();
        self.pages(&format!("/snapshots?limit=100{id}{name}")).await
    }

    /// Deletes a snapshot; false if there is none.
    ///
    /// # Errors
    /// If the server does not answer, or refuses.
    pub async fn delete_snapshot(&self, snapshot: &str) -> Result<bool> {
        self.delete(&format!("/templates/{}", segment(snapshot))).await
    }

    /// Starts `count` sandboxes with the files that a sandbox has now, for `timeout` seconds. Each succeeds or fails by itself.
    ///
    /// # Errors
    /// If the server does not know the sandbox, or refuses the number.
    pub async fn fork(&self, id: &SandboxId, count: u32, timeout: u32) -> Result<Vec<ForkResult>> {
        let body = Fork { timeout: i32::try_from(timeout).ok(), count: i32::try_from(count).ok() };
        self.json(Method::POST, &format!("/sandboxes/{id}/fork"), Some(&body)).await
    }
}
