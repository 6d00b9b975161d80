//! An RPC from request to answer, in its three shapes.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, BodyDataStream};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::time::{Instant, Sleep};

use super::codec::{Codec, Message, Shape};
use super::envelope::{self, Decoder, Encoding, MAX_MESSAGE};
use super::headers;
use crate::error::{Code, Error, Result};
use crate::state::RequestContext;

/// Limit on the messages that are sent together when they are ready together, in bytes.
const BATCH: usize = 128 << 10;

/// Answers an RPC with one message each way.
pub(super) async fn unary<Req, Res, F, Fut>(
    context: RequestContext,
    request: Request<Body>,
    handler: F,
) -> Response<Body>
where
    Req: Message,
    Res: Message,
    F: FnOnce(RequestContext, Req) -> Fut,
    Fut: Future<Output = Result<Res>>,
{
    let Some(codec) = codec(Shape::Unary, request.headers()) else { return unsupported(Shape::Unary) };
    let answer = async {
        let context = with_protocol(context, request.headers())?;
        let deadline = context.deadline;
        within(deadline, async {
            let encoding =
                Encoding::from_header(headers::text(request.headers(), CONTENT_ENCODING.as_str()))?;
            let body = encoding.decode(collect(request.into_body()).await?)?;
            let message = handler(context, codec.decode(body)?).await?;
            let mut out = Vec::new();
            codec.encode(&message, &mut out)?;
            Ok(out)
        })
        .await
    };
    match answer.await {
        Ok(body) => {
            let mut response = Response::new(Body::from(body));
            response
                .headers_mut()
                .insert(CONTENT_TYPE, HeaderValue::from_static(codec.content_type(Shape::Unary)));
            response
        }
        Err(error) => error_response(&error),
    }
}

/// Answers an RPC with one request and a stream of answers.
pub(super) async fn server_stream<Req, Res, S, F, Fut>(
    context: RequestContext,
    request: Request<Body>,
    handler: F,
) -> Response<Body>
where
    Req: Message,
    Res: Message,
    S: Stream<Item = Result<Res>> + Send + 'static,
    F: FnOnce(RequestContext, Req) -> Fut,
    Fut: Future<Output = Result<S>>,
{
    let Some(codec) = codec(Shape::Stream, request.headers()) else { return unsupported(Shape::Stream) };
    let started = async {
        let context = with_protocol(context, request.headers())?;
        let deadline = context.deadline;
        let messages = within(deadline, async {
            let mut requests = Requests::<Req>::new(codec, request)?;
            let message = requests.next().await?;
            let message = message.ok_or_else(|| Error::unimplemented("the request holds no message"))?;
            // To the end of the body, also because a connection whose request is not read to its end cannot be reused.
            if requests.next().await?.is_some() {
                return Err(Error::unimplemented("the request holds more than one message"));
            }
            handler(context, message).await
        });
        Ok((messages.await?, deadline))
    };
    match started.await {
        Ok((messages, deadline)) => {
            let deadline = deadline.map(|at| Box::pin(tokio::time::sleep_until(at)));
            stream_response(
                codec,
                Body::from_stream(Answers { codec, messages: Some(Box::pin(messages)), deadline }),
            )
        }
        Err(error) => stream_response(codec, Body::from(end(Some(&error)))),
    }
}

/// Answers an RPC with a stream of requests and one answer.
pub(super) async fn client_stream<Req, Res, F, Fut>(
    context: RequestContext,
    request: Request<Body>,
    handler: F,
) -> Response<Body>
where
    Req: Message,
    Res: Message,
    F: FnOnce(RequestContext, Requests<Req>) -> Fut,
    Fut: Future<Output = Result<Res>>,
{
    let Some(codec) = codec(Shape::Stream, request.headers()) else { return unsupported(Shape::Stream) };
    let answer = async {
        let context = with_protocol(context, request.headers())?;
        let deadline = context.deadline;
        let message =
            within(deadline, async { handler(context, Requests::new(codec, request)?).await }).await?;
        let mut out = Vec::new();
        envelope::write_message(codec, &message, &mut out)?;
        envelope::write_end(None, &mut out);
        Ok(out)
    };
    let body = answer.await.unwrap_or_else(|error| end(Some(&error)));
    stream_response(codec, Body::from(body))
}

/// The stream of the messages of a request.
pub struct Requests<M> {
    codec: Codec,
    body: BodyDataStream,
    decoder: Decoder,
    message: PhantomData<fn() -> M>,
}

impl<M: Message> Requests<M> {
    fn new(codec: Codec, request: Request<Body>) -> Result<Self> {
        let encoding = Encoding::from_header(headers::text(request.headers(), "connect-content-encoding"))?;
        Ok(Self {
            codec,
            body: request.into_body().into_data_stream(),
            decoder: Decoder::new(encoding),
            message: PhantomData,
        })
    }

