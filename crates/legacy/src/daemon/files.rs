//! Requests about files. They are carried out as root, as the daemon did.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use sandcove_client::{Error, Program, Sandbox};
use sandcove_wire::envd::filesystem::FileType;
use serde_json::json;
use tokio::io::AsyncRead;

use super::session::Session;
use crate::guest::SMALL_MESSAGE;
use crate::outbox::Gone;
use crate::rpc::{Encoding, Files, Id};

/// Where the kernel gateway's image keeps the id of the kernel that runs from the start.
const KERNEL_ID: &str = "/root/.jupyter/kernel_id";
/// Maximum size of a file that is read into a message, bytes.
const MAX_READ: usize = 64 << 20;
/// Mode of a file that a message creates.
const MODE: &str = "0755";

/// Carries out a request, and answers it.
pub(super) async fn carry_out(session: &Session, id: Option<Id>, request: Files) -> Result<(), Gone> {
    let sandbox = session.guest.sandbox();
    match request {
        Files::List(path) => {
            let listed = sandbox.list_directory(&path, 1).await.map(|entries| {
                let shown = |entry: &sandcove_wire::envd::filesystem::EntryInfo| json!({ "name": entry.name, "isDir": entry.r#type() == FileType::Directory });
                entries.iter().map(shown).collect::<Vec<_>>()
            });
            session.answer(id, listed.map_err(|error| worded("listing files in", &path, &error))).await
        }
        Files::Read(path, encoding) => {
            // Taken before the content is in memory.
            let _held = match is_small(sandbox, &path).await {
                true => None,
                false => Some(session.guest.large_message().await),
            };
            let text = read(sandbox, &path).await.map(|bytes| match encoding {
                Encoding::Text => String::from_utf8_lossy(&bytes).into_owned(),
                Encoding::Base64 => STANDARD.encode(&bytes),
            });
            session.answer(id, text).await
        }
        Files::Write(path, text, encoding) => {
            let content = match encoding {
                Encoding::Text => Ok(text.into_bytes()),
                Encoding::Base64 => STANDARD.decode(text).map_err(|error| {
                    format!("error writing to file '{path}': the content is not base64: {error}")
                }),
            };
            let written = match content {
                Ok(content) => write(sandbox, &path, content).await,
                Err(message) => Err(message),
            };
            session.answer(id, written).await
        }
        Files::MakeDirectory(path) => {
            let made = sandbox.make_directory(&path).await;
            session.answer(id, made.map_err(|error| worded("creating directory", &path, &error))).await
        }
        Files::Remove(path) => {
            let removed = sandbox.remove(&path).await;
            session.answer(id, removed.map_err(|error| worded("removing file", &path, &error))).await
        }
    }
}

/// The text of an error, as the daemon worded it where it is known how.
fn worded(what: &str, path: &str, error: &Error) -> String {
    match error.status() {
        Some(404) => missing(what, path),
        _ => format!("error {what} '{path}': {error}"),
    }
}

fn missing(what: &str, path: &str) -> String {
    format!("error {what} '{path}': open {path}: no such file or directory")
}

async fn is_small(sandbox: &Sandbox, path: &str) -> bool {
    match sandbox.stat(path).await {
        Ok(Some(entry)) => usize::try_from(entry.size).is_ok_and(|size| size < SMALL_MESSAGE / 8),
        Ok(None) | Err(_) => true,
    }
}

async fn read(sandbox: &Sandbox, path: &str) -> Result<Bytes, String> {
    let failed = |error: &Error| worded("reading file", path, error);
    let body = match sandbox.open_file(path, Some("root")).await {
        Ok(answer) => answer.into_body(),
        Err(error) if error.status() == Some(404) && path == KERNEL_ID => {
            return default_kernel(sandbox).await.map(Bytes::from).ok_or_else(|| failed(&error));
        }
        Err(error) => return Err(failed(&error)),
    };
    let content = Limited::new(body, MAX_READ).collect().await;
    content.map(http_body_util::Collected::to_bytes).map_err(|error| {
        let limit = MAX_READ >> 20;
        format!("error reading file '{path}': {error}; files of more than {limit} MiB have to be downloaded")
    })
}

/// The id of the kernel that runs from the start: clients look for it in a file.
async fn default_kernel(sandbox: &Sandbox) -> Option<String> {
    let contexts = sandbox.contexts().await.ok()?;
    Some(contexts.into_iter().find(|context| context.language == "python")?.id)
}

async fn write(sandbox: &Sandbox, path: &str, content: Vec<u8>) -> Result<(), String> {
    const WHAT: &str = "writing to file";
    let parent = path.trim_end_matches('/').rsplit_once('/').map_or("/", |(parent, _)| parent);
    let parent = if parent.is_empty() { "/" } else { parent };
    match sandbox.stat(parent).await {
        Ok(Some(_)) => {}
        Ok(None) => return Err(missing(WHAT, path)),
        Err(error) => return Err(worded(WHAT, path, &error)),
    }
    let size = content.len() as u64;
    let written = store(sandbox, path, std::io::Cursor::new(content), Some(size), MODE).await;
    written.map_err(|error| worded(WHAT, path, &error))
}

/// Writes a file as root. One that is new gets the mode.
pub(super) async fn store(
    sandbox: &Sandbox,
    path: &str,
    content: impl AsyncRead + Send + Unpin + 'static,
    size: Option<u64>,
    mode: &str,
) -> Result<(), Error> {
    let is_new = sandbox.stat(path).await?.is_none();
    sandbox.upload(path, Some("root"), content, size).await?;
    if is_new {
        let program = Program {
            program: "chmod".to_owned(),
            arguments: [mode, "--", path].map(str::to_owned).into(),
            user: Some("root".to_owned()),
            cwd: Some("/".to_owned()),
            ..Program::default()
        };
        // The file is there; an image may have no such program.
        if let Err(error) = sandbox.run_program(&program, |_| {}).await {
            tracing::debug!(%error, "mode of a file could not be set");
        }
    }
    Ok(())
}
