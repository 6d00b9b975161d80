//! Files over HTTP: `/file`.

use std::io;

use futures_util::TryStreamExt;
use http::header::CONTENT_TYPE;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyDataStream, BodyExt};
use multer::Multipart;
use tokio_util::io::StreamReader;

use super::files::store;
use crate::answer::{self, Body, BoxError, Refused, RequestBody};
use crate::guest::Guest;
use crate::rpc::absolute;

/// Mode of a file that an upload creates: programs of the default user change what root has stored.
const MODE: &str = "0666";
/// Maximum length of a path, bytes, as in the kernel.
const MAX_PATH: usize = 4096;

/// Sends a file.
pub(super) async fn download<B>(request: &Request<B>, guest: &Guest) -> Response<Body> {
    let Some(path) = path_of(request) else {
        return answer::text(StatusCode::BAD_REQUEST, "the query has no `path`");
    };
    match guest.sandbox().open_file(&absolute(&path), Some("root")).await {
        Ok(opened) => {
            let (parts, body) = opened.into_parts();
            let mut answer = Response::new(body.map_err(Into::into).boxed_unsync());
            for name in
                [http::header::CONTENT_TYPE, http::header::CONTENT_LENGTH, http::header::CONTENT_DISPOSITION]
            {
                if let Some(value) = parts.headers.get(&name) {
                    answer.headers_mut().insert(name, value.clone());
                }
            }
            answer
        }
        Err(error) => Refused::from(&error).text(),
    }
}

/// Stores a file.
pub(super) async fn upload<B>(request: Request<B>, guest: &Guest) -> Response<Body>
where
    B: RequestBody,
{
    let path = path_of(&request);
    match receive(request, path, guest).await {
        Ok(stored) => answer::text(StatusCode::OK, stored),
        Err(refused) => refused.text(),
    }
}

/// Stores the file of a form, and returns its path.
async fn receive<B>(request: Request<B>, mut path: Option<String>, guest: &Guest) -> Result<String, Refused>
where
    B: RequestBody,
{
    let bad = |text: String| Refused::new(StatusCode::BAD_REQUEST, text);
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let boundary = multer::parse_boundary(kind).map_err(|error| bad(error.to_string()))?;
    let stream = BodyDataStream::new(request.into_body()).map_err(Into::<BoxError>::into);
    let mut form = Multipart::new(stream, boundary);
    while let Some(mut field) = form.next_field().await.map_err(|error| bad(error.to_string()))? {
        match field.name() {
            Some("path") => {
                let mut text = Vec::new();
                while let Some(chunk) = field.chunk().await.map_err(|error| bad(error.to_string()))? {
                    text.extend_from_slice(&chunk);
                    if text.len() > MAX_PATH {
                        return Err(bad(format!("the path is longer than {MAX_PATH} bytes")));
                    }
                }
                path = Some(String::from_utf8_lossy(&text).into_owned());
            }
            Some("file") => {
                let name = field.file_name().and_then(|name| name.rsplit('/').next()).unwrap_or_default();
                let path = match path {
                    Some(path) => path,
                    None if matches!(name, "" | "." | "..") => {
                        return Err(bad("the file has no name, and no `path` says where to store it".into()));
                    }
                    None => name.to_owned(),
                };
                let path = absolute(&path);
                let content = StreamReader::new(Box::pin(field.map_err(io::Error::other)));
                let stored = store(guest.sandbox(), &path, content, None, MODE).await;
                return stored.map(|()| path).map_err(|error| Refused::from(&error));
            }
            _ => {}
        }
    }
    Err(bad("the form has no `file`".into()))
}

/// The path of the query.
fn path_of<B>(request: &Request<B>) -> Option<String> {
    let query = request.uri().query()?;
    let found = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "path");
    found.map(|(_, path)| path.into_owned()).filter(|path| !path.is_empty())
}
