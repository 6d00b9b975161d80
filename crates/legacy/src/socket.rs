//! Websockets of clients. The library reads and writes the heads of frames; contents are read here, so that a large message is in
//! memory only while there is a permission for it, and not a moment longer.

use std::io::{self, Cursor};

use bytes::{Buf, BufMut, BytesMut};
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::{Instant, timeout_at};
use tungstenite::handshake::derive_accept_key;
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use crate::answer::{self, Body, Refused};
use crate::guest::{Guest, LargeMessage, SMALL_MESSAGE};
use crate::outbox::{Content, Gone, Outbox, Outgoing};

/// Bytes read at once where the length is not known.
const READ_AHEAD: usize = 4096;
/// Maximum size of a ping, bytes (RFC 6455, section 5.5).
const MAX_CONTROL: u64 = 125;

const NORMAL: u16 = 1000;
const PROTOCOL_ERROR: u16 = 1002;
const NOT_TEXT: u16 = 1003;
const INVALID_TEXT: u16 = 1007;
const TOO_SLOW: u16 = 1008;
const TOO_LARGE: u16 = 1009;

type Io = TokioIo<Upgraded>;

/// A message of a client.
pub(crate) struct Message {
    pub(crate) text: String,
    /// The permission to keep it in memory, if it is large.
    pub(crate) held: Option<LargeMessage>,
}

/// Why a connection ends.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The client closed it, or broke the protocol, and is answered with this code.
    Close(u16),
    /// The connection broke.
    Broken,
}

impl From<io::Error> for Ended {
    fn from(_: io::Error) -> Self {
        Self::Broken
    }
}

impl From<Gone> for Ended {
    fn from(Gone: Gone) -> Self {
        Self::Broken
    }
}

/// The receiver of the messages of a client.
pub(crate) trait Receive: Send {
    /// Maximum size of a message, bytes.
    fn max_message(&self) -> usize;

    /// Takes a message; the next one comes when this is done.
    fn receive(&mut self, message: Message) -> impl Future<Output = Result<(), Gone>> + Send;
}

/// Whether a request asks for a websocket.
pub(crate) fn is_wanted(headers: &HeaderMap) -> bool {
    headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Accepts the websocket that a request asks for.
pub(crate) fn accept<B>(request: &mut Request<B>) -> Result<(Response<Body>, OnUpgrade), Refused> {
    let headers = request.headers();
    let refuse = |text: &str| Refused::new(StatusCode::BAD_REQUEST, text);
    let is_asked = is_wanted(headers) && request.method() == Method::GET;
    let key = headers.get(SEC_WEBSOCKET_KEY).filter(|_| is_asked);
    let key = key.ok_or_else(|| refuse("a websocket is expected here"))?;
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return Err(refuse("only version 13 of websockets is supported"));
    }
    let derived = HeaderValue::try_from(derive_accept_key(key.as_bytes()));
    let derived = derived.map_err(|_| refuse("invalid Sec-WebSocket-Key"))?;
    let mut answer = answer::empty(StatusCode::SWITCHING_PROTOCOLS);
    answer.headers_mut().insert(SEC_WEBSOCKET_ACCEPT, derived);
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    answer.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
    Ok((answer, hyper::upgrade::on(request)))
}

/// Serves a websocket until the client or the sandbox ends it: messages go to `receiver` one after the other, and what is put into the
/// outbox goes to the client.
pub(crate) async fn serve(
    upgrade: OnUpgrade,
    guest: &Guest,
    outbox: Outbox,
    outgoing: Outgoing,
    receiver: impl Receive,
) {
    let Ok(upgraded) = upgrade.await else { return };
    let (reader, writer) = tokio::io::split(TokioIo::new(upgraded));
    let exchange = async {
        tokio::select! {
            () = read_all(reader, guest, outbox, receiver) => {}
            () = write_all(writer, outgoing) => {}
        }
    };
    guest.ended().run_until_cancelled(exchange).await;
}

/// Reads messages until the end of the connection, and answers that. Only the writer's end ends this then.
async fn read_all(stream: ReadHalf<Io>, guest: &Guest, outbox: Outbox, mut receiver: impl Receive) {
    let mut reader = Reader::new(stream);
    let ended = loop {
        match reader.message(guest, &outbox, receiver.max_message()).await {
            Ok(message) => {
                if receiver.receive(message).await.is_err() {
                    return;
                }
            }
            Err(ended) => break ended,
        }
    };
    if let Ended::Close(code) = ended {
        tracing::debug!(code, "websocket closed");
        if outbox.send(Content::Close(code)).await.is_ok() {
            // The writer ends after the last message.
            std::future::pending::<()>().await;
        }
    }
}

/// Reads the frames of a client.
struct Reader<S> {
    stream: S,
    buffer: BytesMut,
}

impl<S: AsyncRead + Unpin> Reader<S> {
    fn new(stream: S) -> Self {
        Self { stream, buffer: BytesMut::new() }
    }

