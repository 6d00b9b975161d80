//! Clients of the first generation: requests to their services, where the sandbox has none of its own on the port, go to the adapter.

use std::sync::Arc;

use http::{Request, Response};
use sandcove_client::Sandbox;
use sandcove_legacy::{Guest, Permit, Service};
use sandcove_wire::boot::AGENT_PORT;

use super::Refusal;
use super::access::RequestHead;
use super::body::{Answer, UntilEnded};
use crate::domain::sandbox::Details;
use crate::sandboxes::{ConnectionPermit, LiveSession, Upload};
use crate::state::App;

/// The service of the adapter that the request is for, if the sandbox was created by a client of the first generation, which has no
/// token, and nothing in the sandbox listens on the port.
pub(super) async fn service(
    app: &App,
    head: &RequestHead<'_>,
    details: &Details,
    live: &LiveSession,
    port: u16,
) -> Result<Option<Service>, Refusal> {
    let Some(service) = Service::at(port) else { return Ok(None) };
    let is_adapted = app.config().legacy && details.legacy && !details.token_policy.is_required();
    if !is_adapted || live.handle.0.connect(port).await.is_ok() {
        return Ok(None);
    }
    if service == Service::Kernels {
        head.check_interpreter_token(app.config().interpreter_token, details)?;
    }
    Ok(Some(service))
}

/// Answers the request, over connections into the sandbox.
pub(super) async fn serve(
    service: Service,
    request: Request<Upload>,
    live: Arc<LiveSession>,
    permit: ConnectionPermit,
) -> Response<Answer> {
    let handle = live.handle.0.clone();
    let sandbox = Sandbox::over(handle.id().clone(), move |port| {
        let handle = handle.clone();
        async move { handle.connect(port).await }
    });
    let (quota, ended) = (live.legacy.clone(), live.ended.clone());
    let end = ended.clone();
    let permits = move || live.budget.take(AGENT_PORT).ok().map(|permit| Box::new(permit) as Permit);
    let guest = Guest::new(sandbox, permits, quota, ended);
    let answer = sandcove_legacy::serve(service, request, guest, permit).await;
    // A file is sent as it is read, and not in memory.
    answer.map(|body| Answer::Stream(axum::body::Body::new(UntilEnded::new(body, &end))))
}
