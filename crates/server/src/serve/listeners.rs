//! The sockets of a server: those for requests, and one that only sends browsers on to them.

use std::io;
use std::net::SocketAddr;

use http::uri::Authority;
use http::{HeaderValue, Request, Response, StatusCode, header};
use tokio::net::{TcpListener, TcpStream};

/// The sockets that a server listens on.
#[derive(Debug)]
pub struct Listeners {
    /// For requests; its address is the one that clients are given.
    pub main: TcpListener,
    /// For requests too, as for the other version of the Internet Protocol.
    pub second: Option<TcpListener>,
    /// For plain HTTP, which is sent on to the main socket with TLS.
    pub redirect: Option<TcpListener>,
}

/// The socket that a connection came through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    /// For requests.
    Main,
    /// For redirects.
    Redirect,
}

impl From<TcpListener> for Listeners {
    fn from(main: TcpListener) -> Self {
        Self { main, second: None, redirect: None }
    }
}

impl Listeners {
    /// The address that clients are given.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.main.local_addr()
    }

    pub(super) async fn accept(&self) -> io::Result<(TcpStream, SocketAddr, Door)> {
        let (accepted, door) = tokio::select! {
            accepted = self.main.accept() => (accepted, Door::Main),
            accepted = accept(self.second.as_ref()) => (accepted, Door::Main),
            accepted = accept(self.redirect.as_ref()) => (accepted, Door::Redirect),
        };
        accepted.map(|(stream, peer)| (stream, peer, door))
    }
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

/// Sends a client on to the same address with TLS, at `port`.
pub(super) fn redirect<B>(request: &Request<B>, host: Option<&str>, port: u16) -> Response<axum::body::Body> {
    let mut answer = Response::new(axum::body::Body::empty());
    match host.and_then(|host| secure(request, host, port)) {
        Some(location) => {
            *answer.status_mut() = StatusCode::PERMANENT_REDIRECT;
            answer.headers_mut().insert(header::LOCATION, location);
        }
        None => *answer.status_mut() = StatusCode::BAD_REQUEST,
    }
    answer
}

fn secure<B>(request: &Request<B>, host: &str, port: u16) -> Option<HeaderValue> {
    let authority: Authority = host.parse().ok()?;
    let host = authority.host();
    let port = if port == 443 { String::new() } else { format!(":{port}") };
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    HeaderValue::from_str(&format!("https://{host}{port}{path}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_keeps_host_and_path_and_nothing_else() {
        let location = |host: &str, path: &str, port| {
            let request = Request::get(path).body(()).unwrap();
            let answer = redirect(&request, Some(host), port);
            let location = answer.headers().get(header::LOCATION);
            location.map(|location| location.to_str().unwrap().to_owned())
        };
        let to = |text: &str| Some(text.to_owned());
        assert_eq!(location("a.example.com", "/x?y=%2F", 443), to("https://a.example.com/x?y=%2F"));
        assert_eq!(location("a.example.com:80", "/", 8443), to("https://a.example.com:8443/"));
        assert_eq!(location("[::1]:80", "/", 443), to("https://[::1]/"));
        assert_eq!(location("user@a.example.com", "/", 443), to("https://a.example.com/"));
        assert_eq!(location("a b", "/", 443), None);
    }
}
