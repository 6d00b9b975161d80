//! A context: one queue of executions, one kernel at a time, one task that owns both.

mod driver;
mod execution;
mod identity;
mod outbox;
mod output;
mod queue;
mod variables;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use sandcove_wire::interpreter::{self as wire, Event};
use sandcove_wire::secret::Secret;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::config::Config;
use crate::kernel::StartError;
use crate::language::Language;
use crate::launch::Launcher;
use driver::Driver;
use queue::{Control, Execution, MAX_WAITING_CONTROLS, MAX_WAITING_EXECUTIONS};

/// Events of an execution that wait for the client. When there are more the code has to wait.
const MAX_WAITING_EVENTS: usize = 64;

/// The handle of a context. Its task ends when the context is closed or the last handle is dropped.
#[derive(Debug)]
pub struct Context {
    id: String,
    language: Language,
    directory: PathBuf,
    executions: mpsc::Sender<Execution>,
    controls: mpsc::Sender<Control>,
}

/// The error of a request to a context that is closed or closing.
#[derive(Debug, thiserror::Error)]
#[error("context is closed")]
pub struct Closed;

impl Context {
    /// Makes a context without a kernel; that is started by [`Context::start`] or by the first execution.
    pub fn new(language: Language, directory: PathBuf, launcher: Arc<Launcher>, config: &Config) -> Self {
        let (executions, execution_queue) = mpsc::channel(MAX_WAITING_EXECUTIONS);
        let (controls, control_queue) = mpsc::channel(MAX_WAITING_CONTROLS);
        let id = Uuid::new_v4().to_string();
        let driver = Driver::new(
            launcher,
            language.clone(),
            directory.clone(),
            config.agent,
            execution_queue,
            control_queue,
        );
        tokio::spawn(driver.run());
        Self { id, language, directory, executions, controls }
    }

    /// Id of the context; a UUID.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Language of the context.
    pub fn language(&self) -> &Language {
        &self.language
    }

    /// The context as clients see it.
    pub fn view(&self) -> wire::Context {
        wire::Context {
            id: self.id.clone(),
            language: self.language.to_string(),
            cwd: self.directory.to_string_lossy().into_owned(),
        }
    }

    /// Queues code, once there is room, and returns the events of its execution. Dropping them interrupts the execution.
    pub async fn execute(
        &self,
        code: String,
        variables: BTreeMap<String, String>,
        token: Option<Secret>,
    ) -> Result<mpsc::Receiver<Event>, Closed> {
        let (events, receiver) = mpsc::channel(MAX_WAITING_EVENTS);
        let execution = Execution { code, variables, token, events };
        self.executions.send(execution).await.map_err(|_| Closed)?;
        Ok(receiver)
    }

    /// Starts a kernel, if there is none.
    pub async fn start(&self) -> Result<Result<(), StartError>, Closed> {
        self.control(Control::Start).await
    }

    /// Replaces the kernel by a new one. A running execution ends with an error.
    pub async fn restart(&self) -> Result<Result<(), StartError>, Closed> {
        self.control(Control::Restart).await
    }

    /// Ends the kernel and all executions, and waits until that is done.
    pub async fn close(&self) -> Result<(), Closed> {
        self.control(Control::Close).await
    }

    async fn control<T>(&self, make: impl FnOnce(oneshot::Sender<T>) -> Control) -> Result<T, Closed> {
        let (reply, answer) = oneshot::channel();
        self.controls.send(make(reply)).await.map_err(|_| Closed)?;
        answer.await.map_err(|_| Closed)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// A context whose task is the test, with room for one execution and one control.
    fn context() -> (Context, mpsc::Receiver<Execution>, mpsc::Receiver<Control>) {
        let (executions, execution_queue) = mpsc::channel(1);
        let (controls, control_queue) = mpsc::channel(1);
        let (language, directory) = (Language::python(), PathBuf::from("/"));
        (
            Context { id: String::new(), language, directory, executions, controls },
            execution_queue,
            control_queue,
        )
    }

    #[tokio::test]
    async fn executions_wait_for_room_and_keep_their_order() {
        let (context, mut queue, _controls) = context();
        let execute = |code: &str| Box::pin(context.execute(code.to_owned(), BTreeMap::new(), None));
        assert!(execute("first").now_or_never().is_some());
        let (mut second, mut third) = (execute("second"), execute("third"));
        assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
        assert_eq!(queue.recv().await.unwrap().code, "first");
        assert!((&mut third).now_or_never().is_none(), "room is given in order");
        assert!((&mut second).now_or_never().is_some());
        assert_eq!(queue.recv().await.unwrap().code, "second");
        assert!((&mut third).now_or_never().is_some());
        assert_eq!(queue.recv().await.unwrap().code, "third");
    }

    #[tokio::test]
    async fn an_execution_whose_client_leaves_before_there_is_room_never_runs() {
        let (context, mut queue, _controls) = context();
        let execute = |code: &str| Box::pin(context.execute(code.to_owned(), BTreeMap::new(), None));
        assert!(execute("first").now_or_never().is_some());
        let mut left = execute("left");
        assert!((&mut left).now_or_never().is_none());
        drop(left);
        assert_eq!(queue.recv().await.unwrap().code, "first");
        assert!(execute("next").now_or_never().is_some());
        assert_eq!(queue.recv().await.unwrap().code, "next");
    }

    #[tokio::test]
    async fn what_waits_for_a_context_that_closes_is_refused() {
        let (context, queue, controls) = context();
        assert!(context.execute(String::new(), BTreeMap::new(), None).now_or_never().is_some());
        let mut waiting = Box::pin(context.execute(String::new(), BTreeMap::new(), None));
        let mut restart = Box::pin(context.restart());
        let mut close = Box::pin(context.close());
        assert!((&mut waiting).now_or_never().is_none());
        assert!((&mut restart).now_or_never().is_none() && (&mut close).now_or_never().is_none());
        drop((queue, controls));
        assert!(waiting.await.is_err() && restart.await.is_err() && close.await.is_err());
    }
}
