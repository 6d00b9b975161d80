//! Reports the state of the server to systemd (`Type=notify`): a datagram to the socket that `NOTIFY_SOCKET` names. Without that variable,
//! nothing is sent.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// A state of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerState {
    /// Building templates and finding sandboxes, which may take minutes.
    Starting,
    /// Answering requests.
    Ready,
    /// Ending, as it was asked to.
    Stopping,
}

impl ServerState {
    fn text(self) -> &'static str {
        match self {
            Self::Starting => "STATUS=preparing templates and looking for sandboxes of an earlier run",
            Self::Ready => "READY=1\nSTATUS=serving",
            Self::Stopping => "STOPPING=1\nSTATUS=stopping",
        }
    }
}

/// Reports a state; a failure is logged. Sandboxes do not inherit the variable: their environment is their own.
pub fn notify(state: ServerState) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty()) else { return };
    if let Err(error) = send(&socket, state) {
        tracing::warn!(%error, ?socket, "failed to report the state of the server to systemd");
    }
}

fn send(socket: &OsStr, state: ServerState) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.text().as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    fn states_reach_sockets_of_both_kinds() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str(), ServerState::Ready).unwrap();
        assert_eq!(received(&socket).lines().next(), Some("READY=1"));

        let name = format!("sandcove-notify-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        send(OsStr::new(&format!("@{name}")), ServerState::Stopping).unwrap();
        assert!(received(&socket).starts_with("STOPPING=1\n"));
        assert!(send(OsStr::new("/does/not/exist"), ServerState::Starting).is_err());
    }
}
