//! Listeners and connections, with one task for each connection.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tower::ServiceExt;

use super::pipeline::{Entrance, Pipeline};

/// How long a connection may stay idle; longer than in any proxy in front, so that the agent never closes a connection that a
/// request is just coming on (contract: envd, section 1).
const IDLE_TIMEOUT: Duration = Duration::from_secs(640);
/// Pause after a connection could not be accepted, because descriptors or memory have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const BACKLOG: i32 = 1024;
/// Maximum number of header fields in a request: what clients send, and the metadata of a file, which has at most 409 entries.
const MAX_HEADERS: usize = 512;

pub(super) type Answer = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;
pub(super) type Respond = Arc<dyn Fn(Request<Body>) -> Answer + Send + Sync>;

/// Listens on `port` of all addresses, of both families if the system has both.
pub fn bind_public(port: u16) -> io::Result<TcpListener> {
    bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))
        .or_else(|_| bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))))
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Serves the public port.
pub async fn serve_tcp(listener: TcpListener, pipeline: Arc<Pipeline>) {
    accept_tcp(listener, respond(pipeline, Entrance::Public)).await;
}

/// Serves the control socket: processes outside of the sandbox, and nobody inside.
pub async fn serve_unix(listener: UnixListener, pipeline: Arc<Pipeline>) {
    let respond = respond(pipeline, Entrance::Control);
    loop {
        match listener.accept().await {
            Ok((stream, _)) if is_from_outside(&stream) => {
                drop(tokio::spawn(connection(stream, Arc::clone(&respond))));
            }
            Ok(_) => tracing::debug!("a process of the sandbox was refused the control socket"),
            Err(error) => pause(&error).await,
        }
    }
}

/// Whether the process that has connected is in no PID namespace that this process sees: such a process has the number 0. The kernel
/// has noted it at the connection, so nobody inside can pretend.
fn is_from_outside(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.pid() == Some(0))
}

pub(super) async fn accept_tcp(listener: TcpListener, respond: Respond) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Small frames must not wait for each other.
                let _ = stream.set_nodelay(true);
                drop(tokio::spawn(connection(stream, Arc::clone(&respond))));
            }
            Err(error) => pause(&error).await,
        }
    }
}

async fn pause(error: &io::Error) {
    tracing::warn!(%error, "failed to accept a connection");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

fn respond(pipeline: Arc<Pipeline>, entrance: Entrance) -> Respond {
    Arc::new(move |request| {
        let pipeline = Arc::clone(&pipeline);
        Box::pin(async move { pipeline.handle(entrance, request).await })
    })
}

/// Answers a request with a router.
pub(super) fn call(router: axum::Router, request: Request<Body>) -> Answer {
    Box::pin(async move {
        let Ok(response) = router.oneshot(request).await;
        response
    })
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin, respond: Respond) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = respond(request.map(Body::new));
        async move { Ok::<_, std::convert::Infallible>(answer.await) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = served.await {
        // An error means that the client has left.
        tracing::debug!(%error, "connection ended");
    }
}
