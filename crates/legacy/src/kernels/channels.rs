//! The channels of a kernel: cells come over a websocket, and what they give goes back over it.

use std::sync::Arc;

use http::{Request, Response, StatusCode};
use sandcove_wire::interpreter::ExecutionRequest;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::message::{Cell, Reading, Step, read};
use super::{find, wants_channels};
use crate::answer::{Body, Refused};
use crate::guest::{Guest, LargeMessage, SMALL_MESSAGE};
use crate::outbox::{Content, Gone, Outbox};
use crate::socket::{self, Message, Receive};

/// Cells of one connection that wait for those before them.
const MAX_CELLS: usize = 64;

/// Code of one connection that waits, bytes.
const MAX_CODE: usize = 2 << 20;

/// Maximum length of an event of the code interpreter, bytes.
const MAX_EVENT: usize = 8 << 20;

/// A cell to run.
struct Queued {
    cell: Cell,
    code: String,
    room: OwnedSemaphorePermit,
}

/// Opens the channels of a kernel, if there is one with this id.
pub(super) async fn open<B>(
    request: &mut Request<B>,
    id: &str,
    guest: Guest,
    held: impl Send + 'static,
) -> Response<Body> {
    if !wants_channels(request) {
        return Refused::new(StatusCode::BAD_REQUEST, "a websocket is expected here").json();
    }
    // Before it is accepted: some clients do not survive a connection that is closed at once.
    let context = match find(&guest, id).await {
        Ok(context) => context.id,
        Err(refused) => return refused.json(),
    };
    let (answer, upgrade) = match socket::accept(request) {
        Ok(accepted) => accepted,
        Err(refused) => return refused.json(),
    };
    let Some(place) = guest.socket() else {
        let text = "the sandbox has too many websockets";
        return Refused::new(StatusCode::SERVICE_UNAVAILABLE, text).json();
    };
    let (outbox, outgoing) = Outbox::new();
    let (cells, queue) = mpsc::channel(MAX_CELLS);
    let cells = Cells { queue: cells, room: Arc::new(Semaphore::new(MAX_CODE)) };
    let (runner, answers) = (guest.clone(), outbox.clone());
    let left = CancellationToken::new();
    let has_left = left.clone();
    // Cells outlive the connection, as their kernel does, and count as one until they have ended.
    tokio::spawn(async move {
        let _held = (held, place);
        run_all(&Runner { guest: runner, outbox: answers, context, left }, queue).await;
    });
    tokio::spawn(async move {
        has_left.run_until_cancelled(socket::serve(upgrade, &guest, outbox, outgoing, cells)).await;
    });
    answer
}

/// The way of cells to their queue.
struct Cells {
    queue: mpsc::Sender<Queued>,
    /// Bytes of code that may still wait.
    room: Arc<Semaphore>,
}

impl Receive for Cells {
    fn max_message(&self) -> usize {
        SMALL_MESSAGE
    }

    async fn receive(&mut self, Message { text, .. }: Message) -> Result<(), Gone> {
        match read(&text) {
            Reading::Cell(cell, code) => {
                drop(text);
                let size = u32::try_from(code.len()).map_err(|_| Gone)?;
                let room = self.room.clone().acquire_many_owned(size).await.map_err(|_| Gone)?;
                self.queue.send(Queued { cell, code, room }).await.map_err(|_| Gone)
            }
            Reading::Unknown(kind) => {
                tracing::debug!(kind, "message to a kernel left out");
                Ok(())
            }
        }
    }
}

/// The runner of the cells of a connection.
struct Runner {
    guest: Guest,
    outbox: Outbox,
    context: String,
    /// Cancelled when the client does not take what it is sent.
    left: CancellationToken,
}

/// Runs the cells of a connection one after the other, until the sandbox ends.
async fn run_all(runner: &Runner, mut queue: mpsc::Receiver<Queued>) {
    let ended = runner.guest.ended().clone();
    let work = async {
        while let Some(queued) = queue.recv().await {
            runner.run(queued).await;
        }
    };
    ended.run_until_cancelled(work).await;
}

impl Runner {
    async fn run(&self, Queued { mut cell, code, room }: Queued) {
        let Some(_permit) = self.guest.permit() else {
            let why = "the sandbox has as many connections as it may, try again";
            return self.send(cell.failed(why), None).await;
        };
        let request = ExecutionRequest::new(code).context(self.context.as_str());
        let started = self.guest.sandbox().start_code(&request).await;
        drop((request, room));
        let mut execution = match started {
            Ok(execution) => execution,
            Err(error) => return self.send(cell.failed(&error.to_string()), None).await,
        };
        loop {
            let line = match execution.line(MAX_EVENT).await {
                Ok(Some(Some(line))) => line,
                Ok(Some(None)) => {
                    self.send(cell.left_out(), None).await;
                    continue;
                }
                Ok(None) => {
                    let why = "the end of the execution was not reported";
                    return self.send(cell.failed(why), None).await;
                }
                Err(error) => return self.send(cell.failed(&error.to_string()), None).await,
            };
            let large = match line.len() > SMALL_MESSAGE {
                true => Some(self.guest.large_message().await),
                false => None,
            };
            let step = cell.line(&line);
            drop(line);
            match step {
                Ok(Step::Messages(messages)) => self.send(messages, large).await,
                Ok(Step::End) => {
                    self.send(cell.end(), None).await;
                    // To the end of the body, so that the next request finds the connections open, here and in the server.
                    while let Ok(Some(_)) = execution.line(SMALL_MESSAGE).await {}
                    return;
                }
                Err(error) => return self.send(cell.failed(&error.to_string()), None).await,
            }
        }
    }

    /// Sends messages to the client, if it is still there; the last one with the permission to keep it in memory.
    async fn send(&self, mut messages: Vec<String>, large: Option<LargeMessage>) {
        let last = messages.pop().map(|last| (last, large));
        let sent = messages.into_iter().map(|message| (message, None)).chain(last);
        for (message, large) in sent {
            if self.left.is_cancelled() || self.outbox.send_held(Content::Text(message), large).await.is_err()
            {
                self.left.cancel();
            }
        }
    }
}
