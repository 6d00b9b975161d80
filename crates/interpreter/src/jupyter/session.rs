//! A conversation with a kernel over its sockets: requests in, frames out.

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
use super::dialect::{Change, Dialect};
use super::message::Message;
use super::zmtp::{Socket, SocketType, ZmtpError};
use crate::kernel::frame::{Frame, Request};

/// Pause before a socket is dialled again that nobody listens on yet.
const DIAL_AGAIN: Duration = Duration::from_millis(20);
/// How long what a kernel publishes may come after its reply before we ask again: it may not have seen our subscription.
const SUBSCRIBED: Duration = Duration::from_millis(200);
/// How long we wait for the word that a kernel is idle, after its reply and after anything it still publishes.
const IDLE_PATIENCE: Duration = Duration::from_secs(2);
/// How long we go on listening when one of the sockets of a kernel has ended.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// Frames we hold for an execution that cannot take them. Then we stop reading, and a kernel that goes on publishing drops
/// what does not fit: its sockets cannot make it wait.
const HELD_FRAMES: usize = 4096;

/// What is asked of a session.
#[derive(Debug)]
enum Order {
    Execute(String),
    Change(Change),
    Interrupt,
}

/// A running conversation. Dropping it ends it.
#[derive(Debug)]
pub struct Session {
    orders: mpsc::UnboundedSender<Order>,
    frames: mpsc::Receiver<Frame>,
}

impl Session {
    /// Dials a kernel that may still be starting, and waits until it answers and we hear what it publishes. This may take
    /// for ever.
    ///
    /// # Errors
    /// When something else listens where it should.
    pub async fn open(connection: Connection) -> Result<Self, ZmtpError> {
        let mut line = Line::dial(connection).await?;
        line.dialect = line.greet().await?;
        line.demux = Demux::of(line.dialect);
        let (orders, queue) = mpsc::unbounded_channel();
        let (sender, frames) = mpsc::channel(HELD_FRAMES);
        tokio::spawn(async move {
            if let Err(error) = line.talk(queue, &sender).await {
                tracing::debug!(%error, "lost a kernel");
                line.hear_last_words(&sender).await;
            }
        });
        Ok(Self { orders, frames })
    }

    /// The next frame; `None` when the kernel is lost. Cancellation loses nothing.
    pub async fn next(&mut self) -> Option<Frame> {
        self.frames.recv().await
    }

    /// Queues a request.
    pub fn request(&self, request: &Request<'_>) {
        let order = match request {
            Request::Execute(code) => Order::Execute((*code).to_owned()),
            Request::Set(name, value) => Order::Change(((*name).to_owned(), Some((*value).to_owned()))),
            Request::Unset(name) => Order::Change(((*name).to_owned(), None)),
            // The process was started with them; the last is for our own.
            Request::Environment(_) | Request::Directory(_) | Request::Rehearse => return,
        };
        // A session that has ended shows in `next`.
        let _ = self.orders.send(order);
    }

    /// Asks the kernel to stop what it does, by a message.
    pub fn interrupt(&self) {
        let _ = self.orders.send(Order::Interrupt);
    }
}

/// The sockets of a kernel and what is known of its state.
struct Line {
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

impl Line {
    async fn dial(connection: Connection) -> Result<Self, ZmtpError> {
        let (ports, identity) = (connection.ports, connection.identity.as_str());
        let (shell, control, iopub, stdin) = tokio::try_join!(
            dial(ports.shell, SocketType::Dealer, identity),
            dial(ports.control, SocketType::Dealer, identity),
            dial(ports.iopub, SocketType::Subscriber, ""),
            // A kernel asks whoever sent it the code, so both go by the same name.
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

    /// Asks who it is until both the answer and the news of it have come. Gives the language it says it speaks.
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
            let deadline = Instant::now() + SUBSCRIBED;
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

    /// Passes on until either side is gone.
    async fn talk(
        &mut self,
        mut orders: mpsc::UnboundedReceiver<Order>,
        sender: &mpsc::Sender<Frame>,
    ) -> Result<(), ZmtpError> {
        let mut news = Instant::now();
        loop {
            let give_up = self.demux.is_nearly_done().then(|| news + IDLE_PATIENCE);
            let frames = tokio::select! {
                order = orders.recv() => {
                    let Some(order) = order else { return Ok(()) };
                    self.obey(order).await?;
                    continue;
                }
                message = self.iopub.messages.next() => {
                    news = Instant::now();
                    self.read(message)?.map(|message| self.demux.published(&message))
                }
                message = self.shell.messages.next() => {
                    news = Instant::now();
                    self.read(message)?.map(|message| self.demux.replied(&message))
                }
                message = self.stdin.messages.next() => match self.read(message)? {
                    Some(message) => {
                        // Or it would wait for ever.
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
        }
    }

    /// Passes on what a kernel published before its end, which was seen on another socket.
    async fn hear_last_words(&mut self, sender: &mpsc::Sender<Frame>) {
        let deadline = Instant::now() + LAST_WORDS;
        while let Ok(Some(Ok(parts))) = tokio::time::timeout_at(deadline, self.iopub.messages.next()).await {
            let Ok(Some(message)) = self.read(Some(Ok(parts))) else { continue };
            for frame in self.demux.published(&message) {
                if sender.send(frame).await.is_err() {
                    return;
                }
            }
        }
    }

    async fn obey(&mut self, order: Order) -> io::Result<()> {
        match order {
            Order::Change(change) => self.changes.push(change),
            Order::Interrupt => {
                self.send(Channel::Control, "interrupt_request", &json!({})).await?;
            }
            Order::Execute(code) => {
                let changes = std::mem::take(&mut self.changes);
                if let Some(dialect) = self.dialect.filter(|_| !changes.is_empty()) {
                    self.execute(&dialect.code(&changes), Audience::Nobody).await?;
                }
                let request = self.execute(&code, Audience::Client).await?;
                self.demux.begin(request);
            }
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

    /// Sends a request and gives its id.
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

    /// A message, unless it makes no sense: code in the kernel can write to these sockets too, and that is no reason to
    /// end the conversation.
    fn read(&self, message: Option<Result<Vec<Bytes>, ZmtpError>>) -> Result<Option<Message>, ZmtpError> {
        let parts = message.unwrap_or_else(|| Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()))?;
        let read = self.connection.key.read(&parts);
        Ok(read.inspect_err(|error| tracing::debug!(%error, "passed over a message of a kernel")).ok())
    }
}

/// A socket that takes requests.
#[derive(Clone, Copy)]
enum Channel {
    Shell,
    Control,
    Stdin,
}

/// Who hears of an execution.
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
