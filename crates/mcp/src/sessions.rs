//! Sessions of clients that send single requests, as over HTTP: what runs, what is cancelled, and when a session ends.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use sandcove_client::Client;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::answer::answer;
use crate::message::{INTERNAL_ERROR, Message, failure};
use crate::replies::{Completion, Reader, Replies, position};

/// Time after which a session ends that nobody uses.
const IDLE: Duration = Duration::from_secs(3600);
/// Maximum number of sessions of an owner. Beyond it, the one that was used least recently ends.
const MAX_SESSIONS: usize = 256;
/// Maximum number of requests of a session in progress.
const MAX_RUNNING: usize = 32;
/// Maximum number of finished requests of a session whose answers wait for a client that lost its connection.
const MAX_FINISHED: usize = 16;
/// Memory for the requests and answers of an owner, KiB. Sandboxes choose how large answers are, and clients whether they read them.
const MAX_HELD: u32 = 256 << 10;
/// Bytes of [`MAX_HELD`] that a request in progress takes beside its parameters.
const RUNNING: u32 = 4 << 10;
/// Time for which a request goes on although its client has gone.
const ABANDONED: Duration = Duration::from_secs(60);

/// The sessions of a server, each of one owner.
#[derive(Debug)]
pub struct Sessions<Owner> {
    open: Mutex<HashMap<String, Arc<Session<Owner>>>>,
    /// Memory that is left for all sessions of each owner, KiB. Answers that are being read keep it beyond their session.
    memories: Mutex<HashMap<Owner, Weak<Semaphore>>>,
}

/// A session. It ends when it is dropped, and with it what runs.
#[derive(Debug)]
pub struct Session<Owner> {
    owner: Owner,
    /// Memory that is left for all sessions of the owner, KiB.
    memory: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    used: Instant,
    /// Number of the next request.
    next: u64,
    /// Requests, oldest first.
    requests: VecDeque<Request>,
    /// The stream for messages that answer no request, of which there are none.
    listening: Option<Arc<Replies>>,
    has_ended: bool,
}

#[derive(Debug)]
struct Request {
    id: Value,
    replies: Arc<Replies>,
    task: AbortHandle,
}

/// The session runs as many requests as it may, its owner's requests and answers take as much memory as they may, or it has ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Busy;

impl<Owner> Default for Sessions<Owner> {
    fn default() -> Self {
        Self { open: Mutex::default(), memories: Mutex::default() }
    }
}

impl<Owner: Clone + Eq + Hash> Sessions<Owner> {
    /// Begins a session with the name `id`, which nobody can guess.
    pub fn begin(&self, id: String, owner: Owner) {
        let mut open = lock(&self.open);
        open.retain(|_, session| !session.is_over());
        let own: Vec<_> = open.iter().filter(|(_, session)| session.owner == owner).collect();
        let memory = self.memory(&owner);
        if own.len() >= MAX_SESSIONS {
            let oldest = own.into_iter().min_by_key(|(_, session)| lock(&session.state).used);
            let oldest = oldest.map(|(id, _)| id.clone());
            oldest.and_then(|id| open.remove(&id)).inspect(|session| session.end());
        }
        open.insert(id, Arc::new(Session::new(owner, memory)));
    }

    fn memory(&self, owner: &Owner) -> Arc<Semaphore> {
        let mut memories = lock(&self.memories);
        memories.retain(|_, memory| memory.strong_count() > 0);
        let known = memories.get(owner).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let memory = Arc::new(Semaphore::new(MAX_HELD as usize));
            memories.insert(owner.clone(), Arc::downgrade(&memory));
            memory
        })
    }

    /// The session `id`, if it is the owner's and has not ended.
    pub fn find(&self, id: &str, owner: &Owner) -> Option<Arc<Session<Owner>>> {
        let session = lock(&self.open).get(id).filter(|session| session.owner == *owner)?.clone();
        if session.is_over() {
            return None;
        }
        lock(&session.state).used = Instant::now();
        Some(session)
    }

    /// Ends a session of the owner; false if there is none.
    pub fn end(&self, id: &str, owner: &Owner) -> bool {
        if self.find(id, owner).is_none() {
            return false;
        }
        lock(&self.open).remove(id).inspect(|session| session.end()).is_some()
    }

    /// Ends the streams of clients that listen, and begins no more requests. Those in progress go on.
    pub fn close(&self) {
        for session in lock(&self.open).values() {
            lock(&session.state).close();
        }
    }
}

impl<Owner> Session<Owner> {
    fn new(owner: Owner, memory: Arc<Semaphore>) -> Self {
        let state = State {
            used: Instant::now(),
            next: 1,
            requests: VecDeque::new(),
            listening: None,
            has_ended: false,
        };
        Self { owner, memory, state: Mutex::new(state) }
    }

