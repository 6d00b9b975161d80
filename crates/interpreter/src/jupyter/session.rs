//! The conversation with a Jupyter kernel over its sockets, in a task of its own: requests in, frames out.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::connection::Connection;
use super::demux::Demux;
use super::dialect::Dialect;
use super::message::Message;
use super::zmtp::{Socket, SocketType, ZmtpError};
use crate::kernel::frame::Frame;
use crate::kernel::request::{Change, Request};
use crate::kernel::{Session, SessionEnds};

/// Pause before a socket is dialled again that nobody listens on yet.
const DIAL_AGAIN: Duration = Duration::from_millis(20);
/// How long the kernel may take to publish what belongs to its reply. After that it is asked again: it may not have seen the
/// subscription.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_millis(200);
/// How long the kernel may take to publish that it is idle, after its reply and after anything it still publishes.
const IDLE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long published messages are still read when one of the sockets of a kernel has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Dials a kernel that may still be starting, and waits until it answers and its published messages arrive. This may take
/// for ever.
///
/// # Errors
/// If something else listens on a port of the kernel.
pub async fn open(connection: Connection) -> Result<Session, ZmtpError> {
    let mut conversation = Conversation::dial(connection).await?;
    conversation.dialect = conversation.greet().await?;
    conversation.demux = Demux::of(conversation.dialect);
    let (session, ends) = Session::channels();
    tokio::spawn(async move {
        let SessionEnds { requests, frames } = ends;
        if let Err(error) = conversation.run(requests, &frames).await {
            tracing::debug!(%error, "lost a kernel");
            conversation.drain_published(&frames).await;
        }
    });
    Ok(session)
}

/// The sockets of a kernel and what is known of its state.
struct Conversation {
    shell: Socket,
    control: Socket,
    iopub: Socket,
    stdin: Socket,
    demux: Demux,
    dialect: Option<Dialect>,
    /// Variables to set or remove before the next code runs.
    changes: Vec<Change>,
    connection: Connection,
}

impl Conversation {
    async fn dial(connection: Connection) -> Result<Self, ZmtpError> {
        let (ports, identity) = (connection.ports, connection.identity.as_str());
        let (shell, control, iopub, stdin) = tokio::try_join!(
            dial(ports.shell, SocketType::Dealer, identity),
            dial(ports.control, SocketType::Dealer, identity),
            dial(ports.iopub, SocketType::Subscriber, ""),
            // A kernel asks the client that sent the code, so both sockets have the same identity.
            dial(ports.stdin, SocketType::Dealer, identity),
        )?;
        Ok(Self {
            shell,
            control,
            iopub,
            stdin,
            demux: Demux::default(),
            dialect: None,
            changes: Vec::new(),
            connection,
        })
    }

    /// Asks the kernel for its description until both the reply and the published status have come. Returns the dialect of the
    /// language that the kernel declares.
    async fn greet(&mut self) -> Result<Option<Dialect>, ZmtpError> {
        loop {
            let request = self.send(Channel::Shell, "kernel_info_request", &json!({})).await?;
            let mut heard = false;
            let reply = loop {
                tokio::select! {
                    message = self.shell.messages.next() => {
                        let message = self.read(message)?;
                        if let Some(reply) = message.filter(|message| message.parent == request) {
                            break reply;
                        }
                    }
                    message = self.iopub.messages.next() => {
                        heard |= self.read(message)?.is_some_and(|message| message.parent == request);
                    }
                }
            };
            let deadline = Instant::now() + SUBSCRIBE_TIMEOUT;
            while !heard {
                let Ok(message) = tokio::time::timeout_at(deadline, self.iopub.messages.next()).await else {
                    break;
                };
                heard = self.read(message)?.is_some_and(|message| message.parent == request);
            }
            if heard {
                let language = reply.content.get("language_info").and_then(|info| info.get("name")?.as_str());
                return Ok(language.and_then(Dialect::of));
            }
        }
    }

