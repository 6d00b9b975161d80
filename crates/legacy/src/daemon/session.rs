//! One client's connection to the daemon: carries out requests, and ends with it what was started or watched for the client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::upgrade::OnUpgrade;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::programs::Programs;
use super::{files, ports, watch};
use crate::guest::{Guest, LargeMessage, MAX_MESSAGE, Permit, SMALL_MESSAGE};
use crate::outbox::{Content, Gone, Outbox};
use crate::rpc::{self, Call, Channel, Id, ProgramId, Request, Topic};
use crate::socket::{self, Message, Receive};

/// Subscriptions of one client.
const MAX_SUBSCRIPTIONS: usize = 1024;
/// Requests about files that are carried out at once for one client; further ones wait.
const MAX_FILES: usize = 8;

/// A client's connection, for what is done on its behalf.
#[derive(Clone)]
pub(super) struct Session {
    pub(super) guest: Guest,
    outbox: Outbox,
    subscriptions: Arc<Mutex<HashMap<String, Subscription>>>,
    /// Cancelled when the connection ends.
    pub(super) ended: CancellationToken,
}

struct Subscription {
    topic: Topic,
    /// Ends what works for this subscription alone.
    _watch: Option<DropGuard>,
}

/// Serves a connection until its end.
pub(super) async fn run(upgrade: OnUpgrade, guest: Guest) {
    let ended = CancellationToken::new();
    let _guard = ended.clone().drop_guard();
    let (outbox, outgoing) = Outbox::new();
    let session = Session {
        guest: guest.clone(),
        outbox: outbox.clone(),
        subscriptions: Arc::default(),
        ended: ended.clone(),
    };
    let requests =
        Requests { session, programs: Programs::default(), files: Arc::new(Semaphore::new(MAX_FILES)) };
    ended.run_until_cancelled(socket::serve(upgrade, &guest, outbox, outgoing, requests)).await;
}

/// The requests of a client.
struct Requests {
    session: Session,
    programs: Programs,
    files: Arc<Semaphore>,
}

impl Receive for Requests {
    fn max_message(&self) -> usize {
        MAX_MESSAGE
    }

    async fn receive(&mut self, message: Message) -> Result<(), Gone> {
        self.session.receive(&self.programs, &self.files, message).await
    }
}

impl Session {
    async fn receive(
        &self,
        programs: &Programs,
        files: &Arc<Semaphore>,
        Message { text, held }: Message,
    ) -> Result<(), Gone> {
        let Call { id, request } = match rpc::read(&text) {
            Ok(call) => call,
            Err(refusal) => {
                return match refusal.answer {
                    Some(answer) => self.outbox.text(answer).await,
                    None => Ok(()),
                };
            }
        };
        drop(text);
        match request {
            Request::Subscribe(topic) => self.subscribe(id, topic).await,
            Request::Unsubscribe(subscription) => {
                let removed = self.lock().remove(&subscription);
                if let Some(Topic::Program(program, _)) = removed.map(|removed| removed.topic)
                    && !self.is_subscribed(&program)
                {
                    programs.kill(&program);
                }
                self.answer(id, Ok(true)).await
            }
            Request::Start(start) => programs.start(self, id, start).await,
            Request::Input { program, text } => programs.input(self, id, &program, text).await,
            Request::Resize { program, size } => programs.resize(self, id, &program, size).await,
            Request::Kill(program) => {
                programs.kill(&program);
                self.answer(id, Ok(())).await
            }
            Request::Files(request) => {
                let deadline = held.as_ref().map(|held| held.deadline);
                let Some(permit) = files::in_time(deadline, files.clone().acquire_owned()).await else {
                    let text = "too many requests about files are in progress";
                    return self.answer(id, Err::<(), _>(text.to_owned())).await;
                };
                let session = self.clone();
                tokio::spawn(async move {
                    let _permit = permit;
                    let work = files::carry_out(&session, id, request, held);
                    let done = session.ended.run_until_cancelled(work).await;
                    if let Some(Err(Gone)) = done {
                        tracing::trace!("the client of a request about files is gone");
                    }
                });
                Ok(())
            }
        }
    }

