//! The dashboard: pages for browsers, on the server's own port below `/dashboard`.
//!
//! The pages are files that are part of the program ([`assets`]). Their scripts call the public API below `/dashboard/api`, and the agent and
//! the interpreter of a sandbox below `/dashboard/sandbox`. A session ([`sessions`]) stands for the credential that a user has logged in
//! with: the server puts it into the request and sends it on to the API or to the proxy, so that no script ever has it. `guard` refuses
//! requests of other origins, and limits what an answer may do in a browser.

mod assets;
mod forward;
mod guard;
mod login;
mod sessions;

use std::sync::Arc;

use axum::body::Body;
use axum::response::IntoResponse;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};

use crate::Error;
use crate::http::Requested;
use crate::proxy::host_route::Target;
use crate::sandboxes::Upload;
use crate::state::App;
pub(crate) use guard::harmless;
use sessions::Sessions;

/// Path of the dashboard.
const ROOT: &str = "/dashboard";

/// The dashboard of a server; clones share its sessions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dashboard {
    sessions: Arc<Sessions>,
}

/// The course that a request takes.
pub(crate) enum Course {
    /// The request is none of the dashboard's.
    Elsewhere(Request<Upload>),
    /// The answer.
    Answered(Response<Body>),
    /// A request to the API, with the credential of its session.
    Api(Request<Upload>),
    /// A request to a sandbox, with the tokens of the sandbox.
    Sandbox(Request<Upload>, Target),
}

impl Dashboard {
    /// Decides about a request that is for no sandbox.
    pub(crate) async fn take(&self, app: &App, request: Request<Upload>, requested: &Requested) -> Course {
        let path = request.uri().path();
        let Some(rest) = place(path) else { return Course::Elsewhere(request) };
        let is_page = rest != "session" && !rest.starts_with("api/") && !rest.starts_with("sandbox/");
        if is_page {
            return Course::Answered(match *request.method() {
                Method::GET | Method::HEAD => assets::answer(&request, rest),
                _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
            });
        }
        let course = match guard::admit(&request) {
            Ok(()) if rest == "session" => {
                let is_secure = requested.is_secure(app, request.headers());
                login::answer(app, &self.sessions, request, is_secure).await.map(Course::Answered)
            }
            Ok(()) => {
                let is_secure = requested.is_secure(app, request.headers());
                forward::prepare(app, &self.sessions, request, is_secure).await
            }
            Err(error) => Err(error),
        };
        course.unwrap_or_else(|error| Course::Answered(guard::sealed(error.into_response())))
    }

    /// The answer of the API or of a sandbox, limited in what it may do in a browser.
    pub(crate) fn seal<B>(answer: Response<B>) -> Response<B> {
        guard::sealed(answer)
    }
}

/// The part of a path below the dashboard; `None` for other paths. Links of the official command line lead to `/sbx/new` too, and its login to
/// `/docs/api/cli`, with the place of its own listener in the query; the page says what it needs in place of a login.
fn place(path: &str) -> Option<&str> {
    match path.strip_prefix(ROOT) {
        Some("") => Some(""),
        Some(rest) => rest.strip_prefix('/'),
        None if path == "/sbx/new" => Some(""),
        None if path == "/docs/api/cli" => Some("assets/cli.html"),
        None => None,
    }
}

/// Whether a browser asks for the first page of a server, which is the dashboard then.
pub(crate) fn is_front_page<B>(request: &Request<B>) -> bool {
    let accepts = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    request.uri().path() == "/"
        && request.method() == Method::GET
        && accepts.is_some_and(|accepts| accepts.contains("text/html"))
}

/// Sends a browser from the first page to the dashboard.
pub(crate) fn front_page() -> Response<Body> {
    let place = HeaderValue::from_static(ROOT);
    (StatusCode::FOUND, [(header::LOCATION, place)]).into_response()
}

/// The refusal of a request without a session.
fn not_logged_in() -> Error {
    Error::NoCredentials("a session of the dashboard: log in")
}
