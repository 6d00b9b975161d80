//! Requests about files. They are carried out as root, as the daemon did.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt;
use sandcove_client::{Error, Program, Sandbox};
use sandcove_wire::envd::filesystem::{EntryInfo, FileType};
use serde::Serialize;
use tokio::io::AsyncRead;
use tokio::time::{Instant, timeout_at};

use super::session::Session;
use crate::guest::{Guest, LargeMessage, SMALL_MESSAGE};
use crate::outbox::Gone;
use crate::rpc::{Encoding, Files, Id};

/// Where the kernel gateway's image keeps the id of the kernel that runs from the start.
const KERNEL_ID: &str = "/root/.jupyter/kernel_id";
/// Maximum size of a file that fits into a small message, whatever is in it, bytes.
const SMALL_CONTENT: usize = SMALL_MESSAGE / 8;
/// Maximum size of a file that is read into a message, bytes.
const MAX_READ: usize = 64 << 20;
/// Mode of a file that a message creates.
const MODE: &str = "0755";

/// An entry of a directory, as clients read it.
#[derive(Serialize)]
struct Listed {
    name: String,
    #[serde(rename = "isDir")]
    is_directory: bool,
}

/// Carries out a request, and answers it.
pub(super) async fn carry_out(
    session: &Session,
    id: Option<Id>,
    request: Files,
    held: Option<LargeMessage>,
) -> Result<(), Gone> {
    let sandbox = session.guest.sandbox();
    match request {
        Files::List(path) => {
            const WHAT: &str = "listing files in";
            // The sandbox chooses how long its answer is.
            drop(held);
            let held = session.guest.list().await;
            let Some(listed) = in_time(Some(held.deadline), sandbox.list_directory(&path, 1)).await else {
                let text = format!("error {WHAT} '{path}': it took too long");
                return session.answer(id, Err::<(), _>(text)).await;
            };
            let entries = listed.map_err(|error| worded(WHAT, &path, &error)).map(|entries| {
                let shown = |entry: EntryInfo| Listed {
                    is_directory: entry.r#type() == FileType::Directory,
                    name: entry.name,
                };
                entries.into_iter().map(shown).collect::<Vec<_>>()
            });
            session.answer_held(id, entries, Some(held)).await
        }
        Files::Read(path, encoding) => {
            let (content, held) = match read(&session.guest, &path).await {
                Ok(read) => read,
                Err(message) => return session.answer(id, Err::<(), _>(message)).await,
            };
            let text = match encoding {
                Encoding::Text => String::from_utf8_lossy(&content).into_owned(),
                Encoding::Base64 => STANDARD.encode(&content),
            };
            drop(content);
            session.answer_held(id, Ok(text), held).await
        }
        Files::Write(path, text, encoding) => {
            let content = match encoding {
                Encoding::Text => Ok(text.into_bytes()),
                Encoding::Base64 => STANDARD.decode(text).map_err(|error| {
                    format!("error writing to file '{path}': the content is not base64: {error}")
                }),
            };
            let written = match content {
                Ok(content) => {
                    let write = write(sandbox, &path, content);
                    let deadline = held.as_ref().map(|held| held.deadline);
                    in_time(deadline, write).await.unwrap_or_else(|| Err(too_slow("writing to file", &path)))
                }
                Err(message) => Err(message),
            };
            drop(held);
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

fn too_slow(what: &str, path: &str) -> String {
    format!(
        "error {what} '{path}': it took too long for a large message; transfer the file over HTTP instead"
    )
}

/// Waits for work, until the deadline if there is one.
pub(super) async fn in_time<T>(deadline: Option<Instant>, work: impl Future<Output = T>) -> Option<T> {
    match deadline {
        None => Some(work.await),
        Some(deadline) => timeout_at(deadline, work).await.ok(),
    }
}

/// The content of a file, and the permission to keep it in memory if it is large.
async fn read(guest: &Guest, path: &str) -> Result<(Vec<u8>, Option<LargeMessage>), String> {
    const WHAT: &str = "reading file";
    let mut body = match guest.sandbox().open_file(path, Some("root")).await {
        Ok(answer) => answer.into_body(),
        Err(error) if error.status() == Some(404) && path == KERNEL_ID => {
            let kernel = default_kernel(guest.sandbox()).await.ok_or_else(|| missing(WHAT, path))?;
            return Ok((kernel.into_bytes(), None));
        }
        Err(error) => return Err(worded(WHAT, path, &error)),
    };
    let (mut content, mut held) = (Vec::new(), None::<LargeMessage>);
    loop {
        let deadline = held.as_ref().map(|held| held.deadline);
        let next = in_time(deadline, body.frame()).await.ok_or_else(|| too_slow(WHAT, path))?;
        let Some(frame) = next else { return Ok((content, held)) };
        let frame = frame.map_err(|error| format!("error {WHAT} '{path}': {error}"))?;
        let Ok(data) = frame.into_data() else { continue };
        if content.len() + data.len() > MAX_READ {
            let limit = MAX_READ >> 20;
            return Err(format!(
                "error {WHAT} '{path}': files of more than {limit} MiB have to be downloaded"
            ));
        }
        if held.is_none() && content.len() + data.len() > SMALL_CONTENT {
            held = Some(guest.large_message().await);
        }
        content.extend_from_slice(&data);
    }
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

/// Writes a file as root. One that is new gets the mode, and another one keeps its owner.
pub(super) async fn store(
    sandbox: &Sandbox,
    path: &str,
    content: impl AsyncRead + Send + Unpin + 'static,
    size: Option<u64>,
    mode: &str,
) -> Result<(), Error> {
    let mut found = sandbox.stat(path).await?;
    if let Some(target) = found.as_ref().and_then(|found| found.symlink_target.clone()) {
        found = sandbox.stat(&target).await?;
    }
    // The agent makes its user the owner. Owners without a name have a number in its place.
    let owner =
        found.as_ref().map(|found| found.owner.as_str()).filter(|owner| owner.parse::<u32>().is_err());
    sandbox.upload(path, owner.or(Some("root")), content, size).await?;
    if found.is_none() {
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
