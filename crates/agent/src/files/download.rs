//! `GET /files` (contract: envd, section 4).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_TYPE, LAST_MODIFIED, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use rustix::fs::{MemfdFlags, memfd_create};
use sandcove_wire::signature::Operation;

use super::auth::authorize;
use super::chunks::{Chunks, Gzip, Plain, Source, is_compressible};
use super::conditions::{self, Selection};
use super::encoding::{self, Coding};
use super::error::{Error, Result};
use super::query::FilesQuery;
use super::{content_type, disposition};
use crate::filesystem::entry::base_name;
use crate::path;
use crate::state::RequestContext;

/// Maximum size of a file that has content and no size, bytes: it is kept in memory until it is sent.
const MAX_GENERATED: u64 = 16 << 20;

/// Answers a download.
pub(super) async fn handle(context: RequestContext, query: FilesQuery, headers: HeaderMap) -> Response {
    download(context, query, headers).await.unwrap_or_else(IntoResponse::into_response)
}

async fn download(context: RequestContext, query: FilesQuery, headers: HeaderMap) -> Result<Response> {
    authorize(&context.state, &headers, &query, Operation::Read)?;
    let account = context.state.account(query.username.as_deref())?;
    let workdir = context.state.default_workdir();
    let path = path::resolve(query.path.as_deref().unwrap_or_default(), &account, workdir.as_deref())?;

    let accepted = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let accepted = encoding::accepted(&accepted.collect::<Vec<_>>().join(","));
    let opened = tokio::task::spawn_blocking(move || Opened::open(path.into(), &headers, accepted)).await;
    opened.unwrap_or_else(|e| Err(Error::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string())))?.respond()
}

/// An open file with its first bytes, and the part of it that goes to the client.
struct Opened {
    name: String,
    modified: i64,
    size: u64,
    kind: &'static str,
    answer: Answer,
}

enum Answer {
    Empty(StatusCode),
    Plain { first: Bytes, rest: Plain, part: Option<(u64, u64)>, length: u64 },
    Gzip { first: Bytes, rest: Box<Gzip> },
}

impl Opened {
    /// Opens the file and reads as much as a small answer needs.
    fn open(path: PathBuf, headers: &HeaderMap, accepted: encoding::Accepted) -> Result<Self> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => Error::not_found(format!("path '{}' does not exist", path.display())),
            _ => Error::io(format_args!("failed to open '{}'", path.display()), &error),
        };
        let (file, found) = open_regular(&path, failed)?;
        let (mut file, size) = match found.size() {
            0 => generated(file).map_err(failed)?,
            size => (file, size),
        };
        let exact = conditions::needs_identity(headers);
        let coding = match accepted.best {
            Some(_) if exact => accepted.identity.then_some(Coding::Identity),
            // Clients recognize an empty file by its length, which a compressed answer does not have.
            Some(_) if size == 0 && accepted.identity => Some(Coding::Identity),
            Some(Coding::Gzip) if accepted.identity && !is_compressible(&file, size).map_err(failed)? => {
                Some(Coding::Identity)
            }
            best => best,
        };
        let coding = coding.ok_or_else(|| {
            Error::new(StatusCode::NOT_ACCEPTABLE, "no acceptable coding: supported are identity and gzip")
        })?;
        let start = read_start(&mut file).map_err(failed)?;
        let kind = content_type::of(&path, &start);
        let answer = match (conditions::select(headers, size, found.mtime()), coding) {
            (Selection::NotModified, _) => Answer::Empty(StatusCode::NOT_MODIFIED),
            (Selection::PreconditionFailed, _) => Answer::Empty(StatusCode::PRECONDITION_FAILED),
            (Selection::Unsatisfiable, _) => Answer::Empty(StatusCode::RANGE_NOT_SATISFIABLE),
            (Selection::Whole, Coding::Gzip) => {
                let mut rest = Box::new(Gzip::new(file));
                let first = rest.next_chunk().map_err(failed)?;
                Answer::Gzip { first, rest }
            }
            (Selection::Whole, Coding::Identity) => Answer::plain(file, 0, size, None).map_err(failed)?,
            (Selection::Part { start, length }, _) => {
                Answer::plain(file, start, length, Some((start, length))).map_err(failed)?
            }
        };
        Ok(Self { name: base_name(&path), modified: found.mtime(), size, kind, answer })
    }

    fn respond(self) -> Result<Response> {
        let mut headers = HeaderMap::new();
        let mut set = |name: HeaderName, value: &str| {
            // A value that no header can hold is left out: the file itself is more important.
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        set(VARY, "Accept-Encoding");
        if let Some(date) = conditions::format_http_date(self.modified) {
            set(LAST_MODIFIED, &date);
        }
        set(CONTENT_DISPOSITION, &disposition::inline(&self.name));
        if !matches!(self.answer, Answer::Empty(_)) {
            set(CONTENT_TYPE, self.kind);
        }
        let (status, body) = match self.answer {
            Answer::Empty(status) => {
                if status == StatusCode::RANGE_NOT_SATISFIABLE {
                    set(CONTENT_RANGE, &format!("bytes */{}", self.size));
                }
                (status, Body::empty())
            }
            Answer::Plain { first, rest, part, length } => {
                set(ACCEPT_RANGES, "bytes");
                set(CONTENT_LENGTH, &length.to_string());
                let status = match part {
                    None => StatusCode::OK,
                    Some((start, length)) => {
                        let last = (start + length).saturating_sub(1);
                        set(CONTENT_RANGE, &format!("bytes {start}-{last}/{}", self.size));
                        StatusCode::PARTIAL_CONTENT
                    }
                };
                let complete = first.len() as u64 == length;
                let body =
                    if complete { first.into() } else { Body::from_stream(Chunks::after(first, rest)) };
                (status, body)
            }
            Answer::Gzip { first, rest } => {
                set(CONTENT_ENCODING, "gzip");
                (StatusCode::OK, Body::from_stream(Chunks::after(first, *rest)))
            }
        };
        Ok((status, headers, body).into_response())
    }
}

