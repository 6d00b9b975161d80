//! The channels of a kernel: cells come over a websocket, and what they give goes back over it.

use std::sync::Arc;

use http::{Request, Response, StatusCode};
use sandcove_wire::interpreter::ExecutionRequest;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::message::{Cell, Reading, read};
use super::{find, wants_channels};
use crate::answer::{Body, Refused};
use crate::guest::{Guest, SMALL_MESSAGE};
use crate::outbox::{Gone, Outbox};
use crate::socket::{self, Message, Receive};

/// Cells of one connection that wait for those before them.
const MAX_CELLS: usize = 64;

/// Code of one connection that waits, bytes.
const MAX_CODE: usize = 2 << 20;

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
    // Cells outlive the connection, as their kernel does, and count as one until they have ended.
    tokio::spawn(async move {
        let _held = (held, place);
        run_all(runner, answers, context, queue).await;
    });
    tokio::spawn(async move {
        socket::serve(upgrade, &guest, outbox, outgoing, cells).await;
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

/// Runs the cells of a connection one after the other, until the sandbox ends.
async fn run_all(guest: Guest, outbox: Outbox, context: String, mut queue: mpsc::Receiver<Queued>) {
    let ended = guest.ended().clone();
    let work = async {
        while let Some(queued) = queue.recv().await {
            run(&guest, &outbox, &context, queued).await;
        }
    };
    ended.run_until_cancelled(work).await;
}

async fn run(guest: &Guest, outbox: &Outbox, context: &str, queued: Queued) {
    let Queued { mut cell, code, room } = queued;
    let mut client = Client { outbox, is_gone: false };
    let Some(_permit) = guest.permit() else {
        let why = "the sandbox has as many connections as it may, try again";
        return client.send(cell.failed(why)).await;
    };
    let request =
        ExecutionRequest { code, context_id: Some(context.to_owned()), language: None, env_vars: None };
    let started = guest.sandbox().start_code(&request).await;
    drop((request, room));
    let mut execution = match started {
        Ok(execution) => execution,
        Err(error) => return client.send(cell.failed(&error.to_string())).await,
    };
    loop {
        match execution.next().await {
            Ok(Some(event)) => client.send(cell.event(event)).await,
            Ok(None) => return client.send(cell.end()).await,
            Err(error) => return client.send(cell.failed(&error.to_string())).await,
        }
    }
}

/// The client that has sent the cells, if it is still there.
struct Client<'a> {
    outbox: &'a Outbox,
    is_gone: bool,
}

impl Client<'_> {
    async fn send(&mut self, messages: Vec<String>) {
        for message in messages {
            if !self.is_gone {
                self.is_gone = self.outbox.text(message).await.is_err();
            }
        }
    }
}
