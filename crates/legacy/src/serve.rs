//! The services of the first generation, as a client's request reaches them.

use http::{Request, Response};

use crate::answer::{Body, RequestBody};
use crate::guest::Guest;
use crate::{daemon, kernels};

/// A service of the first generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// The daemon: processes, terminals and files.
    Daemon,
    /// The kernel gateway, which runs code.
    Kernels,
}

impl Service {
    /// The service that clients look for on `port`.
    pub fn at(port: u16) -> Option<Self> {
        match port {
            49982 => Some(Self::Daemon),
            8888 => Some(Self::Kernels),
            _ => None,
        }
    }
}

/// Answers a request to a service. `held` is kept for as long as the exchange needs the sandbox: a websocket outlives its answer.
pub async fn serve<B>(
    service: Service,
    request: Request<B>,
    guest: Guest,
    held: impl Send + 'static,
) -> Response<Body>
where
    B: RequestBody,
{
    match service {
        Service::Daemon => daemon::serve(request, guest, held).await,
        Service::Kernels => kernels::serve(request, guest, held).await,
    }
}