    /// Begins to answer a request, and goes on with it for a while if its client loses the connection.
    ///
    /// # Errors
    /// If the session already runs as many requests as it may, or its owner's take too much memory.
    pub fn answer(&self, client: Client, message: Message) -> Result<Reader, Busy> {
        let mut state = lock(&self.state);
        state.forget();
        let running = state.requests.iter().filter(|request| !request.task.is_finished()).count();
        if running >= MAX_RUNNING || state.has_ended {
            return Err(Busy);
        }
        let size = kib(weight(&message.params)).saturating_add(RUNNING);
        let held = self.memory.clone().try_acquire_many_owned(size).map_err(|_| Busy)?;
        let replies = Arc::new(Replies::new(state.next));
        state.next += 1;
        let reader = replies.read(0);
        let id = message.id.clone().unwrap_or_default();
        // The task may be cancelled before it runs.
        let completion = Completion(replies.clone());
        let task = tokio::spawn(run(client, message, completion, held)).abort_handle();
        state.requests.push_back(Request { id, replies, task });
        Ok(reader)
    }

    /// Cancels a request in progress, which then gets no answer.
    pub fn cancel(&self, id: &Value) {
        let state = lock(&self.state);
        for request in state.requests.iter().filter(|request| request.id == *id) {
            request.task.abort();
        }
    }

    /// The rest of the messages to a request, after the event that the client has last seen.
    pub fn resume(&self, event: &str) -> Option<Reader> {
        let (number, next) = position(event)?;
        let state = lock(&self.state);
        let request = state.requests.iter().find(|request| request.replies.number() == number)?;
        Some(request.replies.read(next))
    }

    /// A stream of messages that answer no request. It has none, and lasts until the session ends or another one begins.
    pub fn listen(&self) -> Reader {
        let replies = Arc::new(Replies::new(0));
        let reader = replies.read(0);
        let mut state = lock(&self.state);
        if state.has_ended {
            replies.complete();
        }
        state.listening.replace(replies).inspect(|last| last.complete());
        reader
    }

    fn end(&self) {
        let mut state = lock(&self.state);
        state.close();
        state.requests.drain(..).for_each(|request| request.task.abort());
    }

    /// Whether nobody has used the session for a while.
    fn is_over(&self) -> bool {
        let state = lock(&self.state);
        let is_busy = state.listening.as_ref().is_some_and(|listening| listening.has_readers())
            || state.requests.iter().any(|request| !request.task.is_finished());
        state.has_ended || !is_busy && state.used.elapsed() >= IDLE
    }
}

impl<Owner> Drop for Session<Owner> {
    fn drop(&mut self) {
        self.end();
    }
}

impl State {
    fn close(&mut self) {
        self.has_ended = true;
        self.listening.take().inspect(|listening| listening.complete());
    }

    /// Forgets finished requests whose answer was read, and the oldest of the others if there are too many.
    fn forget(&mut self) {
        self.requests.retain(|request| !request.task.is_finished() || request.replies.is_wanted());
        let finished = self.requests.iter().filter(|request| request.task.is_finished()).count();
        let mut excess = finished.saturating_sub(MAX_FINISHED);
        self.requests.retain(|request| {
            let is_dropped = excess > 0 && request.task.is_finished();
            excess -= usize::from(is_dropped);
            !is_dropped
        });
    }
}

/// Answers a request. Cancelled, or when nobody wants the answer any more, it ends what runs in the sandbox.
async fn run(client: Client, message: Message, completion: Completion, held: OwnedSemaphorePermit) {
    let replies = &completion.0;
    let id = message.id.clone().unwrap_or_default();
    let (send, reports) = mpsc::unbounded_channel();
    let answering = answer(&client, message, send);
    let Some(outcome) = until_abandoned(replies, reports, answering).await else { return };
    if let Some(mut answer) = outcome {
        let held = match keep(held, kib(weight(&answer))) {
            Ok(held) => held,
            Err(held) => {
                answer = failure(&id, INTERNAL_ERROR, "the answer is too large beside others that wait");
                held
            }
        };
        replies.hold(held);
        replies.push(answer);
    }
}

/// Passes on what `answering` reports, until it ends or nobody has waited for it for [`ABANDONED`]; then there is no outcome.
async fn until_abandoned<T>(
    replies: &Replies,
    mut reports: mpsc::UnboundedReceiver<Value>,
    answering: impl Future<Output = T>,
) -> Option<T> {
    // One wait for all reports: each would begin it anew.
    let abandoned = replies.abandoned(ABANDONED);
    tokio::pin!(answering, abandoned);
    loop {
        tokio::select! {
            biased;
            Some(report) = reports.recv() => replies.push(report),
            outcome = &mut answering => return Some(outcome),
            () = &mut abandoned => return None,
        }
    }
}

