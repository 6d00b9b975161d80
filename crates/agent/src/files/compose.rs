//! `POST /files/compose`: joins files that were uploaded in pieces (contract: envd, section 4).

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use axum::Json;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Deserialize;

use super::error::{Error, Result};
use super::spool::random;
use super::upload::{Written, blocking, refuse_directory};
use crate::filesystem::directories::{self, Owner};
use crate::filesystem::metadata::Metadata;
use crate::path;
use crate::state::RequestContext;

#[derive(Deserialize)]
struct ComposeRequest {
    #[serde(default)]
    source_paths: Vec<String>,
    #[serde(default)]
    destination: String,
    #[serde(default)]
    username: Option<String>,
}

/// Answers a request to join files.
pub(super) async fn handle(context: RequestContext, body: Bytes) -> Response {
    match compose(context, &body).await {
        Ok(written) => Json(written).into_response(),
        Err(error) => error.into_response(),
    }
}

async fn compose(context: RequestContext, body: &[u8]) -> Result<Written> {
    let request: ComposeRequest = serde_json::from_slice(body)
        .map_err(|e| Error::bad_request(format!("failed to read the request: {e}")))?;
    if request.source_paths.is_empty() {
        return Err(Error::bad_request("source_paths is empty"));
    }
    if request.destination.is_empty() {
        return Err(Error::bad_request("destination is empty"));
    }
    let account = context.state.account(request.username.as_deref())?;
    let workdir = context.state.default_workdir();
    let resolve = |path: &str| path::resolve(path, &account, workdir.as_deref());
    let destination = resolve(&request.destination)?;
    let sources =
        request.source_paths.iter().map(|path| resolve(path)).collect::<std::result::Result<Vec<_>, _>>()?;
    if sources.iter().any(|source| path::clean(source) == path::clean(&destination)) {
        return Err(Error::bad_request(format!("destination '{destination}' is one of the sources")));
    }
    let owner = Owner::from(&account);
    blocking(move || {
        join(&sources, Path::new(&destination), owner)?;
        Ok(Written::new(destination, Metadata::new()))
    })
    .await
}

/// Writes the content of `sources`, one after the other, to `destination`, and removes them once it is there.
fn join(sources: &[String], destination: &Path, owner: Owner) -> Result<()> {
    let files = sources.iter().map(|source| open_source(Path::new(source))).collect::<Result<Vec<File>>>()?;
    refuse_directory(destination)?;
    let failed =
        |error: io::Error| Error::io(format_args!("failed to write '{}'", destination.display()), &error);
    let parent = destination.parent().unwrap_or(Path::new("/"));
    directories::create_all(parent, owner).map_err(failed)?;

    let unfinished = Unfinished(Some(parent.join(format!(".compose-{:016x}", random()))));
    unfinished.fill(files, owner).and_then(|()| unfinished.rename(destination)).map_err(failed)?;
    for source in sources {
        // The joined file exists; a piece that cannot be removed does not fail the request.
        if let Err(error) = fs::remove_file(source) {
            tracing::warn!(source_path = source, %error, "joined piece not removed");
        }
    }
    Ok(())
}

fn open_source(path: &Path) -> Result<File> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Error::not_found(format!("path '{}' does not exist", path.display())),
        _ => Error::io(format_args!("failed to open '{}'", path.display()), &error),
    };
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(Error::bad_request(format!("path '{}' is not a regular file", path.display())));
    }
    File::open(path).map_err(failed)
}

/// A file that is removed unless it gets its final name.
struct Unfinished(Option<PathBuf>);

impl Unfinished {
    fn fill(&self, sources: Vec<File>, owner: Owner) -> io::Result<()> {
        let Some(path) = &self.0 else { return Ok(()) };
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o666).open(path)?;
        fchown(&file, Some(owner.uid), Some(owner.gid))?;
        for mut source in sources {
            io::copy(&mut source, &mut file)?;
        }
        Ok(())
    }

    fn rename(mut self, destination: &Path) -> io::Result<()> {
        if let Some(path) = &self.0 {
            fs::rename(path, destination)?;
            self.0 = None;
        }
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // The file may never have been created.
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    fn owner() -> Owner {
        Owner { uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw() }
    }

    #[test]
    fn pieces_are_joined_in_order_and_removed() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        let sources: Vec<String> = ["b", "a"].map(|n| at(n).to_str().unwrap().to_owned()).into();
        fs::write(at("a"), "second").unwrap();
        fs::write(at("b"), "first ").unwrap();
        join(&sources, &at("sub/joined"), owner()).unwrap();
        assert_eq!(fs::read_to_string(at("sub/joined")).unwrap(), "first second");
        assert!(!at("a").exists() && !at("b").exists());
    }

    #[test]
    fn a_missing_piece_leaves_everything_as_it_was() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        fs::write(at("a"), "a").unwrap();
        fs::write(at("joined"), "old").unwrap();
        let sources: Vec<String> = ["a", "missing"].map(|n| at(n).to_str().unwrap().to_owned()).into();
        assert_eq!(join(&sources, &at("joined"), owner()).unwrap_err().status, StatusCode::NOT_FOUND);
        assert_eq!(fs::read_to_string(at("joined")).unwrap(), "old");
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 2);
        let sources = vec![base.path().to_str().unwrap().to_owned()];
        assert_eq!(join(&sources, &at("joined"), owner()).unwrap_err().status, StatusCode::BAD_REQUEST);
    }
}