    /// Turns requests into messages and messages into frames, until either side is gone.
    async fn run(
        &mut self,
        mut requests: mpsc::Receiver<Request>,
        sender: &mpsc::Sender<Frame>,
    ) -> Result<(), ZmtpError> {
        let mut last_message = Instant::now();
        loop {
            let give_up = self.demux.is_nearly_done().then(|| last_message + IDLE_TIMEOUT);
            let frames = tokio::select! {
                request = requests.recv() => {
                    let Some(request) = request else { return Ok(()) };
                    self.handle(request).await?;
                    continue;
                }
                message = self.iopub.messages.next() => {
                    self.read(message)?.map(|message| self.demux.published(&message))
                }
                message = self.shell.messages.next() => {
                    self.read(message)?.map(|message| self.demux.replied(&message))
                }
                message = self.stdin.messages.next() => match self.read(message)? {
                    Some(message) => {
                        // Without a reply the kernel would wait for ever.
                        self.send(Channel::Stdin, "input_reply", &json!({ "value": "" })).await?;
                        Some(self.demux.asked(&message))
                    }
                    None => None,
                },
                message = self.control.messages.next() => {
                    self.read(message)?;
                    None
                }
                () = at(give_up) => Some(self.demux.stop_waiting()),
            };
            for frame in frames.unwrap_or_default() {
                if sender.send(frame).await.is_err() {
                    return Ok(());
                }
            }
            // Set once the frames are sent: more output may have arrived while a slow client held them up.
            last_message = Instant::now();
        }
    }

    /// Passes on what a kernel published before its end, which was seen on another socket.
    async fn drain_published(&mut self, sender: &mpsc::Sender<Frame>) {
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        while let Ok(Some(Ok(parts))) = tokio::time::timeout_at(deadline, self.iopub.messages.next()).await {
            let Ok(Some(message)) = self.read(Some(Ok(parts))) else { continue };
            for frame in self.demux.published(&message) {
                if sender.send(frame).await.is_err() {
                    return;
                }
            }
        }
    }

    async fn handle(&mut self, request: Request) -> io::Result<()> {
        match request {
            Request::Variables(changes) => self.changes.extend(changes),
            Request::Interrupt => {
                self.send(Channel::Control, "interrupt_request", &json!({})).await?;
            }
            Request::Execute(code) => {
                let changes = std::mem::take(&mut self.changes);
                if let Some(dialect) = self.dialect.filter(|_| !changes.is_empty()) {
                    self.execute(&dialect.code(&changes), Audience::Nobody).await?;
                }
                let request = self.execute(&code, Audience::Client).await?;
                self.demux.begin(request);
            }
            // The process was started with its environment and directory; only hosts of our own warm up.
            Request::Environment(_) | Request::Directory(_) | Request::WarmUp | Request::Reseed => {}
        }
        Ok(())
    }

    async fn execute(&mut self, code: &str, audience: Audience) -> io::Result<String> {
        let silent = matches!(audience, Audience::Nobody);
        let content = json!({
            "code": code, "silent": silent, "store_history": !silent, "user_expressions": {},
            "allow_stdin": false, "stop_on_error": false,
        });
        self.send(Channel::Shell, "execute_request", &content).await
    }

    /// Sends a request and returns its id.
    async fn send(&mut self, channel: Channel, kind: &str, content: &Value) -> io::Result<String> {
        let (id, parts) = self.connection.key.request(kind, content);
        let socket = match channel {
            Channel::Shell => &mut self.shell,
            Channel::Control => &mut self.control,
            Channel::Stdin => &mut self.stdin,
        };
        socket.send(&parts).await?;
        Ok(id)
    }

    /// Reads a message; `None` if it is malformed. Code in the kernel can write to these sockets too, and that is no reason to
    /// end the conversation.
    fn read(&self, message: Option<Result<Vec<Bytes>, ZmtpError>>) -> Result<Option<Message>, ZmtpError> {
        let parts = message.unwrap_or_else(|| Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()))?;
        let read = self.connection.key.read(&parts);
        Ok(read.inspect_err(|error| tracing::debug!(%error, "ignored a message of a kernel")).ok())
    }
}

/// A socket for requests.
#[derive(Clone, Copy)]
enum Channel {
    Shell,
    Control,
    Stdin,
}

/// The audience of an execution, which gets its output.
#[derive(Clone, Copy)]
enum Audience {
    Client,
    Nobody,
}

async fn dial(port: u16, kind: SocketType, identity: &str) -> Result<Socket, ZmtpError> {
    loop {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
            Ok(stream) => return Socket::open(stream, kind, identity).await,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                tokio::time::sleep(DIAL_AGAIN).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
