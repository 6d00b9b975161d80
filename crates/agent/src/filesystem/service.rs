//! The RPC handlers: resolve the paths, do one thing on a blocking thread, describe the outcome.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sandcove_wire::envd::filesystem::{
    EntryInfo, ListDirRequest, ListDirResponse, MakeDirRequest, MakeDirResponse, MoveRequest, MoveResponse,
    RemoveRequest, RemoveResponse, StatRequest, StatResponse,
};

use super::directories::{self, Owner};
use super::{Describer, list, relocate};
use crate::rpc::{Error, Result, Router};
use crate::state::RequestContext;

/// Adds the RPCs of this module to `router`.
pub fn register(router: Router) -> Router {
    router
        .unary("/filesystem.Filesystem/Stat", stat)
        .unary("/filesystem.Filesystem/ListDir", list_dir)
        .unary("/filesystem.Filesystem/MakeDir", make_dir)
        .unary("/filesystem.Filesystem/Move", move_entry)
        .unary("/filesystem.Filesystem/Remove", remove)
}

async fn stat(context: RequestContext, request: StatRequest) -> Result<StatResponse> {
    let path = resolve(&context, &request.path)?;
    let entry = blocking(move || describe(&path)).await?;
    Ok(StatResponse { entry: Some(shown_to(&context, entry)) })
}

async fn list_dir(context: RequestContext, request: ListDirRequest) -> Result<ListDirResponse> {
    let path = resolve(&context, &request.path)?;
    let entries = blocking(move || list::list(&path, request.depth)).await?;
    Ok(ListDirResponse { entries: entries.into_iter().map(|e| shown_to(&context, e)).collect() })
}

async fn make_dir(context: RequestContext, request: MakeDirRequest) -> Result<MakeDirResponse> {
    let owner = Owner::from(&context.account()?);
    let path = resolve(&context, &request.path)?;
    let entry = blocking(move || {
        make_new_directory(&path, owner)?;
        describe(&path)
    });
    Ok(MakeDirResponse { entry: Some(shown_to(&context, entry.await?)) })
}

async fn move_entry(context: RequestContext, request: MoveRequest) -> Result<MoveResponse> {
    let owner = Owner::from(&context.account()?);
    let source = resolve(&context, &request.source)?;
    let destination = resolve(&context, &request.destination)?;
    let entry = blocking(move || {
        relocate::rename(&source, &destination, owner)?;
        describe(&destination)
    });
    Ok(MoveResponse { entry: Some(shown_to(&context, entry.await?)) })
}

async fn remove(context: RequestContext, request: RemoveRequest) -> Result<RemoveResponse> {
    // Resolved like any other path, an empty one would be the home directory with all that is in it.
    if request.path.is_empty() {
        return Err(Error::invalid_argument("the path to remove is empty"));
    }
    let path = resolve(&context, &request.path)?;
    blocking(move || relocate::remove(&path)).await?;
    Ok(RemoveResponse {})
}

fn resolve(context: &RequestContext, path: &str) -> Result<PathBuf> {
    context.resolve(path).map(PathBuf::from)
}

fn make_new_directory(path: &Path, owner: Owner) -> Result<()> {
    let shown = path.display();
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => {
            return Err(Error::already_exists(format!("directory already exists: '{shown}'")));
        }
        Ok(_) => {
            return Err(Error::invalid_argument(format!("path '{shown}' exists and is not a directory")));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(Error::internal(format!("failed to look at '{shown}': {error}"))),
    }
    directories::create_all(path, owner)
        .map_err(|e| Error::internal(format!("failed to create directory '{shown}': {e}")))
}

fn describe(path: &Path) -> Result<EntryInfo> {
    let entry = Describer::load().and_then(|mut describer| describer.describe(path));
    entry.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::not_found(format!("path '{}' does not exist", path.display())),
        _ => Error::internal(format!("failed to look at '{}': {error}", path.display())),
    })
}

/// Removes fields that the oldest clients cannot read.
pub(crate) fn shown_to(context: &RequestContext, entry: EntryInfo) -> EntryInfo {
    match context.legacy {
        true => {
            EntryInfo { name: entry.name, r#type: entry.r#type, path: entry.path, ..EntryInfo::default() }
        }
        false => entry,
    }
}

/// Runs `work` on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Error::internal(format!("the operation did not finish: {error}"))))
}