impl Answer {
    fn plain(mut file: File, start: u64, length: u64, part: Option<(u64, u64)>) -> io::Result<Self> {
        file.seek(SeekFrom::Start(start))?;
        let mut rest = Plain::new(file, length);
        let first = rest.next_chunk()?;
        Ok(Self::Plain { first, rest, part, length })
    }
}

/// Opens a regular file. Others cannot be downloaded: pipes and devices have no end to wait for.
fn open_regular(path: &Path, failed: impl Fn(io::Error) -> Error) -> Result<(File, fs::Metadata)> {
    let refuse = |found: &fs::Metadata| match found.is_file() {
        true => Ok(()),
        false if found.is_dir() => {
            Err(Error::bad_request(format!("path '{}' is a directory", path.display())))
        }
        false => Err(Error::bad_request(format!("path '{}' is not a regular file", path.display()))),
    };
    refuse(&fs::metadata(path).map_err(&failed)?)?;
    // Non-blocking, in case a pipe has just taken its place.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(nonblocking).open(path).map_err(&failed)?;
    let found = file.metadata().map_err(&failed)?;
    refuse(&found)?;
    Ok((file, found))
}

/// Reads a file that has no size, and returns a copy of it with its size: the kernel makes up the content of files in `/proc` when they
/// are read. A copy may be read in parts, which belong together.
fn generated(file: File) -> io::Result<(File, u64)> {
    let mut content = Vec::new();
    (&file).take(MAX_GENERATED + 1).read_to_end(&mut content)?;
    if content.is_empty() {
        return Ok((file, 0));
    }
    let size = content.len() as u64;
    if size > MAX_GENERATED {
        let limit = MAX_GENERATED >> 20;
        return Err(io::Error::other(format!("it has no size, and more than {limit} MiB")));
    }
    let (name, flags) = ("generated", MemfdFlags::CLOEXEC);
    // Some hosts refuse files in memory that could be executed; older kernels do not know the difference.
    let copy = memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL).or_else(|_| memfd_create(name, flags))?;
    let mut copy = File::from(copy);
    copy.write_all(&content)?;
    copy.rewind()?;
    Ok((copy, size))
}

fn read_start(file: &mut File) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    file.take(content_type::SNIFF as u64).read_to_end(&mut start)?;
    file.rewind()?;
    Ok(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_without_a_size_has_a_limit() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(MAX_GENERATED).unwrap();
        let (_, size) = generated(file.try_clone().unwrap()).unwrap();
        assert_eq!(size, MAX_GENERATED);
        file.set_len(MAX_GENERATED + 1).unwrap();
        (&file).rewind().unwrap();
        assert!(generated(file).unwrap_err().to_string().contains("more than 16 MiB"));
    }
}