    async fn subscribe(&self, id: Option<Id>, topic: Topic) -> Result<(), Gone> {
        if self.lock().len() >= MAX_SUBSCRIPTIONS {
            let text = format!("too many subscriptions: a connection has at most {MAX_SUBSCRIPTIONS}");
            return self.answer(id, Err::<(), _>(text)).await;
        }
        let subscription = format!("0x{:032x}", rand::random::<u128>());
        match &topic {
            Topic::Program(..) => {
                // Before it is known here, so that no event overtakes the answer.
                self.answer(id, Ok(&subscription)).await?;
                self.lock().insert(subscription, Subscription { topic, _watch: None });
                Ok(())
            }
            Topic::Directory(_) | Topic::OpenedPorts => {
                let Some(permit) = self.permit() else { return self.answer(id, Err::<(), _>(busy())).await };
                let end = self.ended.child_token();
                let guard = end.clone().drop_guard();
                let subscribed = Subscription { topic: topic.clone(), _watch: Some(guard) };
                self.lock().insert(subscription.clone(), subscribed);
                let session = self.clone();
                tokio::spawn(async move {
                    let _permit = permit;
                    let work = async {
                        match &topic {
                            Topic::Directory(path) => watch::watch(&session, id, &subscription, path).await,
                            _ => ports::scan(&session, id, &subscription).await,
                        }
                    };
                    end.run_until_cancelled(work).await;
                });
                Ok(())
            }
        }
    }

    /// Takes the permission for one more connection into the sandbox.
    pub(super) fn permit(&self) -> Option<Permit> {
        self.guest.permit()
    }

    /// Answers a request, if it has an id. The text of an error is what its client reads.
    pub(super) async fn answer<T: Serialize>(
        &self,
        id: Option<Id>,
        result: Result<T, String>,
    ) -> Result<(), Gone> {
        self.answer_held(id, result, None).await
    }

    /// Answers a request, if it has an id, with the permission to keep a large answer in memory.
    pub(super) async fn answer_held<T: Serialize>(
        &self,
        id: Option<Id>,
        result: Result<T, String>,
        held: Option<LargeMessage>,
    ) -> Result<(), Gone> {
        let Some(id) = id else { return Ok(()) };
        let text = match &result {
            Ok(result) => rpc::success(&id, result),
            Err(message) => rpc::failure(&id, message),
        };
        drop(result);
        // A small answer may wait for its client as long as it takes.
        let held = held.filter(|_| text.len() > SMALL_MESSAGE);
        let sent = self.outbox.send_held(Content::Text(text), held).await;
        if sent.is_err() {
            // A client that is only slow would wait for this answer for ever.
            self.ended.cancel();
        }
        sent
    }

    /// Sends an event of a program to those who subscribed to it.
    pub(super) async fn event(
        &self,
        program: &ProgramId,
        channel: Channel,
        result: &impl Serialize,
    ) -> Result<(), Gone> {
        let subscribed: Vec<String> = {
            let subscriptions = self.lock();
            let is_meant = |topic: &Topic| matches!(topic, Topic::Program(of, what) if of == program && *what == channel);
            let meant = subscriptions.iter().filter(|(_, subscription)| is_meant(&subscription.topic));
            meant.map(|(id, _)| id.clone()).collect()
        };
        for subscription in subscribed {
            self.notify(program.service(), &subscription, result).await?;
        }
        Ok(())
    }

    /// Sends an event of a subscription.
    pub(super) async fn notify(
        &self,
        service: &str,
        subscription: &str,
        result: &impl Serialize,
    ) -> Result<(), Gone> {
        match rpc::event(service, subscription, result) {
            Ok(event) => self.outbox.text(event).await,
            Err(error) => {
                tracing::debug!(%error, "event left out");
                Ok(())
            }
        }
    }

    /// Removes a subscription that has come to nothing, once that is answered: its removal ends what works for it.
    pub(super) async fn refuse_subscription(&self, id: Option<Id>, subscription: &str, why: String) {
        if self.answer(id, Err::<(), _>(why)).await.is_err() {
            tracing::trace!("the client of a subscription is gone");
        }
        self.lock().remove(subscription);
    }

    /// Whether the client has a subscription to the program.
    fn is_subscribed(&self, program: &ProgramId) -> bool {
        let is_of = |subscription: &Subscription| matches!(&subscription.topic, Topic::Program(of, _) if of == program);
        self.lock().values().any(is_of)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Subscription>> {
        self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error when the sandbox has no connection left.
pub(super) fn busy() -> String {
    "the sandbox has as many connections as it may, try again".to_owned()
}
