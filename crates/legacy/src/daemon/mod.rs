//! The daemon of the first generation, port 49982.

mod files;
mod ports;
mod programs;
mod session;
mod transfer;
mod watch;

use http::{Request, Response, StatusCode};

use crate::answer::{self, Body, RequestBody, open_to_browsers};
use crate::guest::Guest;
use crate::socket;

/// Answers a request to the daemon.
pub(crate) async fn serve<B>(
    mut request: Request<B>,
    guest: Guest,
    held: impl Send + 'static,
) -> Response<Body>
where
    B: RequestBody,
{
    match (request.method().as_str(), request.uri().path()) {
        (_, "/ws") => {
            let (answer, upgrade) = match socket::accept(&mut request) {
                Ok(accepted) => accepted,
                Err(refused) => return refused.text(),
            };
            let Some(place) = guest.socket() else {
                return answer::text(StatusCode::SERVICE_UNAVAILABLE, "the sandbox has too many websockets");
            };
            tokio::spawn(async move {
                let _held = (held, place);
                session::run(upgrade, guest).await;
            });
            answer
        }
        ("GET", "/ping") => open_to_browsers(answer::text(StatusCode::OK, "pong")),
        ("GET", "/file") => open_to_browsers(transfer::download(&request, &guest).await),
        ("POST" | "PUT", "/file") => open_to_browsers(transfer::upload(request, &guest).await),
        ("OPTIONS", _) => open_to_browsers(answer::empty(StatusCode::NO_CONTENT)),
        (_, "/ping" | "/file") => answer::text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed"),
        _ => answer::text(StatusCode::NOT_FOUND, "404 page not found"),
    }
}
