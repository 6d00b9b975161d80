//! Requests to the agent of a running sandbox, over the control channel.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use sandcove_wire::boot::{CONTROL_NAME, Renewal, Settings};
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::net::Dialer;

/// Timeout for the agent's answer.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Beginning of the answer to a request that was done.
const DONE: &[u8] = b"HTTP/1.1 204 ";

/// Has the agent in `namespace` make `certificates` trusted.
pub(super) async fn trust(dialer: &Dialer, namespace: &OwnedFd, certificates: String) -> io::Result<()> {
    let settings = Settings { ca_bundle: Some(certificates), ..Settings::default() };
    post(dialer, namespace, "/init", &settings).await
}

/// Gives the restored agent in `namespace` the identity of another sandbox than the one that its memory is from.
pub(super) async fn renew(dialer: &Dialer, namespace: &OwnedFd, renewal: &Renewal) -> io::Result<()> {
    post(dialer, namespace, "/renew", renewal).await
}

async fn post(dialer: &Dialer, namespace: &OwnedFd, path: &str, body: &impl Serialize) -> io::Result<()> {
    let body = serde_json::to_string(body)?;
    let connect = || {
        // It never waits: the thread is for all sandboxes, and processes in this one can fill the queue of the listener.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(CONTROL_NAME.as_bytes())?)?;
        Ok(socket)
    };
    let mut stream = UnixStream::from_std(dialer.create(namespace, connect).await?.into())?;
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: agent\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    let asked = async {
        stream.write_all(request.as_bytes()).await?;
        // No more of an answer is read than says whether it was done: the sandbox may have written it.
        let mut status = [0; DONE.len()];
        stream.read_exact(&mut status).await?;
        if status == DONE { Ok(()) } else { Err(io::Error::other("the agent refused")) }
    };
    timeout(TIMEOUT, asked).await?
}