/// Makes what a request holds what its answer needs. Fails if there is not so much left.
fn keep(mut held: OwnedSemaphorePermit, size: u32) -> Result<OwnedSemaphorePermit, OwnedSemaphorePermit> {
    let has = u32::try_from(held.num_permits()).unwrap_or(u32::MAX);
    if let Some(missing) = size.checked_sub(has).filter(|missing| *missing > 0) {
        match held.semaphore().clone().try_acquire_many_owned(missing) {
            Ok(more) => held.merge(more),
            Err(_) => return Err(held),
        }
    } else {
        drop(held.split((has - size) as usize));
    }
    Ok(held)
}

/// Memory that a value takes, bytes.
fn weight(value: &Value) -> usize {
    /// Size of a value beside its text, bytes.
    const VALUE: usize = 64;
    VALUE
        + match value {
            Value::String(text) => text.len(),
            Value::Array(values) => values.iter().map(weight).sum(),
            Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + weight(value)).sum(),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
}

fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use sandcove_wire::secret::Secret;
    use serde_json::json;

    use super::*;

    /// A client of a server that never answers.
    fn client() -> Client {
        let open = Arc::new(Mutex::new(Vec::new()));
        Client::here("http://localhost", &Secret::new("e2b_0"), move || {
            let (ours, theirs) = tokio::io::duplex(1024);
            lock(&open).push(theirs);
            ours
        })
        .unwrap()
    }

    fn request(id: u32, method: &str, params: &Value) -> Message {
        let text = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string();
        Message::parse(text.as_bytes()).unwrap()
    }

    fn session() -> Session<()> {
        Session::new((), Arc::new(Semaphore::new(MAX_HELD as usize)))
    }

    fn silent(id: u32) -> Message {
        request(id, "tools/call", &json!({ "name": "sandbox_list" }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_its_owners_until_it_ends() {
        let sessions = Sessions::default();
        sessions.begin("a".into(), 1);
        assert!(sessions.find("a", &1).is_some());
        assert!(sessions.find("a", &2).is_none() && sessions.find("b", &1).is_none());
        assert!(!sessions.end("a", &2));
        let mut listening = sessions.find("a", &1).unwrap().listen();
        tokio::time::advance(2 * IDLE).await;
        assert!(sessions.find("a", &1).is_some(), "somebody listens");
        assert!(sessions.end("a", &1) && !sessions.end("a", &1));
        assert_eq!(listening.next().await, None);
        sessions.begin("c".into(), 1);
        tokio::time::advance(IDLE).await;
        assert!(sessions.find("c", &1).is_none(), "nobody used it");
    }

    #[tokio::test]
    async fn the_number_of_sessions_of_an_owner_is_bounded() {
        let sessions = Sessions::default();
        sessions.begin("first".into(), 1);
        sessions.begin("other".into(), 2);
        for number in 0..MAX_SESSIONS {
            sessions.begin(number.to_string(), 1);
        }
        assert!(sessions.find("first", &1).is_none() && sessions.find("other", &2).is_some());
        assert_eq!(lock(&sessions.open).len(), MAX_SESSIONS + 1);
    }

    #[tokio::test]
    async fn answers_wait_for_a_client_that_lost_its_connection() {
        let session = session();
        drop(session.answer(client(), request(1, "ping", &Value::Null)).unwrap());
        tokio::task::yield_now().await;
        let mut reader = session.resume("1-0").unwrap();
        assert_eq!(reader.next().await.unwrap().message["result"], json!({}));
        assert_eq!(reader.next().await, None);
        let _ = session.answer(client(), request(2, "ping", &Value::Null)).unwrap();
        assert!(session.resume("1-0").is_none(), "it was read");
        assert!(session.resume("9-0").is_none() && session.resume("x").is_none());
    }

    #[tokio::test]
    async fn a_cancelled_request_has_no_answer() {
        let session = session();
        let mut cancelled = session.answer(client(), silent(1)).unwrap();
        let mut ended = session.answer(client(), silent(2)).unwrap();
        session.cancel(&json!(7));
        session.cancel(&json!(1));
        assert_eq!(cancelled.next().await, None);
        lock(&session.state).close();
        let nothing = tokio::time::timeout(Duration::from_millis(1), ended.next()).await;
        assert!(nothing.is_err(), "it goes on");
        session.end();
        assert_eq!(ended.next().await, None);
        assert!(session.answer(client(), silent(3)).is_err());
    }

    #[tokio::test]
    async fn the_number_of_requests_in_progress_is_bounded() {
        let session = session();
        let readers: Vec<_> = (0..u32::try_from(MAX_RUNNING).unwrap())
            .map(|id| session.answer(client(), silent(id)).unwrap())
            .collect();
        assert_eq!(session.answer(client(), silent(99)).err(), Some(Busy));
        session.cancel(&json!(0));
        tokio::task::yield_now().await;
        assert!(session.answer(client(), silent(99)).is_ok());
        drop(readers);
    }

    #[tokio::test]
    async fn memory_of_all_sessions_of_an_owner_is_bounded() {
        let sessions = Sessions::default();
        let open = |name: &str, owner| {
            sessions.begin(name.into(), owner);
            sessions.find(name, &owner).unwrap()
        };
        let mut large = request(1, "tools/call", &json!({ "name": "sandbox_list" }));
        large.params["arguments"] = json!("x".repeat(8 << 20));
        let mut readers = Vec::new();
        for number in 0..20 {
            let session = open(&number.to_string(), 1);
            readers.extend((0..4).map(|_| session.answer(client(), large.clone())));
        }
        let running = readers.iter().filter(|reader| reader.is_ok()).count();
        assert!((10..32).contains(&running), "{running}");
        assert_eq!(readers.last().and_then(|last| last.as_ref().err()), Some(&Busy));
        assert!(open("other", 2).answer(client(), large.clone()).is_ok());
        // What is cancelled takes none.
        (0..20).for_each(|number| assert!(sessions.end(&number.to_string(), &1)));
        tokio::task::yield_now().await;
        assert!(open("again", 1).answer(client(), large.clone()).is_ok());
    }

    #[tokio::test]
    async fn answers_that_are_being_read_take_memory_although_their_session_has_ended() {
        let sessions = Sessions::default();
        sessions.begin("a".into(), 1);
        let session = sessions.find("a", &1).unwrap();
        let reader = session.answer(client(), request(1, "tools/list", &Value::Null)).unwrap();
        tokio::task::yield_now().await;
        drop(session);
        assert!(sessions.end("a", &1));
        sessions.begin("b".into(), 1);
        let session = sessions.find("b", &1).unwrap();
        assert!(session.memory.available_permits() < MAX_HELD as usize);
        drop(reader);
        assert_eq!(session.memory.available_permits(), MAX_HELD as usize);
    }

    #[tokio::test]
    async fn answers_that_wait_take_memory_until_they_are_forgotten() {
        let session = session();
        let full = || session.memory.available_permits() == MAX_HELD as usize;
        for id in 0..3 {
            drop(session.answer(client(), request(id, "tools/list", &Value::Null)).unwrap());
        }
        tokio::task::yield_now().await;
        let held = MAX_HELD as usize - session.memory.available_permits();
        assert!((3..100).contains(&held), "{held} KiB for three answers");
        session.end();
        assert!(full());
    }

    #[test]
    fn an_answer_is_kept_if_there_is_memory_for_it() {
        let memory = Arc::new(Semaphore::new(10));
        let held = memory.clone().try_acquire_many_owned(4).unwrap();
        let held = keep(held, 1).unwrap();
        assert_eq!(memory.available_permits(), 9);
        let held = keep(held, 10).unwrap();
        assert_eq!(memory.available_permits(), 0);
        let held = keep(held, 11).unwrap_err();
        drop(held);
        assert_eq!(memory.available_permits(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_nobody_waits_for_ends() {
        let session = session();
        drop(session.answer(client(), silent(1)).unwrap());
        tokio::time::sleep(ABANDONED / 2).await;
        let reader = session.resume("1-0").unwrap();
        tokio::time::sleep(10 * ABANDONED).await;
        assert!(!lock(&session.state).requests[0].task.is_finished(), "somebody came back");
        drop(reader);
        tokio::time::sleep(2 * ABANDONED).await;
        assert!(lock(&session.state).requests[0].task.is_finished());
    }

    #[tokio::test(start_paused = true)]
    async fn reports_of_a_request_that_nobody_waits_for_do_not_keep_it() {
        let (send, reports) = mpsc::unbounded_channel();
        let reporting = tokio::spawn(async move {
            while send.send(json!({})).is_ok() {
                tokio::time::sleep(ABANDONED / 12).await;
            }
        });
        let waiting = until_abandoned(&Replies::new(0), reports, std::future::pending::<()>()).await;
        assert_eq!(waiting, None);
        reporting.await.unwrap();
    }
}