    /// The next message. Pings are answered.
    async fn message(&mut self, guest: &Guest, outbox: &Outbox, max: usize) -> Result<Message, Ended> {
        let mut message = Vec::new();
        let mut held: Option<LargeMessage> = None;
        let mut is_continued = false;
        loop {
            let deadline = held.as_ref().map(|held| held.deadline);
            let (header, length) = within(deadline, self.header()).await?;
            if header.rsv1 || header.rsv2 || header.rsv3 {
                return Err(Ended::Close(PROTOCOL_ERROR));
            }
            let mask = header.mask.ok_or(Ended::Close(PROTOCOL_ERROR))?;
            match header.opcode {
                OpCode::Control(control) => {
                    if !header.is_final || length > MAX_CONTROL {
                        return Err(Ended::Close(PROTOCOL_ERROR));
                    }
                    let mut content = Vec::new();
                    within(deadline, self.content(&mut content, length as usize, mask)).await?;
                    match control {
                        Control::Ping => outbox.send(Content::Pong(content)).await?,
                        Control::Pong => {}
                        Control::Close => return Err(Ended::Close(NORMAL)),
                        Control::Reserved(_) => return Err(Ended::Close(PROTOCOL_ERROR)),
                    }
                    continue;
                }
                OpCode::Data(Data::Text) if !is_continued => {}
                OpCode::Data(Data::Continue) if is_continued => {}
                OpCode::Data(Data::Binary) => return Err(Ended::Close(NOT_TEXT)),
                OpCode::Data(_) => return Err(Ended::Close(PROTOCOL_ERROR)),
            }
            let size = usize::try_from(length).ok().and_then(|length| message.len().checked_add(length));
            let Some(size) = size.filter(|size| *size <= max) else {
                return Err(Ended::Close(TOO_LARGE));
            };
            if size > SMALL_MESSAGE && held.is_none() {
                held = Some(guest.large_message().await);
            }
            let deadline = held.as_ref().map(|held| held.deadline);
            within(deadline, self.content(&mut message, length as usize, mask)).await?;
            is_continued = !header.is_final;
            if header.is_final {
                let text = String::from_utf8(message).map_err(|_| Ended::Close(INVALID_TEXT))?;
                return Ok(Message { text, held });
            }
        }
    }

    async fn header(&mut self) -> Result<(FrameHeader, u64), Ended> {
        loop {
            let mut cursor = Cursor::new(&self.buffer[..]);
            let parsed = FrameHeader::parse(&mut cursor).map_err(|_| Ended::Close(PROTOCOL_ERROR))?;
            let length = usize::try_from(cursor.position()).map_err(|_| Ended::Broken)?;
            if let Some(parsed) = parsed {
                self.buffer.advance(length);
                return Ok(parsed);
            }
            self.buffer.reserve(READ_AHEAD);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(Ended::Broken);
            }
        }
    }

    /// Adds the content of a frame to `message`.
    async fn content(&mut self, message: &mut Vec<u8>, length: usize, mask: [u8; 4]) -> Result<(), Ended> {
        let start = message.len();
        message.reserve_exact(length);
        let ahead = self.buffer.len().min(length);
        message.extend_from_slice(&self.buffer[..ahead]);
        self.buffer.advance(ahead);
        while message.len() < start + length {
            let rest = start + length - message.len();
            if self.stream.read_buf(&mut (&mut *message).limit(rest)).await? == 0 {
                return Err(Ended::Broken);
            }
        }
        for (byte, mask) in message[start..].iter_mut().zip(mask.iter().cycle()) {
            *byte ^= mask;
        }
        Ok(())
    }
}

/// Waits for part of a message, until the deadline if there is one.
async fn within<T>(
    deadline: Option<Instant>,
    part: impl Future<Output = Result<T, Ended>>,
) -> Result<T, Ended> {
    match deadline {
        None => part.await,
        Some(deadline) => timeout_at(deadline, part).await.unwrap_or(Err(Ended::Close(TOO_SLOW))),
    }
}

/// Writes what is queued until the connection ends.
async fn write_all(mut stream: WriteHalf<Io>, mut outgoing: Outgoing) {
    while let Some(first) = outgoing.next().await {
        let (mut frames, mut held) = (Vec::new(), Vec::new());
        let (mut next, mut is_last) = (Some(first), false);
        // What is queued by now goes out together.
        while let Some(queued) = next {
            is_last = matches!(queued.content, Content::Close(_));
            if add_frame(&mut frames, &queued.content).is_err() {
                return;
            }
            let is_large = queued.held.large.is_some();
            held.push(queued.held);
            next =
                if is_last || is_large || frames.len() > SMALL_MESSAGE { None } else { outgoing.next_now() };
        }
        let write = async {
            stream.write_all(&frames).await?;
            stream.flush().await
        };
        let written = match held.last().and_then(|held| held.large.as_ref()) {
            Some(large) => timeout_at(large.deadline, write).await.unwrap_or_else(|late| Err(late.into())),
            None => write.await,
        };
        if written.is_err() {
            return;
        }
        if is_last {
            // Errors concern nobody any more.
            let _ = stream.shutdown().await;
            return;
        }
    }
}

fn add_frame(frames: &mut Vec<u8>, content: &Content) -> io::Result<()> {
    let code;
    let (opcode, payload) = match content {
        Content::Text(text) => (OpCode::Data(Data::Text), text.as_bytes()),
        Content::Pong(bytes) => (OpCode::Control(Control::Pong), bytes.as_slice()),
        Content::Close(number) => {
            code = number.to_be_bytes();
            (OpCode::Control(Control::Close), &code[..])
        }
    };
    let header = FrameHeader { is_final: true, opcode, ..FrameHeader::default() };
    header.format(payload.len() as u64, frames).map_err(io::Error::other)?;
    frames.extend_from_slice(payload);
    Ok(())
}