    /// Waits for the next message; `None` when the client has sent all.
    pub async fn next(&mut self) -> Result<Option<M>> {
        loop {
            if let Some(payload) = self.decoder.next_payload()? {
                return self.codec.decode(payload).map(Some);
            }
            match self.body.next().await {
                None => return self.decoder.finish().map(|()| None),
                Some(Ok(data)) => self.decoder.push(&data),
                Some(Err(error)) => return Err(broken(&error)),
            }
        }
    }
}

/// Body of a streamed answer: enveloped messages, then the end-of-stream envelope.
struct Answers<S> {
    codec: Codec,
    /// Stream of messages; absent once the end is written.
    messages: Option<Pin<Box<S>>>,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S: Stream<Item = Result<Res>>, Res: Message> Stream for Answers<S> {
    type Item = std::result::Result<Bytes, std::convert::Infallible>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let mut out = Vec::new();
        let mut over = this.deadline.as_mut().is_some_and(|d| d.as_mut().poll(cx).is_ready());
        while !over && out.len() < BATCH {
            let Some(messages) = &mut this.messages else { return Poll::Ready(None) };
            let ended = match messages.as_mut().poll_next(cx) {
                Poll::Pending if out.is_empty() => return Poll::Pending,
                Poll::Pending => break,
                Poll::Ready(Some(message)) => {
                    // Checked again: a message that the deadline itself made ready must not precede it.
                    over = this.deadline.as_mut().is_some_and(|d| d.deadline() <= Instant::now());
                    if over {
                        break;
                    }
                    message
                        .and_then(|message| envelope::write_message(this.codec, &message, &mut out))
                        .err()
                        .map(Some)
                }
                Poll::Ready(None) => Some(None),
            };
            if let Some(error) = ended {
                this.messages = None;
                envelope::write_end(error.as_ref(), &mut out);
                break;
            }
        }
        if over {
            if this.messages.take().is_none() {
                return Poll::Ready(None);
            }
            envelope::write_end(Some(&Error::deadline_exceeded()), &mut out);
        }
        Poll::Ready(Some(Ok(out.into())))
    }
}

/// Makes a unary error answer; also used by the request pipeline for an unknown user.
pub fn error_response(error: &Error) -> Response<Body> {
    let body = serde_json::to_vec(error).unwrap_or_default();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = error.code.status();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Makes an in-band error answer to a stream whose request had `content_type`.
pub fn stream_error_response(content_type: &str, error: &Error) -> Response<Body> {
    match Codec::from_content_type(Shape::Stream, content_type) {
        Some(codec) => stream_response(codec, Body::from(end(Some(error)))),
        None => unsupported(Shape::Stream),
    }
}

fn codec(shape: Shape, headers: &HeaderMap) -> Option<Codec> {
    Codec::from_content_type(shape, headers::text(headers, CONTENT_TYPE.as_str())?)
}

fn unsupported(shape: Shape) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    response.headers_mut().insert("accept-post", HeaderValue::from_static(shape.accept_post()));
    response
}

fn stream_response(codec: Codec, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(codec.content_type(Shape::Stream)));
    response
}

fn end(error: Option<&Error>) -> Vec<u8> {
    let mut out = Vec::new();
    envelope::write_end(error, &mut out);
    out
}

/// Adds the settings in the protocol's own headers to `context`.
fn with_protocol(mut context: RequestContext, headers: &HeaderMap) -> Result<RequestContext> {
    let timeout = headers::timeout(headers::text(headers, "connect-timeout-ms"))?;
    context.deadline = timeout.map(|t| Instant::now() + t);
    context.keepalive = headers::keepalive(headers::text(headers, "keepalive-ping-interval"));
    Ok(context)
}

async fn within<T>(deadline: Option<Instant>, work: impl Future<Output = Result<T>>) -> Result<T> {
    match deadline {
        None => work.await,
        Some(at) if at <= Instant::now() => Err(Error::deadline_exceeded()),
        Some(at) => {
            tokio::time::timeout_at(at, work).await.unwrap_or_else(|_| Err(Error::deadline_exceeded()))
        }
    }
}

async fn collect(mut body: Body) -> Result<Bytes> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        if let Some(data) = frame.map_err(|e| broken(&e))?.data_ref() {
            if whole.len() + data.len() > MAX_MESSAGE {
                return Err(Error::resource_exhausted(format!(
                    "the message is longer than the limit of {MAX_MESSAGE}"
                )));
            }
            whole.extend_from_slice(data);
        }
    }
    Ok(whole.freeze())
}

fn broken(error: &axum::Error) -> Error {
    Error::new(Code::Canceled, format!("failed to read the request: {error}"))
}
